"""The teller: emits each event once, to the readers of this process and to the observers of authors."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from channels import Json
from gateway.logs import describe_error
from gateway.observe.callbacks import Callbacks
from gateway.observe.events import ObservedEvent, RunEvent
from gateway.observe.observer import AgentObserver
from gateway.observe.private import private
from gateway.observe.reader import Reader
from gateway.observe.recorder import TraceRecorder
from gateway.observe.runs import new_run_id
from gateway.timing.left_tasks import leave


class _Told:
    """The awaitable of an event without a waiting observer: cheaper than a coroutine. Most events have no observer."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


_TOLD: Final = _Told()

P = ParamSpec("P")
E = TypeVar("E", bound=ObservedEvent)
R = TypeVar("R", bound=RunEvent)

log = logging.getLogger("askfirst.observe")

MOST_WAITING = 1_000
"""The limit of waiting events of one observer in the background."""
DRAIN_SECONDS = 10.0
"""The longest wait of a drain for the observers."""


@dataclass(frozen=True, slots=True)
class _Listeners:
    """The readers and observers of one class of events."""

    readers: Sequence[Reader]
    observers: Sequence[AgentObserver]


class Teller:
    """Emits events to readers and observers. Without a listener, the event object is not created."""

    def __init__(self, *, readers: Sequence[Reader] = (), observers: Sequence[AgentObserver] = ()) -> None:
        self._readers, self._observers = readers, observers
        self._listeners: dict[object, _Listeners | None] = {}
        self._queues = {id(observer): _ObserverQueue(observer, self) for observer in observers}
        for observer in observers:
            if isinstance(observer, Callbacks):
                observer.tell_changes_to(self)
        self.dropped: Counter[str] = Counter()
        """Name of an observer's class -> the number of events dropped because too many were waiting."""
        self.failed: Counter[str] = Counter()
        """Name of an observer's class -> the number of events with an error or a timeout of the observer."""
        self._logged: set[tuple[str, str]] = set()
        self._too_slow: set[int] = set()
        """The ids of the blocking observers that once exceeded their timeout. No run waits for these again."""

    def tell(self, kind: Callable[P, E], /, *args: P.args, **fields: P.kwargs) -> Awaitable[None]:
        """Emit an event with the class `kind` and these fields. Await the result to wait for blocking observers."""
        if (listeners := self.listeners(kind)) is not None:
            return self.pass_on(kind(*args, **fields), listeners)
        return _TOLD

    def tell_now(self, kind: Callable[P, E], /, *args: P.args, **fields: P.kwargs) -> None:
        """Emit an event where waiting is not allowed. A blocking observer handles the event in the background."""
        if (listeners := self.listeners(kind)) is not None:
            self.pass_on_now(kind(*args, **fields), listeners)

    def listeners(self, kind: Any) -> _Listeners | None:
        """Return the listeners of a class of events, in list order; None if there are none."""
        try:
            return self._listeners[kind]
        except KeyError:
            readers = [reader for reader in self._readers if reader.kinds is None or kind in reader.kinds]
            observers = [observer for observer in self._observers if self._wants(observer, kind.name)]
            found = self._listeners[kind] = _Listeners(readers, observers) if readers or observers else None
            return found

    def _wants(self, observer: AgentObserver, name: str) -> bool:
        """Return True if an observer wants the events of this name. After an error in `wants`, the answer is False."""
        try:
            return observer.wants(name)
        except Exception as error:  # noqa: BLE001 - it must not change the run
            self._note_failure(observer, name, error)
            return False

    def listeners_changed(self) -> None:
        """Forget the listeners. The observers are asked anew for the wanted events."""
        self._listeners.clear()

    async def pass_on(self, event: ObservedEvent, listeners: _Listeners) -> None:
        """Pass an event to the listeners, and wait for the blocking observers."""
        for reader in listeners.readers:
            reader.read(event)
        blocking: list[tuple[AgentObserver, Awaitable[Any]]] = []
        own = private(event) if listeners.observers else event
        for observer in listeners.observers:
            if (unfinished := self._call(observer, own)) is None:
                continue
            if observer.blocking and id(observer) not in self._too_slow:
                blocking.append((observer, unfinished))
            else:
                self._queues[id(observer)].add(event.name, unfinished)
        try:
            while blocking:  # after all were called: the async methods end after the sync ones of the same event
                observer, unfinished = blocking.pop(0)
                await self.finish(observer, event.name, unfinished)
        finally:  # it is empty, unless the run was cancelled
            for _, unfinished in blocking:
                _close(unfinished)

    def pass_on_now(self, event: ObservedEvent, listeners: _Listeners) -> None:
        """Pass an event to the listeners, without waiting."""
        for reader in listeners.readers:
            reader.read(event)
        own = private(event) if listeners.observers else event
        for observer in listeners.observers:
            if (unfinished := self._call(observer, own)) is not None:
                self._queues[id(observer)].add(event.name, unfinished)

    def _call(self, observer: AgentObserver, event: ObservedEvent) -> Awaitable[Any] | None:
        """Call an observer. Return its awaitable, or None."""
        try:
            result = observer.on_event(event)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - it must not change the run
            self._note_failure(observer, event.name, error)
            return None
        return result if inspect.isawaitable(result) else None

    async def finish(self, observer: AgentObserver, name: str, unfinished: Awaitable[Any]) -> None:
        """Await an observer's method up to the timeout. Count errors, and log the first error of each event name.

        After the timeout the method is cancelled and left behind, even if the cancellation has no effect.
        """
        task = asyncio.ensure_future(unfinished)
        try:
            done, _ = await asyncio.wait({task}, timeout=observer.timeout_seconds)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not done:
            leave(task)
            self._too_slow.add(id(observer))
            self._note_failure(observer, name, TimeoutError())
        elif task.cancelled():
            self._note_failure(observer, name, asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self._note_failure(observer, name, error)

    def _note_failure(self, observer: AgentObserver, name: str, error: BaseException) -> None:
        who = type(observer).__name__
        self.failed[who] += 1
        if (who, name) not in self._logged:
            self._logged.add((who, name))
            log.warning("observer %s failed at %s: %s (logged once)", who, name, describe_error(error))

    async def drain(self, limit_seconds: float = DRAIN_SECONDS) -> None:
        """Wait until the observers have handled all waiting events, or until the time limit."""
        queues = [queue for queue in self._queues.values() if queue.is_busy]
        if queues:
            await asyncio.gather(*(queue.drain(limit_seconds) for queue in queues))


_Waiting: TypeAlias = asyncio.Queue[tuple[str, Awaitable[Any]]]


class _ObserverQueue:
    """The waiting events of one observer in the background, in order."""

    def __init__(self, observer: AgentObserver, teller: Teller) -> None:
        self._observer, self._teller = observer, teller
        self._of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[_Waiting, asyncio.Task[None]]]
        self._of_loop = WeakKeyDictionary()
        """Event loop -> the waiting events and their worker task. Each thread has a loop of its own."""

    @property
    def is_busy(self) -> bool:
        found = self._of_loop.get(asyncio.get_running_loop())
        return found is not None and not found[1].done()

    def add(self, name: str, unfinished: Awaitable[Any]) -> None:
        """Add an awaitable at the end of the queue. Drop the awaitable if the queue is full."""
        loop = asyncio.get_running_loop()
        found = self._of_loop.get(loop)
        if found is None or found[1].done():
            found = self._of_loop[loop] = self._begin(loop)
        try:
            found[0].put_nowait((name, unfinished))
        except asyncio.QueueFull:
            self._drop(unfinished)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> tuple[_Waiting, asyncio.Task[None]]:
        waiting: _Waiting = asyncio.Queue(MOST_WAITING)
        task = loop.create_task(self._work(waiting))
        # A loop that ends cancels the task, also before its start, so this is no part of it.
        task.add_done_callback(lambda _: self._drop_all(waiting))
        return waiting, task

    def _drop(self, unfinished: Awaitable[Any]) -> None:
        who = type(self._observer).__name__
        self._teller.dropped[who] += 1
        if self._teller.dropped[who] == 1:
            log.warning("observer %s is too slow: events are dropped (logged once)", who)
        _close(unfinished)

    def _drop_all(self, waiting: _Waiting) -> None:
        while not waiting.empty():
            self._drop(waiting.get_nowait()[1])

    async def _work(self, waiting: _Waiting) -> None:
        while True:
            name, unfinished = await waiting.get()
            try:
                await self._teller.finish(self._observer, name, unfinished)
            finally:
                waiting.task_done()

    async def drain(self, limit_seconds: float) -> None:
        """Wait until the queue is empty, or until the time limit. Drop the events left at the limit."""
        found = self._of_loop.get(asyncio.get_running_loop())
        if found is None:
            return
        waiting, task = found
        try:
            async with asyncio.timeout(limit_seconds):
                await waiting.join()
        except TimeoutError:
            self._drop_all(waiting)
        task.cancel()
        await asyncio.wait({task})


