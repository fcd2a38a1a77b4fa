"""Jobs of the writer, and jobs waiting for a ready lane."""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

from gateway.store.sqlite.clock import Moment, Woken

T = TypeVar("T")
Operation: TypeAlias = Callable[[sqlite3.Connection, Moment], T]
"""Reads and writes in the given transaction. An operation runs again after a rollback of the group's transaction."""


@dataclass(slots=True, eq=False)
class Job:
    """An operation and the future of the result; see `Writer.submit`."""

    run: Operation[Any]
    future: asyncio.Future[Any]
    settled: Callable[[Any, bool], None] | None
    topic: Hashable | None
    concerned: Callable[[set[Woken]], bool]
    give_up: float
    durable: bool
    alone: bool
    """Runs outside a transaction, after the other jobs."""


class JobResult(NamedTuple):
    """The result of a job."""

    job: Job
    value: Any
    error: Exception | None

    @property
    def found(self) -> bool:
        """True if the job need not wait any longer, because of a value or an error."""
        return self.value is not None or self.error is not None


class Waiters:
    """Jobs without a result so far, in the order of arrival, by topic."""

    def __init__(self, like: Waiters | None = None) -> None:
        """Copy the jobs of `like`, for a transaction with a possible rollback."""
        self._topics: dict[Hashable, list[Job]] = {}
        self.give_up: float = math.inf
        """No job gives up before this moment."""
        if like is not None:
            self._topics = {topic: [*jobs] for topic, jobs in like._topics.items()}
            self.give_up = like.give_up

    def __iter__(self) -> Iterator[Job]:
        for jobs in self._topics.values():
            yield from jobs

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, topic: Hashable) -> bool:
        """Return True if a job of this topic waits, and so would be the first to get a lane."""
        return topic in self._topics

    def add(self, job: Job) -> None:
        self._topics.setdefault(job.topic, []).append(job)
        self.give_up = min(self.give_up, job.give_up)

    def served(self, woken: set[Woken] | None, attempt: Callable[[Job], JobResult]) -> Iterator[JobResult]:
        """Try the jobs concerned with the woken lanes (None: all jobs). Each topic is tried until a job has no
        result."""
        for topic, jobs in [*self._topics.items()]:
            if woken is not None and not jobs[0].concerned(woken):
                continue
            gone = 0
            for job in jobs:
                if not job.future.done():  # otherwise its caller was cancelled
                    answer = attempt(job)
                    if not answer.found:
                        break
                    yield answer
                gone += 1
            self._keep(topic, jobs[gone:])

    def given_up(self, now: float) -> Iterator[JobResult]:
        """End the jobs past their `give_up`, without a value."""
        if now < self.give_up:
            return
        for topic, jobs in [*self._topics.items()]:
            for job in jobs:
                if job.give_up <= now:
                    yield JobResult(job, None, None)
            self._keep(topic, [job for job in jobs if job.give_up > now])
        self.give_up = min((job.give_up for job in self), default=math.inf)

    def _keep(self, topic: Hashable, jobs: list[Job]) -> None:
        if jobs:
            self._topics[topic] = jobs
        else:
            del self._topics[topic]
