"""The teller: it tells each event once, to the readers of this process and to the observers of authors."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from channels import Json
from gateway.logs import describe_error
from gateway.observe.callbacks import Callbacks
from gateway.observe.events import ObservedEvent, RunEvent
from gateway.observe.observer import AgentObserver
from gateway.observe.private import private
from gateway.observe.recorder import TraceRecorder
from gateway.observe.runs import new_run_id
from gateway.timing.left_tasks import leave

__all__ = ["MOST_WAITING", "SILENT", "Reader", "RunTeller", "Teller", "begin_run"]


class _Told:
    """The awaitable of an event that no observer holds. It costs less than a coroutine, and most events have none."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


_TOLD: Final = _Told()

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
        self._too_slow: set[int] = set()
        """The ids of the blocking observers that took too long once. No run waits for them again."""

    def tell(self, kind: Callable[P, E], /, *args: P.args, **fields: P.kwargs) -> Awaitable[None]:
        """Tell an event. `kind` is its class, and the rest its fields. Await the result: the blocking observers."""
        if (listeners := self.listeners(kind)) is not None:
            return self.pass_on(kind(*args, **fields), listeners)
        return _TOLD

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
            observers = [observer for observer in self._observers if self._wants(observer, kind.name)]
            found = self._listeners[kind] = _Listeners(readers, observers) if readers or observers else None
            return found

    def _wants(self, observer: AgentObserver, name: str) -> bool:
        """Ask an observer whether it wants the events of this name. One that raises gets none of them."""
        try:
            return observer.wants(name)
        except Exception as error:  # noqa: BLE001 - it must not change the run
            self._note_failure(observer, name, error)
            return False

    def listeners_changed(self) -> None:
        """Ask the observers anew which events they want."""
        self._listeners.clear()

    async def pass_on(self, event: ObservedEvent, listeners: _Listeners) -> None:
        """Give an event to its listeners, and wait for the blocking observers."""
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
        """Give an event to its listeners, and wait for none."""
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
        """Await an observer's method within its time. Its error is counted, and logged once for each event's name.

        A method that takes longer is cancelled and left, even if it does not end then.
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
        """Wait until the observers have handled the events that wait for them, or this time is over."""
        queues = [queue for queue in self._queues.values() if queue.is_busy]
        if queues:
            await asyncio.gather(*(queue.drain(limit_seconds) for queue in queues))


_Waiting: TypeAlias = asyncio.Queue[tuple[str, Awaitable[Any]]]


class _ObserverQueue:
    """The events that wait for one observer in the background, in order."""

    def __init__(self, observer: AgentObserver, teller: Teller) -> None:
        self._observer, self._teller = observer, teller
        self._of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[_Waiting, asyncio.Task[None]]]
        self._of_loop = WeakKeyDictionary()
        """Event loop -> its waiting events, and the task that hands them over: threads have loops of their own."""

    @property
    def is_busy(self) -> bool:
        found = self._of_loop.get(asyncio.get_running_loop())
        return found is not None and not found[1].done()

    def add(self, name: str, unfinished: Awaitable[Any]) -> None:
        """Add an awaitable behind the waiting ones. It is dropped when too many wait."""
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
        """Wait until no event waits, or this time is over. What waits then is dropped."""
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
    """Close a coroutine that is never awaited, so that Python does not warn."""
    if isinstance(unfinished, Coroutine):
        unfinished.close()


@dataclass(frozen=True, slots=True)
class RunTeller:
    """Tells the events of one run: to its trace, and as `Teller` does."""

    teller: Teller
    run_id: str
    trace: TraceRecorder

    def tell(self, kind: Callable[Concatenate[str, P], R], /, *args: P.args, **fields: P.kwargs) -> Awaitable[None]:
        """Tell an event of this run. Await the result: the blocking observers."""
        listeners, is_read = self.teller.listeners(kind), kind in self.trace.kinds
        if listeners is None and not is_read:
            return _TOLD
        event = kind(self.run_id, *args, **fields)
        if is_read:
            self.trace.read(event)
        return _TOLD if listeners is None else self.teller.pass_on(event, listeners)

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
