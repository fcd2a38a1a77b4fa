"""A function of a bot's author: what it takes, and how it is run, whether sync or async, plain or a generator."""

from __future__ import annotations

import contextvars
import inspect
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar, get_args

from channels.threads import in_thread
from gateway.tools.context import ToolContext

__all__ = ["Function"]

T = TypeVar("T")

_THREADS = ThreadPoolExecutor(max_workers=32, thread_name_prefix="tool")
"""Of their own, so that functions that hang do not hold up what else the process does in threads."""

_END = object()


class Function:
    """Calls a function with what it takes of the values at hand, and fills in its ToolContext."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Raises ValueError when the signature cannot be read or its annotations cannot be resolved."""
        try:
            signature = inspect.signature(function, eval_str=True)
        except NameError as error:
            raise ValueError(
                f"an annotation cannot be resolved ({error}): import it, or define it in the module"
            ) from None
        except TypeError as error:
            raise ValueError(f"not a function: {error}") from None
        kinds = {parameter.kind for parameter in signature.parameters.values()}
        if kinds & {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL}:
            raise ValueError("a tool is called by name: take no *args and no positional-only parameters")
        self.function = function
        self.takes_any = inspect.Parameter.VAR_KEYWORD in kinds
        named = {n: p for n, p in signature.parameters.items() if p.kind is not inspect.Parameter.VAR_KEYWORD}
        self.context = tuple(name for name, parameter in named.items() if _is_context(parameter.annotation))
        self.parameters = {name: parameter for name, parameter in named.items() if name not in self.context}
        """All but those that ToolContext is filled in for."""
        # A callable object is as async as its __call__.
        body = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
        body = inspect.unwrap(function.func if isinstance(function, partial) else body)
        self.is_generator = inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body)
        self.is_async = inspect.iscoroutinefunction(body) or inspect.isasyncgenfunction(body)

    @property
    def needs(self) -> set[str]:
        """The parameters without a default."""
        return {name for name, parameter in self.parameters.items() if parameter.default is inspect.Parameter.empty}

    async def call(
        self, values: Mapping[str, Any], ctx: ToolContext, *, on_chunk: Callable[[str], None] | None = None
    ) -> Any:
        """What the function returns; a generator's values become one text, each told to `on_chunk` as it comes.

        A sync function runs in a thread, in a copy of the caller's context.
        """
        taken = values if self.takes_any else {name: values[name] for name in self.parameters if name in values}
        bound = partial(self.function, **taken, **dict.fromkeys(self.context, ctx))
        if self.is_generator:
            chunks = []
            async with aclosing(bound() if self.is_async else _from_thread(bound)) as pieces:
                async for piece in pieces:
                    chunks.append(str(piece))
                    if on_chunk is not None:
                        on_chunk(chunks[-1])
            return "".join(chunks)
        result = bound() if self.is_async else await _in_thread(contextvars.copy_context(), bound)
        return await result if inspect.isawaitable(result) else result


def _is_context(annotation: Any) -> bool:
    return any(isinstance(a, type) and issubclass(a, ToolContext) for a in (annotation, *get_args(annotation)))


async def _in_thread(context: contextvars.Context, function: Callable[..., T], *args: Any) -> T:
    return await in_thread(partial(context.run, _called, function, *args), threads=_THREADS)


def _called(function: Callable[..., T], *args: Any) -> T:
    try:
        return function(*args)
    except StopIteration as error:  # no future takes one: whoever waits would wait for ever
        raise RuntimeError("the function raised StopIteration") from error


async def _from_thread(generator_function: Callable[[], Any]) -> AsyncGenerator[Any, None]:
    context = contextvars.copy_context()
    generator = generator_function()
    while (piece := await _in_thread(context, next, generator, _END)) is not _END:
        yield piece
