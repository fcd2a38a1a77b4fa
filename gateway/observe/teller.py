"""The teller: it tells each event once, to the readers of this process and to the observers of authors."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from channels import Json
from gateway.logs import describe_error
from gateway.observe.callbacks import Callbacks
from gateway.observe.events import ObservedEvent, RunEvent
from gateway.observe.observer import AgentObserver
from gateway.observe.recorder import TraceRecorder
from gateway.observe.runs import new_run_id

__all__ = ["MOST_WAITING", "SILENT", "Reader", "RunTeller", "Teller", "begin_run"]

P = ParamSpec("P")
E = TypeVar("E", bound=ObservedEvent)
R = TypeVar("R", bound=RunEvent)

log = logging.getLogger("askfirst.observe")

MOST_WAITING = 1_000
"""The events that may wait for one observer in the background."""
DRAIN_SECONDS = 10.0
"""The time for which a drain waits for the observers."""

Kind: TypeAlias = type[ObservedEvent]


class Reader(Protocol):
    """A reader of the gateway's own. `read` does not block, wait or raise."""

    @property
    def kinds(self) -> Collection[Kind] | None:
        """The classes of the events that it reads; None: all."""
        ...

    def read(self, event: ObservedEvent) -> None: ...


@dataclass(frozen=True, slots=True)
class _Listeners:
    """The readers and observers that want events of one class."""

    readers: Sequence[Reader]
    observers: Sequence[AgentObserver]


class Teller:
    """Tells events to readers and observers. An event that has no listener is not even made."""

    def __init__(self, *, readers: Sequence[Reader] = (), observers: Sequence[AgentObserver] = ()) -> None:
        self._readers, self._observers = readers, observers
        self._listeners: dict[object, _Listeners | None] = {}
        self._queues = {id(observer): _ObserverQueue(observer, self) for observer in observers}
        for observer in observers:
            if isinstance(observer, Callbacks):
                observer.tell_changes_to(self)
        self.dropped: Counter[str] = Counter()
        """Name of an observer's class -> the events that it did not get, because too many were waiting."""
        self.failed: Counter[str] = Counter()
        """Name of an observer's class -> the events at which it raised or took too long."""
        self._logged: set[tuple[str, str]] = set()

    async def tell(self, kind: Callable[P, E], /, *args: P.args, **fields: P.kwargs) -> None:
        """Tell an event, and wait for the blocking observers. `kind` is its class, and the rest its fields."""
        if (listeners := self.listeners(kind)) is not None:
            await self.pass_on(kind(*args, **fields), listeners)

    def tell_now(self, kind: Callable[P, E], /, *args: P.args, **fields: P.kwargs) -> None:
        """Tell an event where nothing may wait. A blocking observer gets it in the background."""
        if (listeners := self.listeners(kind)) is not None:
            self.pass_on_now(kind(*args, **fields), listeners)

    def listeners(self, kind: Any) -> _Listeners | None:
        """Return the listeners of a class of events, in list order; None if there are none."""
        try:
            return self._listeners[kind]
        except KeyError:
            readers = [reader for reader in self._readers if reader.kinds is None or kind in reader.kinds]
            observers = [observer for observer in self._observers if observer.wants(kind.name)]
            found = self._listeners[kind] = _Listeners(readers, observers) if readers or observers else None
            return found

    def listeners_changed(self) -> None:
        """Ask the observers anew which events they want."""
        self._listeners.clear()

    async def pass_on(self, event: ObservedEvent, listeners: _Listeners) -> None:
        """Give an event to its listeners, and wait for the blocking observers."""
        for reader in listeners.readers:
            reader.read(event)
        blocking: list[tuple[AgentObserver, Awaitable[Any]]] = []
        for observer in listeners.observers:
            if (unfinished := self._call(observer, event)) is None:
                continue
            if observer.blocking:
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
        """Give an event to its listeners, and wait for none."""
        for reader in listeners.readers:
            reader.read(event)
        for observer in listeners.observers:
            if (unfinished := self._call(observer, event)) is not None:
                self._queues[id(observer)].add(event.name, unfinished)

    def _call(self, observer: AgentObserver, event: ObservedEvent) -> Awaitable[Any] | None:
        """Call an observer. Return what is left to await, or None."""
        try:
            result = observer.on_event(event)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - it must not change the run
            self._note_failure(observer, event.name, error)
            return None
        return result if inspect.isawaitable(result) else None

    async def finish(self, observer: AgentObserver, name: str, unfinished: Awaitable[Any]) -> None:
        """Await an observer's method within its time. Its error is counted, and logged once for each event's name."""
        try:
            async with asyncio.timeout(observer.timeout_seconds):
                await unfinished
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._note_failure(observer, name, error)  # the observer's own: it awaited a task that was cancelled
        except Exception as error:  # noqa: BLE001 - an observer's error must not change the run
            self._note_failure(observer, name, error)

    def _note_failure(self, observer: AgentObserver, name: str, error: BaseException) -> None:
        who = type(observer).__name__
        self.failed[who] += 1
        if (who, name) not in self._logged:
            self._logged.add((who, name))
            log.warning("observer %s failed at %s: %s (logged once)", who, name, describe_error(error))

    async def drain(self, limit_seconds: float = DRAIN_SECONDS) -> None:
        """Wait until the observers have handled the events that wait for them, or this time is over."""
        queues = [queue for queue in self._queues.values() if queue.is_busy]
        if queues:
            await asyncio.gather(*(queue.drain(limit_seconds) for queue in queues))