def _close(unfinished: Awaitable[Any]) -> None:
    """Close a coroutine without awaiting, to avoid a warning of Python."""
    if isinstance(unfinished, Coroutine):
        unfinished.close()


@dataclass(frozen=True, slots=True)
class RunTeller:
    """Emits the events of one run to the trace of the run, and as `Teller` does."""

    teller: Teller
    run_id: str
    trace: TraceRecorder

    def tell(self, kind: Callable[Concatenate[str, P], R], /, *args: P.args, **fields: P.kwargs) -> Awaitable[None]:
        """Emit an event of this run. Await the result to wait for the blocking observers."""
        listeners, is_read = self.teller.listeners(kind), kind in self.trace.kinds
        if listeners is None and not is_read:
            return _TOLD
        event = kind(self.run_id, *args, **fields)
        if is_read:
            self.trace.read(event)
        return _TOLD if listeners is None else self.teller.pass_on(event, listeners)

    def tell_now(self, kind: Callable[Concatenate[str, P], R], /, *args: P.args, **fields: P.kwargs) -> None:
        """Emit an event of this run where waiting is not allowed."""
        listeners, is_read = self.teller.listeners(kind), kind in self.trace.kinds
        if listeners is None and not is_read:
            return
        event = kind(self.run_id, *args, **fields)
        if is_read:
            self.trace.read(event)
        if listeners is not None:
            self.teller.pass_on_now(event, listeners)


SILENT = Teller()
"""A teller without a listener."""


def begin_run(
    teller: Teller,
    run_id: str | None = None,
    *,
    clock: Callable[[], datetime],
    parent_run_id: str | None = None,
    metadata: Mapping[str, Json] | None = None,
) -> RunTeller:
    """Return the teller of a new run with an empty trace. Without a `run_id`, the run gets a random id."""
    run_id = run_id or new_run_id()
    trace = TraceRecorder(run_id, clock=clock, parent_run_id=parent_run_id, metadata=metadata)
    return RunTeller(teller, run_id, trace)
