"""Functions of a bot's author: their signature, and how they are called, sync or async, plain or a generator."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing, suppress
from functools import cached_property, partial
from typing import Any, TypeVar, get_args

from channels.cancellable_threads import hand_over
from channels.errors import Portable
from gateway.tools.context import ToolContext
from gateway.tools.errors import OutcomeUnknown
from gateway.tools.pieces import Pieces

__all__ = ["THREADS", "Function", "GoesOn", "NotBegun"]

T = TypeVar("T")

THREADS = 16
"""The number of threads of one function, for concurrent calls."""
_END = object()


class NotBegun(Exception):
    """The caller was cancelled before a thread began the call. The call never runs."""


class GoesOn(Portable):
    """The caller was cancelled while the function runs on in its thread. `call` is the future of its result."""

    def __init__(self, call: Future[Any]) -> None:
        super().__init__()
        self.call = call


class Function:
    """A callable that passes a function the values that it takes, and its ToolContext."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        """`name` names the threads. Raises ValueError when the signature or the annotations cannot be read."""
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
        self.function, self.name = function, name
        self.takes_any = inspect.Parameter.VAR_KEYWORD in kinds
        named = {n: p for n, p in signature.parameters.items() if p.kind is not inspect.Parameter.VAR_KEYWORD}
        self.context = tuple(name for name, parameter in named.items() if _is_context(parameter.annotation))
        self.parameters = {name: parameter for name, parameter in named.items() if name not in self.context}
        """The parameters without those that are annotated with ToolContext."""
        # A callable object is as async as its __call__.
        body = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
        body = inspect.unwrap(function.func if isinstance(function, partial) else body)
        self.is_generator = inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body)
        self.returns_bool = signature.return_annotation is bool
        self.is_async = inspect.iscoroutinefunction(body) or inspect.isasyncgenfunction(body)

    @cached_property
    def threads(self) -> ThreadPoolExecutor:
        """The function's own threads, started on demand: calls that hang do not block other functions."""
        return ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix=f"tool-{self.name}")

    @property
    def needs(self) -> set[str]:
        """The names of the parameters without a default."""
        return {name for name, parameter in self.parameters.items() if parameter.default is inspect.Parameter.empty}

    async def call(
        self, values: Mapping[str, Any], ctx: ToolContext, *, on_chunk: Callable[[str], None] | None = None
    ) -> Any:
        """Call the function and return its result. The values of a generator are joined to one text.

        `on_chunk` is called with each value of a generator as it comes. A sync function runs in a thread, in a copy of
        the caller's context. Raises OutcomeUnknown for a generator that yields more than Pieces takes. When the caller
        is cancelled: raises NotBegun if the function has not run, GoesOn if it still runs in its thread, and
        CancelledError otherwise.
        """
        arguments = values if self.takes_any else {name: values[name] for name in self.parameters if name in values}
        bound = partial(self.function, **arguments, **dict.fromkeys(self.context, ctx))
        if self.is_generator:
            pieces = Pieces()
            async with aclosing(bound() if self.is_async else self._from_thread(bound)) as yielded:
                async for value in yielded:
                    text = pieces.add(value)
                    if on_chunk is not None:
                        on_chunk(text)
            return pieces.joined()
        result = bound() if self.is_async else await self._in_thread(contextvars.copy_context(), bound)
        return await result if inspect.isawaitable(result) else result

    async def _in_thread(self, context: contextvars.Context, function: Callable[..., T], *args: Any) -> T:
        call = hand_over(partial(context.run, _called, function, *args), threads=self.threads)
        try:
            return await asyncio.wrap_future(call)
        except asyncio.CancelledError as error:
            if call.cancel():
                raise NotBegun from error
            if call.done() and isinstance(call.exception(), asyncio.CancelledError):
                raise  # the function's own
            raise GoesOn(call) from error

    async def _from_thread(self, generator_function: Callable[[], Any]) -> AsyncGenerator[Any, None]:
        context, generator = contextvars.copy_context(), generator_function()
        begun = False
        while True:
            try:
                piece = await self._in_thread(context, next, generator, _END)
            except NotBegun as error:
                if begun:  # the generator ran already, only its next piece did not begin
                    raise asyncio.CancelledError from error
                raise
            except GoesOn as error:
                raise GoesOn(_cut_off(error.call)) from error
            if piece is _END:
                return
            try:
                yield piece
            except GeneratorExit:  # its `finally` may block, so it does not run here, and not at some later time
                await self._in_thread(context, _close, generator)
                raise
            begun = True


def _cut_off(piece: Future[Any]) -> Future[Any]:
    """Return a call that ends with OutcomeUnknown when this piece of a generator does.

    No further piece is taken, so the outcome of the whole generator cannot be known.
    """
    ended: Future[Any] = Future()
    piece.add_done_callback(lambda _: ended.set_exception(OutcomeUnknown("it was stopped between two pieces")))
    return ended


def _is_context(annotation: Any) -> bool:
    return any(isinstance(a, type) and issubclass(a, ToolContext) for a in (annotation, *get_args(annotation)))


def _close(generator: Generator[Any, Any, Any]) -> None:
    with suppress(Exception):  # the reason for which it is closed is told
        generator.close()


def _called(function: Callable[..., T], *args: Any) -> T:
    try:
        return function(*args)
    except StopIteration as error:  # a future refuses a StopIteration, and its caller would wait forever
        raise RuntimeError("the function raised StopIteration") from error