class _ObserverQueue:
    """The events that wait for one observer in the background, in order."""

    def __init__(self, observer: AgentObserver, teller: Teller) -> None:
        self._observer, self._teller = observer, teller
        self._waiting: asyncio.Queue[tuple[str, Awaitable[Any]]] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        return self._task is not None and not self._task.done()

    def add(self, name: str, unfinished: Awaitable[Any]) -> None:
        """Have this awaited after what waits already. It is dropped when too many wait."""
        loop = asyncio.get_running_loop()
        if self._waiting is None or self._task is None or self._task.get_loop() is not loop or self._task.done():
            waiting: asyncio.Queue[tuple[str, Awaitable[Any]]] = asyncio.Queue(MOST_WAITING)
            self._waiting = waiting
            self._task = loop.create_task(self._work(waiting))
            # A loop that ends cancels the task, also before its start, so this is no part of it.
            self._task.add_done_callback(lambda _: self._drop_all(waiting))
        try:
            self._waiting.put_nowait((name, unfinished))
        except asyncio.QueueFull:
            self._drop(unfinished)

    def _drop(self, unfinished: Awaitable[Any]) -> None:
        who = type(self._observer).__name__
        self._teller.dropped[who] += 1
        if self._teller.dropped[who] == 1:
            log.warning("observer %s is too slow: events are dropped (logged once)", who)
        _close(unfinished)

    def _drop_all(self, waiting: asyncio.Queue[tuple[str, Awaitable[Any]]]) -> None:
        while not waiting.empty():
            self._drop(waiting.get_nowait()[1])

    async def _work(self, waiting: asyncio.Queue[tuple[str, Awaitable[Any]]]) -> None:
        while True:
            name, unfinished = await waiting.get()
            try:
                await self._teller.finish(self._observer, name, unfinished)
            finally:
                waiting.task_done()

    async def drain(self, limit_seconds: float) -> None:
        """Wait until no event waits, or this time is over. What waits then is dropped."""
        waiting, task = self._waiting, self._task
        if waiting is None or task is None or task.get_loop() is not asyncio.get_running_loop():
            return
        try:
            async with asyncio.timeout(limit_seconds):
                await waiting.join()
        except TimeoutError:
            self._drop_all(waiting)
        task.cancel()
        await asyncio.wait({task})


def _close(unfinished: Awaitable[Any]) -> None:
    """Close a coroutine that is never awaited, so that Python does not warn."""
    if isinstance(unfinished, Coroutine):
        unfinished.close()


@dataclass(frozen=True, slots=True)
class RunTeller:
    """Tells the events of one run: to its trace, and as `Teller` does."""

    teller: Teller
    run_id: str
    trace: TraceRecorder

    async def tell(self, kind: Callable[Concatenate[str, P], R], /, *args: P.args, **fields: P.kwargs) -> None:
        """Tell an event of this run, and wait for the blocking observers."""
        listeners, is_read = self.teller.listeners(kind), kind in self.trace.kinds
        if listeners is None and not is_read:
            return
        event = kind(self.run_id, *args, **fields)
        if is_read:
            self.trace.read(event)
        if listeners is not None:
            await self.teller.pass_on(event, listeners)

    def tell_now(self, kind: Callable[Concatenate[str, P], R], /, *args: P.args, **fields: P.kwargs) -> None:
        """Tell an event of this run where nothing may wait."""
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
    """Return the teller of a new run with an empty trace. None: the run gets a random id."""
    run_id = run_id or new_run_id()
    trace = TraceRecorder(run_id, clock=clock, parent_run_id=parent_run_id, metadata=metadata)
    return RunTeller(teller, run_id, trace)
