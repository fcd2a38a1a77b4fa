"""Functions of a bot's author: the signature, and the call under a lock and a timeout."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing, nullcontext, suppress
from functools import cached_property, partial
from typing import Any, Final, TypeVar, get_args

from pydantic import ValidationError

from channels.cancellable_threads import hand_over
from channels.errors import Portable
from gateway.timing.deadlines import Deadline
from gateway.tools.context import ToolContext
from gateway.tools.errors import NothingDone, OutcomeUnknown, ToolBusy, ToolError, ToolExecutionError, ToolTimeout
from gateway.tools.locks import Hold, held, outlasted
from gateway.tools.stopping import is_cancelled

MOST_CHARACTERS: Final = 1_000_000
"""The most characters of all values of a generator together."""
_MOST_PIECES: Final = 100_000
"""The most values of a generator. An async generator without an await would otherwise hold the event loop for ever."""


class Pieces:
    """The values yielded by a generator."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._characters = 0

    def add(self, value: Any) -> str:
        """Add a value, and return the text.

        Raises OutcomeUnknown above the limits: the generator is closed at this point.
        """
        text = str(value)
        self._characters += len(text)
        if self._characters > MOST_CHARACTERS or len(self._texts) == _MOST_PIECES:
            raise OutcomeUnknown("it was stopped, because it yielded more than a result can hold")
        self._texts.append(text)
        return text

    def joined(self) -> str:
        """Return the values as a single text."""
        return "".join(self._texts)


T = TypeVar("T")

THREADS = 16
"""The number of threads of a function, for concurrent calls."""
_END = object()


class NotBegun(Exception):
    """The caller was cancelled before a thread began the call. The call never runs."""


class GoesOn(Portable):
    """The caller was cancelled while the function runs on in a thread. `call` is the future of the result."""

    def __init__(self, call: Future[Any]) -> None:
        super().__init__()
        self.call = call


class Function:
    """A callable that passes a function only the accepted values, and the ToolContext."""

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
        """The parameters not annotated with ToolContext."""
        # A callable object is as async as its __call__.
        body = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
        body = inspect.unwrap(function.func if isinstance(function, partial) else body)
        self.is_generator = inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body)
        self.returns_bool = signature.return_annotation is bool
        self.is_async = inspect.iscoroutinefunction(body) or inspect.isasyncgenfunction(body)

    @cached_property
    def threads(self) -> ThreadPoolExecutor:
        """The function's own threads, started on demand: hanging calls do not block other functions."""
        return ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix=f"tool-{self.name}")

    @property
    def needs(self) -> set[str]:
        """The names of the parameters without a default."""
        return {name for name, parameter in self.parameters.items() if parameter.default is inspect.Parameter.empty}

    async def call(
        self, values: Mapping[str, Any], ctx: ToolContext, *, on_chunk: Callable[[str], None] | None = None
    ) -> Any:
        """Call the function and return the result. The values of a generator are joined to a single text.

        `on_chunk` is called with each value of a generator immediately. A sync function runs in a thread, in a copy of
        the caller's context. Raises OutcomeUnknown for a generator above the limits of Pieces. When the caller is
        cancelled: raises NotBegun if the function has not run, GoesOn if the function still runs in a thread, and
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
    """Return a call ending with OutcomeUnknown at the end of this piece of a generator.

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


_ACCIDENTS = (UnicodeError, json.JSONDecodeError, OSError, ValidationError)
"""ValueErrors of clients and parsers for a broken answer, not refusals of a preview function."""


async def call_guarded(
    tool: str,
    call: Callable[[], Awaitable[Any]],
    *,
    limit: float | None,
    lock: str | None,
    hold: Hold | None = None,
    passing: tuple[type[Exception], ...] = (),
    on_late: Callable[[Future[Any]], None] | None = None,
) -> Any:
    """Await `call` under the named lock, within `limit` seconds including the wait for the lock; return the result.

    `hold` holds the lock among the processes of a store too. Errors of the types `passing` are raised unchanged, except
    accidents of clients and parsers. `on_late` is called with the call of a sync function still running in a thread.
    Raises as `Tool.run`.
    """
    if lock is not None and outlasted(lock):
        raise ToolBusy(tool, lock)
    deadline, waiting, task = Deadline(limit), lock is not None, asyncio.current_task()
    try:
        with deadline:
            if lock is None:
                return await call()
            async with held(lock) as here, hold(lock) if hold is not None else nullcontext() as elsewhere:
                waiting = False
                try:
                    return await call()
                except GoesOn as error:
                    here.leave_to(error.call)
                    if elsewhere is not None:
                        elsewhere.leave_to(error.call)
                    raise
    except ToolError:
        raise
    except GoesOn as error:
        if on_late is not None:
            on_late(error.call)
        if is_cancelled() or limit is None:
            raise asyncio.CancelledError from error
        raise ToolTimeout(tool, limit) from error
    except NotBegun as error:
        if is_cancelled():
            raise asyncio.CancelledError from error
        raise NothingDone(f"Tool {tool!r} did not run: earlier calls of it have not ended") from error
    except BaseException as error:
        # A function may call sys.exit, leak a GeneratorExit or await a cancelled task. None of these may end the
        # process or the turn, or let a lease expire.
        if isinstance(error, passing) and not isinstance(error, _ACCIDENTS):
            raise
        if isinstance(error, KeyboardInterrupt) or _ends_the_caller(error, task):
            raise
        if not (isinstance(error, TimeoutError) and limit is not None and deadline.expired):
            raise ToolExecutionError(tool, error) from error
        if waiting and lock is not None:
            if outlasted(lock):
                raise ToolBusy(tool, lock) from error
            raise NothingDone(f"Tool {tool!r} did not run: another call holds {lock!r}") from error
        raise ToolTimeout(tool, limit) from error


def _ends_the_caller(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Return True if the caller is ending, by a cancelled task or a coroutine closed from outside."""
    match error:
        case asyncio.CancelledError():
            return is_cancelled()
        case GeneratorExit():
            try:
                return asyncio.current_task() is not task
            except RuntimeError:  # no event loop runs any more
                return True
        case _:
            return False
