"""One thread owns the connection and groups all that waits into one transaction.

A commit waits for the disk once for everybody in its group, which is what makes SQLite fast at `synchronous=FULL`.
Nobody is answered before the disk has it. Within the group each operation has a savepoint of its own.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from gateway.store.base import StoreUnavailable
from gateway.store.sqlite import lanes, schema, upkeep
from gateway.store.sqlite.clock import Clock, Moment

__all__ = ["Operation", "Writer"]

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection, Moment], T]
"""Reads and writes within the transaction it is given; runs again when its group had to be rolled back."""

_GROUP = 1000
_LOOK_UP_SECONDS = 30.0
"""The thread wakes at least this often: for what expired, and in case the machine was suspended."""


@dataclass(slots=True, eq=False)
class _Job:
    run: Operation[Any]
    future: asyncio.Future[Any]
    settled: Callable[[Any, bool], None] | None
    topic: Hashable | None
    give_up: float


class _Answer(NamedTuple):
    job: _Job
    value: Any
    error: Exception | None


class _Call(Enum):
    LOOK_UP = auto()
    CLOSE = auto()


class Writer:
    """Runs operations on the database at `path` (None: in memory), many in one transaction, in a thread of its own."""

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Job | _Call] = SimpleQueue()
        self._waiting: list[_Job] = []
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
        """Do what was asked before, refuse what still waits, and close the database."""
        if not self._closed:
            self._closed = True
            self._queue.put(_Call.CLOSE)
        await asyncio.shield(self._ended)

    def submit(
        self,
        run: Operation[T],
        *,
        settled: Callable[[T, bool], None] | None = None,
        topic: Hashable | None = None,
        wait_seconds: float = 0.0,
    ) -> asyncio.Future[T]:
        """Have an operation run. What it raises is the future's; an error of the database becomes StoreUnavailable.

        `settled` is called in the loop with the result, and whether the future was still waiting for it. An operation
        with a `topic` that gives None is tried again when something changed, for `wait_seconds`; when one of a topic
        finds nothing, the others of that topic are not tried.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        if self._closed:
            future.set_exception(_closed())
        else:
            self._queue.put(_Job(run, future, settled, topic, time.monotonic() + wait_seconds))
        return future

    def look_up(self) -> None:
        """The clock was moved: see what that made ready."""
        self._queue.put(_Call.LOOK_UP)

    # ───────────── in the thread ─────────────

    def _live(self) -> None:
        with ExitStack() as resources:
            resources.callback(self._tell, self._end)
            try:
                # Another name of the same file is no other file: the lock is beside the real one.
                path = None if self._path is None else self._path.resolve()
                if path is not None:
                    resources.callback(schema.lock(path).release)
                db = resources.enter_context(closing(schema.connect(path)))
                self._clock.start_after(upkeep.high_water(db))
                lanes.end_all(db)
            except Exception as error:  # noqa: BLE001 - `start` raises it
                self._tell(_settle, self._started, error)
                return
            self._tell(_settle, self._started, None)
            self._serve(db)

    def _serve(self, db: sqlite3.Connection) -> None:
        patience = _LOOK_UP_SECONDS
        next_clean = 0.0
        calls: list[_Job | _Call] = []
        while _Call.CLOSE not in calls:
            calls = self._collect(patience)
            jobs = [call for call in calls if isinstance(call, _Job)]
            self._run(db, jobs, look_up=len(jobs) < len(calls) or not calls)
            at = self._clock.tick()
            try:
                if at.real >= next_clean:
                    next_clean = at.real + (0.0 if upkeep.clean(db, at) else _LOOK_UP_SECONDS)
                patience = self._patience(db, at)
            except sqlite3.Error:  # whoever asks next is told; cleaning can wait
                patience = 1.0
        with suppress(sqlite3.Error):  # what was written has its own high water
            upkeep.set_high_water(db, self._clock.tick())

    def _collect(self, patience: float) -> list[_Job | _Call]:
        calls: list[_Job | _Call] = []
        with suppress(Empty):
            calls.append(self._queue.get(timeout=patience))
            while len(calls) < _GROUP:
                calls.append(self._queue.get_nowait())
        return calls

    def _patience(self, db: sqlite3.Connection, at: Moment) -> float:
        if not self._waiting:
            return _LOOK_UP_SECONDS
        give_up = min(job.give_up for job in self._waiting) - at.real
        ready = lanes.seconds_to_next(db, at)
        return max(0.0, min(_LOOK_UP_SECONDS, give_up, _LOOK_UP_SECONDS if ready is None else ready))

    def _run(self, db: sqlite3.Connection, jobs: list[_Job], *, look_up: bool) -> None:
        """Commit the jobs together; when the database fails on the way, each alone, so that few fail."""
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self._fail(jobs, error)
            return
        try:
            answers, waiting = self._transact(db, jobs, look_up=look_up)
            db.execute("COMMIT")
        except sqlite3.Error as error:
            if db.in_transaction:  # some errors have rolled it back already
                db.execute("ROLLBACK")
            if len(jobs) > 1:
                for job in jobs:
                    self._run(db, [job], look_up=False)
            else:
                self._fail(jobs, error)
            return
        self._waiting = waiting
        if answers:
            self._tell(_deliver, answers)

    def _fail(self, jobs: list[_Job], error: sqlite3.Error) -> None:
        failed, self._waiting = [*jobs, *self._waiting], []
        self._tell(_deliver, [_Answer(job, None, _unavailable(error)) for job in failed])

    def _transact(self, db: sqlite3.Connection, jobs: list[_Job], *, look_up: bool) -> tuple[list[_Answer], list[_Job]]:
        """The answers, and the jobs that go on waiting."""
        before = db.total_changes
        answers: list[_Answer] = []
        waiting = [*self._waiting]
        for job in jobs:
            answer = self._attempt(db, job)
            if job.topic is not None and answer.value is None and answer.error is None:
                waiting.append(job)
            else:
                answers.append(answer)
        fruitless: set[Hashable] = set()
        still_waiting: list[_Job] = []
        for job in waiting:
            if job.future.done():  # its caller was cancelled
                continue
            answer = _Answer(job, None, None)
            if (look_up or db.total_changes != before) and job.topic not in fruitless:
                answer = self._attempt(db, job)
            if answer.value is None and answer.error is None:
                fruitless.add(job.topic)
                if time.monotonic() < job.give_up:
                    still_waiting.append(job)
                    continue
            answers.append(answer)
        if db.total_changes != before:
            upkeep.set_high_water(db, self._clock.tick())
        return answers, still_waiting

    def _attempt(self, db: sqlite3.Connection, job: _Job) -> _Answer:
        at = self._clock.tick()
        db.execute("SAVEPOINT job")
        try:
            answer = _Answer(job, job.run(db, at), None)
        except sqlite3.Error:
            raise
        except Exception as error:  # noqa: BLE001 - its caller gets it, and nobody else
            db.execute("ROLLBACK TO job")
            answer = _Answer(job, None, error)
        db.execute("RELEASE job")
        return answer

    def _tell(self, callback: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop was closed, and nobody waits there
            self._loop.call_soon_threadsafe(callback, *arguments)

    # ───────────── in the loop ─────────────

    def _end(self) -> None:
        self._closed = True
        rest, self._waiting = self._waiting, []
        with suppress(Empty):
            while True:
                call = self._queue.get_nowait()
                if isinstance(call, _Job):
                    rest.append(call)
        _deliver([_Answer(job, None, _closed()) for job in rest])
        _settle(self._ended, None)


def _deliver(answers: list[_Answer]) -> None:
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


def _unavailable(error: sqlite3.Error) -> StoreUnavailable:
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    hint = {"SQLITE_FULL": "; the disk is full: make room", "SQLITE_BUSY": "; another program holds the file"}
    return StoreUnavailable(f"the store cannot be used now ({name}){hint.get(name, '')}")
