"""The writer: a thread owns the connection, and runs all waiting operations in a single transaction.

A commit waits for the disk once for the whole group, so SQLite is fast at `synchronous=FULL`. A durable operation is
answered only after this wait. Other operations do not wait for the disk, like a lease, ending with the process anyway.
The changes of a failed operation are rolled back, and the other operations of the group are not affected.

Events are stored in batches: events arriving during an operation are stored together in the next operation. A process
stores far more events this way than with an operation for each.
"""

from __future__ import annotations

import asyncio
import math
import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from gateway.store.errors import Overloaded, StoreUnavailable
from gateway.store.sqlite import cleanup, lanes, leases, mailbox, schema
from gateway.store.sqlite.clock import Clock, Moment, Woken
from gateway.store.sqlite.files import Files, Growth
from gateway.store.sqlite.jobs import Job, JobResult, Operation, Waiters
from gateway.store.types import Incoming


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteTimings:
    """The times of a SQLite store, in seconds."""

    gather_seconds: float = 0.003
    """After an operation with several batches of events, the next batches wait this long for more: a shared transaction
    takes a fraction of the time of several. An event arriving alone does not wait."""
    look_again_seconds: float = 0.05
    """A busy thread looks at least this often for lanes made ready by time alone."""
    look_up_seconds: float = 30.0
    """The thread wakes at least this often, to remove expired rows, and in case the machine was suspended."""
    files_seconds: float = 1.0
    """The thread checks at most this often for missing or replaced files."""


T = TypeVar("T")

_GROUP = 1000
_NO_HURRY_SECONDS = 0.002
"""How long the thread is not woken for a job joining others with the same topic."""


class _HalfDone(Exception):
    """A job raised after writing rows, and the rows are still there."""


class WriterCommand(Enum):
    """A command to the thread."""

    LOOK_UP = auto()
    CLOSE = auto()


