"""One thread owns the connection and groups all that waits into one transaction.

A commit waits for the disk once for everybody in its group, which is what makes SQLite fast at `synchronous=FULL`.
Nobody is answered before the disk has it, but who asked for nothing that has to last: a lease ends with its process
anyway. Of an operation that is refused nothing stays, and the others of its group are none the wiser.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import ExitStack, suppress
from enum import Enum, auto
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from gateway.store.errors import StoreUnavailable
from gateway.store.sqlite import cleanup, lanes, schema
from gateway.store.sqlite.clock import Clock, Moment, Woken
from gateway.store.sqlite.files import Files
from gateway.store.sqlite.growth import Growth
from gateway.store.sqlite.jobs import Answer, Job, Operation, Waiters

__all__ = ["Writer"]

T = TypeVar("T")

_GROUP = 1000
_LOOK_AGAIN_SECONDS = 0.05
"""However busy the thread is, so often those that wait see what time alone has made ready."""
_NO_HURRY_SECONDS = 0.002
"""So long the thread is not woken for who only goes on waiting beside others."""
_LOOK_UP_SECONDS = 30.0
"""The thread wakes at least this often: for what expired, and in case the machine was suspended."""


class _HalfDone(Exception):
    """A job was refused, and what it wrote before is still there."""


class _Call(Enum):
    LOOK_UP = auto()
    CLOSE = auto()


class Writer:
    """Runs operations on the database at `path` (None: in memory), many in one transaction, in a thread of its own."""

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._asked: list[Job] = []
        """In this round of the loop: all go to the thread together, which is one wake-up and one commit."""
        self._soon = self._later = False
        self._patient: Counter[Hashable] = Counter()
        """How many wait for something, by their topics."""
        self._queue: SimpleQueue[list[Job] | _Call] = SimpleQueue()
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
        """Do what was asked before, refuse what still waits, and close the database."""
        if not self._closed:
            self._closed = True
            self._hand_over()
            self._queue.put(_Call.CLOSE)
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
    ) -> asyncio.Future[T]:
        """Have an operation run. What it raises is the future's; an error of the database becomes StoreUnavailable.

        What is not `durable` is answered before the disk has it: a read, or what means nothing to the next process.

        `settled` is called in the loop with the result, and whether the future was still waiting for it. An operation
        with a `topic` that gives None is tried again for `wait_seconds`: when others have woken what it is `concerned`
        with, and now and then, for what time alone makes ready. When one of a topic finds nothing, the others of that
        topic are not tried. As long as others of its topic wait it is in no hurry, and goes with what is asked next.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        if self._closed:
            future.set_exception(_closed())
        else:
            give_up = time.monotonic() + wait_seconds
            self._asked.append(Job(run, future, settled, topic, concerned, give_up, durable))
            if topic is not None and wait_seconds > 0 and self._waits(topic, future):
                self._hand_over_later()
            elif not self._soon:
                self._soon = True
                self._loop.call_soon(self._hand_over)
        return future

    def _waits(self, topic: Hashable, future: asyncio.Future[Any]) -> bool:
        """Note that somebody waits for this; whether others do already."""

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
        """The clock was moved: see what that made ready."""
        self._hand_over()
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
                files = Files(path)
                db = schema.connect(path)
                resources.callback(files.close, db)
                self._clock.start_after(cleanup.high_water(db))
                lanes.end_all(db)
                files.remember()
            except Exception as error:  # noqa: BLE001 - `start` raises it
                self._tell(_settle, self._started, error)
                return
            self._tell(_settle, self._started, None)
            self._serve(db, files, Growth(path))

    def _serve(self, db: sqlite3.Connection, files: Files, growth: Growth) -> None:
        next_clean = 0.0
        lost: str | None = None
        calls: set[_Call] = set()
        while _Call.CLOSE not in calls:
            jobs, calls = self._collect(db)
            lost = files.lost(now=_Call.CLOSE in calls)
            if lost is not None:
                self._fail(jobs, f"the store cannot be used: {lost}")
                continue
            self._run(db, jobs, look_up=bool(calls) or not jobs)
            at = self._clock.tick()
            if at.real >= next_clean:
                growth.look()
                with suppress(sqlite3.Error):  # cleaning can wait
                    next_clean = at.real + (0.0 if cleanup.clean(db, at) else _LOOK_UP_SECONDS)
        if lost is None:
            with suppress(sqlite3.Error):  # what was written has its own high water
                cleanup.set_high_water(db, self._clock.tick())

    def _collect(self, db: sqlite3.Connection) -> tuple[list[Job], set[_Call]]:
        """What was asked meanwhile; nothing of it when a lane falls due, or a job has waited for long enough."""
        jobs: list[Job] = []
        calls: set[_Call] = set()
        with suppress(Empty):
            asked = self._queue.get(timeout=self._patience(db)) if self._queue.empty() else self._queue.get_nowait()
            while True:
                if isinstance(asked, _Call):
                    calls.add(asked)
                else:
                    jobs += asked
                if len(jobs) >= _GROUP:
                    break
                asked = self._queue.get_nowait()
        return jobs, calls

    def _patience(self, db: sqlite3.Connection) -> float:
        if not self._waiting:
            return _LOOK_UP_SECONDS
        at = self._clock.tick()
        give_up = self._waiting.give_up - at.real
        try:
            ready = lanes.seconds_to_next(db, at, since=self._looked)
        except sqlite3.Error:  # whoever asks next is told
            return 1.0
        if ready is None:
            ready = _LOOK_UP_SECONDS
        elif ready <= 0:  # fell due while the thread had other things to do; what was woken may be among it
            ready = self._looked.real + _LOOK_AGAIN_SECONDS - at.real
        return max(0.0, min(_LOOK_UP_SECONDS, give_up, ready))

    def _run(self, db: sqlite3.Connection, jobs: list[Job], *, look_up: bool, apart: bool = False) -> None:
        """Commit the jobs together; when the database fails on the way, each alone, so that few fail.

        When one of them was refused after it had written something, all begin again with a savepoint each (`apart`):
        that is rare, and savepoints cost as much as a third of the work.
        """
        try:
            self._wait_for_disk(db, any(job.durable for job in jobs))
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self._fail(jobs, _unavailable(error))
            return
        try:
            answers, waiting, looked = self._transact(db, jobs, look_up=look_up, apart=apart)
            db.execute("COMMIT")
        except _HalfDone:
            db.execute("ROLLBACK")
            self._run(db, jobs, look_up=look_up, apart=True)
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

    def _wait_for_disk(self, db: sqlite3.Connection, durably: bool) -> None:
        """The write-ahead log is one: with the next durable commit the disk has all before it too."""
        if durably != self._durably:
            db.execute(f"PRAGMA synchronous = {'FULL' if durably else 'NORMAL'}")
            self._durably = durably

    def _fail(self, jobs: list[Job], why: str) -> None:
        failed, self._waiting = [*jobs, *self._waiting], Waiters()
        self._tell(_deliver, [Answer(job, None, StoreUnavailable(why)) for job in failed])

    def _transact(
        self, db: sqlite3.Connection, jobs: list[Job], *, look_up: bool, apart: bool
    ) -> tuple[list[Answer], Waiters, Moment]:
        """The answers, the jobs that go on waiting, and when they were last looked at for what time has made ready.

        Raises _HalfDone, unless each job is kept apart.
        """
        before = db.total_changes
        answers: list[Answer] = []
        waiting = Waiters(self._waiting)
        woken: set[Woken] = set()
        for job in jobs:
            if job.topic is not None and job.topic in waiting and time.monotonic() < job.give_up:
                waiting.add(job)  # it would find nothing either
                continue
            answer = self._attempt(db, job, woken, apart)
            if job.topic is None or answer.found:
                answers.append(answer)
            else:
                waiting.add(job)
        at, looked = self._clock.tick(), self._looked
        if look_up or at.real >= looked.real + _LOOK_AGAIN_SECONDS:
            look_up, looked = True, at
        answers += waiting.served(None if look_up else woken, lambda job: self._attempt(db, job, woken, apart))
        answers += waiting.given_up(time.monotonic())
        if db.total_changes != before:
            cleanup.set_high_water(db, self._clock.tick())
        return answers, waiting, looked

    def _attempt(self, db: sqlite3.Connection, job: Job, woken: set[Woken], apart: bool) -> Answer:
        at, before = self._clock.tick(), db.total_changes
        if apart:
            db.execute("SAVEPOINT job")
        try:
            answer = Answer(job, job.run(db, at), None)
        except sqlite3.Error:
            raise
        except Exception as error:
            if db.total_changes != before:
                if not apart:
                    raise _HalfDone from error
                db.execute("ROLLBACK TO job")
            answer = Answer(job, None, error)  # its caller gets it, and nobody else
        if apart:
            db.execute("RELEASE job")
        woken |= at.woken
        return answer

    def _tell(self, callback: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop was closed, and nobody waits there
            self._loop.call_soon_threadsafe(callback, *arguments)

    # ───────────── in the loop ─────────────

    def _end(self) -> None:
        self._closed = True
        rest, self._waiting = [*self._waiting], Waiters()
        with suppress(Empty):
            while True:
                asked = self._queue.get_nowait()
                if not isinstance(asked, _Call):
                    rest += asked
        rest += self._asked
        self._asked = []
        _deliver([Answer(job, None, _closed()) for job in rest])
        _settle(self._ended, None)


def _deliver(answers: list[Answer]) -> None:
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