class Writer:
    """Runs operations on the database at `path` (None: in memory), many in a transaction, in a separate thread."""

    def __init__(self, path: Path | None, clock: Clock, timings: SqliteTimings | None = None) -> None:
        self._path = path
        self._timings = timings or SqliteTimings()
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._asked: list[Job] = []
        """The jobs of this round of the loop, handed to the thread together for a single wake-up and commit."""
        self._soon = self._later = False
        self._patient: Counter[Hashable] = Counter()
        """Topic -> number of waiting jobs."""
        self._queue: SimpleQueue[list[Job] | WriterCommand] = SimpleQueue()
        self._waiting = Waiters()
        self._looked = clock.tick()
        self._durably = True
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._closed = False

    async def start(self) -> None:
        """Open the database. Raises StoreRefused."""
        threading.Thread(target=self._live, name="askfirst-store", daemon=True).start()
        try:
            await asyncio.shield(self._started)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Run the jobs submitted before, end the waiting jobs, and close the database."""
        if not self._closed:
            self._closed = True
            self._hand_over()
            self._queue.put(WriterCommand.CLOSE)
        await asyncio.shield(self._ended)

    def submit(
        self,
        run: Operation[T],
        *,
        settled: Callable[[T, bool], None] | None = None,
        topic: Hashable | None = None,
        concerned: Callable[[set[Woken]], bool] = bool,
        wait_seconds: float = 0.0,
        durable: bool = True,
        alone: bool = False,
    ) -> asyncio.Future[T]:
        """Run an operation in the thread. The future has the result or the error.

        An error of the database becomes StoreUnavailable. Without `durable`, the answer comes before the disk: for a
        read, or for a write of no use to the next process. With `alone`, the operation runs outside a transaction.

        `settled` is called in the loop with the result, and True if the future was still waiting. With a `topic`, a
        result of None is tried again for `wait_seconds`: after a wake-up of lanes accepted by `concerned`, and
        regularly, for lanes made ready by time alone. After a None, the other operations of the topic are not tried. An
        operation joining others of the same topic does not wake the thread, and is handed over with the next job, or
        after `_NO_HURRY_SECONDS`.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        if self._closed:
            future.set_exception(_closed())
        else:
            give_up = time.monotonic() + wait_seconds
            self._asked.append(Job(run, future, settled, topic, concerned, give_up, durable, alone))
            if topic is not None and wait_seconds > 0 and self._waits(topic, future):
                self._hand_over_later()
            elif not self._soon:
                self._soon = True
                self._loop.call_soon(self._hand_over)
        return future

    def _waits(self, topic: Hashable, future: asyncio.Future[Any]) -> bool:
        """Count a waiting job of the topic. Return True if others of the topic wait already."""

        def ended(_: object) -> None:
            self._patient[topic] -= 1
            if not self._patient[topic]:
                del self._patient[topic]

        self._patient[topic] += 1
        future.add_done_callback(ended)
        return self._patient[topic] > 1

    def _hand_over_later(self) -> None:
        if not self._later:
            self._later = True
            self._loop.call_later(_NO_HURRY_SECONDS, self._hand_over_at_last)

    def _hand_over_at_last(self) -> None:
        self._later = False
        self._hand_over()

    def _hand_over(self) -> None:
        self._soon = False
        if self._asked:
            self._queue.put(self._asked)
            self._asked = []

    def look_up(self) -> None:
        """Look for ready lanes after a move of the clock."""
        self._hand_over()
        self._queue.put(WriterCommand.LOOK_UP)

    # ───────────── in the thread ─────────────

    def _live(self) -> None:
        with ExitStack() as resources:
            resources.callback(self._tell, self._end)
            try:
                # A symbolic link names the same file: the lock is beside the real one.
                path = None if self._path is None else self._path.resolve()
                if path is not None:
                    resources.callback(schema.lock(path).release)
                files = Files(path, look_seconds=self._timings.files_seconds)
                db = schema.connect(path)
                resources.callback(files.close, db)
                self._clock.start_after(cleanup.high_water(db))
                leases.end_all(db)
                files.remember()
            except Exception as error:  # noqa: BLE001 - `start` raises it
                self._tell(_settle, self._started, error)
                return
            self._tell(_settle, self._started, None)
            self._serve(db, files, Growth(path))

    def _serve(self, db: sqlite3.Connection, files: Files, growth: Growth) -> None:
        next_clean = 0.0
        lost: str | None = None
        calls: set[WriterCommand] = set()
        while WriterCommand.CLOSE not in calls:
            jobs, calls = self._collect(db)
            lost = files.lost(now=WriterCommand.CLOSE in calls)
            if lost is not None:
                self._fail(jobs, f"the store cannot be used: {lost}")
                continue
            self._run(db, [job for job in jobs if not job.alone], look_up=bool(calls) or not jobs)
            self._run_alone(db, [job for job in jobs if job.alone])
            at = self._clock.tick()
            if at.real >= next_clean:
                growth.look()
                with suppress(sqlite3.Error, StoreUnavailable):  # it is retried later
                    schema.check_form(db)
                    next_clean = at.real + (0.0 if cleanup.clean(db, at) else self._timings.look_up_seconds)
        if lost is None:
            with suppress(sqlite3.Error, StoreUnavailable):  # the last write has stored a moment already
                schema.check_form(db)
                cleanup.set_high_water(db, self._clock.tick())

    def _collect(self, db: sqlite3.Connection) -> tuple[list[Job], set[WriterCommand]]:
        """Wait for jobs and commands, and return both. Both are empty when a lane became ready or a job gives up."""
        jobs: list[Job] = []
        calls: set[WriterCommand] = set()
        with suppress(Empty):
            asked = self._queue.get(timeout=self._patience(db)) if self._queue.empty() else self._queue.get_nowait()
            while True:
                if isinstance(asked, WriterCommand):
                    calls.add(asked)
                else:
                    jobs += asked
                if len(jobs) >= _GROUP:
                    break
                asked = self._queue.get_nowait()
        return jobs, calls

    def _patience(self, db: sqlite3.Connection) -> float:
        if not self._waiting:
            return self._timings.look_up_seconds
        at = self._clock.tick()
        give_up = self._waiting.give_up - time.monotonic()
        try:
            ready = lanes.seconds_to_next(db, at, since=self._looked)
        except sqlite3.Error:  # the next job reports it
            return 1.0
        if ready is None:
            ready = self._timings.look_up_seconds
        elif ready <= 0:  # became ready while the thread was busy, and may be leased already
            ready = self._looked.real + self._timings.look_again_seconds - at.real
        return max(0.0, min(self._timings.look_up_seconds, give_up, ready))

    def _run(self, db: sqlite3.Connection, jobs: list[Job], *, look_up: bool, apart: bool = False) -> None:
        """Commit the jobs together. If the database fails, commit each alone, so few fail.

        If a job raised after writing rows, all run again with a savepoint each (`apart`). This is rare, and savepoints
        cost a third of the time of the work.
        """
        try:
            self._wait_for_disk(db, any(job.durable for job in jobs))
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self._fail(jobs, _unavailable(error))
            return
        try:
            schema.check_form(db)
            answers, waiting, looked = self._transact(db, jobs, look_up=look_up, apart=apart)
            db.execute("COMMIT")
        except _HalfDone:
            db.execute("ROLLBACK")
            self._run(db, jobs, look_up=look_up, apart=True)
            return
        except StoreUnavailable as error:
            db.execute("ROLLBACK")
            self._fail(jobs, str(error))
            return
        except sqlite3.Error as error:
            if db.in_transaction:  # some errors have rolled it back already
                db.execute("ROLLBACK")
            if len(jobs) > 1:
                for job in jobs:
                    self._run(db, [job], look_up=False)
            else:
                self._fail(jobs, _unavailable(error))
            return
        self._waiting, self._looked = waiting, looked
        if answers:
            self._tell(_deliver, answers)

    def _run_alone(self, db: sqlite3.Connection, jobs: list[Job]) -> None:
        for job in jobs:
            try:
                schema.check_form(db)
                self._tell(_deliver, [JobResult(job, job.run(db, self._clock.tick()), None)])
            except StoreUnavailable as error:
                self._tell(_deliver, [JobResult(job, None, error)])
            except sqlite3.Error as error:
                self._tell(_deliver, [JobResult(job, None, StoreUnavailable(_unavailable(error)))])

    def _wait_for_disk(self, db: sqlite3.Connection, durably: bool) -> None:
        """Set if commits wait for the disk. A durable commit writes all earlier commits to the disk, too."""
        if durably != self._durably:
            db.execute(f"PRAGMA synchronous = {'FULL' if durably else 'NORMAL'}")
            self._durably = durably

    def _fail(self, jobs: list[Job], why: str) -> None:
        failed, self._waiting = [*jobs, *self._waiting], Waiters()
        self._tell(_deliver, [JobResult(job, None, StoreUnavailable(why)) for job in failed])

    def _transact(
        self, db: sqlite3.Connection, jobs: list[Job], *, look_up: bool, apart: bool
    ) -> tuple[list[JobResult], Waiters, Moment]:
        """Run the jobs. Return the results, the waiting jobs, and the last moment with a try of all waiting jobs.

        Raises _HalfDone, unless the jobs are `apart`.
        """
        before = db.total_changes
        answers: list[JobResult] = []
        waiting = Waiters(self._waiting)
        woken: set[Woken] = set()
        for job in jobs:
            if job.topic is not None and job.topic in waiting and time.monotonic() < job.give_up:
                waiting.add(job)  # it would return None, too
                continue
            answer = self._attempt(db, job, woken, apart)
            if job.topic is None or answer.found:
                answers.append(answer)
            else:
                waiting.add(job)
        at, looked = self._clock.tick(), self._looked
        if look_up or at.real >= looked.real + self._timings.look_again_seconds:
            look_up, looked = True, at
        answers += waiting.served(None if look_up else woken, lambda job: self._attempt(db, job, woken, apart))
        answers += waiting.given_up(time.monotonic())
        if db.total_changes != before:
            cleanup.set_high_water(db, self._clock.tick())
        return answers, waiting, looked

    def _attempt(self, db: sqlite3.Connection, job: Job, woken: set[Woken], apart: bool) -> JobResult:
        at, before = self._clock.tick(), db.total_changes
        if apart:
            db.execute("SAVEPOINT job")
        try:
            answer = JobResult(job, job.run(db, at), None)
        except sqlite3.Error:
            raise
        except Exception as error:
            if db.total_changes != before:
                if not apart:
                    raise _HalfDone from error
                db.execute("ROLLBACK TO job")
            answer = JobResult(job, None, error)  # only its caller gets it
        if apart:
            db.execute("RELEASE job")
        woken |= at.woken
        return answer

    def _tell(self, callback: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(callback, *arguments)

    # ───────────── in the loop ─────────────

    def _end(self) -> None:
        self._closed = True
        rest, self._waiting = [*self._waiting], Waiters()
        with suppress(Empty):
            while True:
                asked = self._queue.get_nowait()
                if not isinstance(asked, WriterCommand):
                    rest += asked
        rest += self._asked
        self._asked = []
        _deliver([JobResult(job, None, _closed()) for job in rest])
        _settle(self._ended, None)


def _deliver(answers: list[JobResult]) -> None:
    for job, value, error in answers:
        waited = not job.future.done()
        if waited and error is not None:
            job.future.set_exception(error)
        elif waited:
            job.future.set_result(value)
        if job.settled is not None and error is None:
            job.settled(value, waited)


def _settle(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def _closed() -> StoreUnavailable:
    return StoreUnavailable("the store is closed")


def _unavailable(error: sqlite3.Error) -> str:
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    what = schema.mend(name)
    return f"the store cannot be used now ({name})" + (f"; {what}" if what else "")


_MOST = 200
"""The most batches in an operation, to keep operations short."""

_Put = tuple[list[mailbox.Arrival], "asyncio.Future[list[bool]]"]


class SqliteBatcher:
    """Stores events in batches. A new message is refused while `max_waiting` events wait, or a tenth of this number in
    the conversation."""

    def __init__(self, writer: Writer, max_waiting: int, gather_seconds: float) -> None:
        self._writer = writer
        self._gather_seconds = gather_seconds
        self._max_waiting = max_waiting
        self._waiting: deque[_Put] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self._not_before = -math.inf

    def accept(self, events: Sequence[Incoming]) -> asyncio.Future[list[bool]]:
        """Store events. Return for each True if new.

        Raises ValueError for an event without a storable form. The future raises Overloaded.
        """
        arrivals = [mailbox.arrival(event) for event in events]
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[bool]] = loop.create_future()
        self._waiting.append((arrivals, answer))
        if self._idle.is_set():
            self._idle.clear()
            # Together with the events of the same moment, or of the next milliseconds.
            loop.call_later(max(0.0, self._not_before - loop.time()), self._store)
        return answer

    async def drain(self) -> None:
        """Wait until all events were answered."""
        await self._idle.wait()

    def _store(self) -> None:
        group = [self._waiting.popleft() for _ in range(min(_MOST, len(self._waiting)))]
        batches = [arrivals for arrivals, _ in group]
        stored = self._writer.submit(lambda db, at: mailbox.accept(db, at, batches, self._max_waiting))
        stored.add_done_callback(lambda stored: self._stored(group, stored))

    def _stored(self, group: list[_Put], stored: asyncio.Future[list[list[bool] | Overloaded]]) -> None:
        loop = asyncio.get_running_loop()
        if len(group) > 1:
            self._not_before = loop.time() + self._gather_seconds
        if len(self._waiting) >= _MOST:
            self._store()
        elif self._waiting:
            loop.call_at(self._not_before, self._store)
        else:
            self._idle.set()
        error = stored.exception()
        verdicts: Sequence[list[bool] | Overloaded | BaseException] = (
            stored.result() if error is None else [error] * len(group)
        )
        for (_, answer), verdict in zip(group, verdicts, strict=True):
            if answer.done():  # its caller was cancelled
                continue
            if isinstance(verdict, list):
                answer.set_result(verdict)
            else:
                answer.set_exception(verdict)
