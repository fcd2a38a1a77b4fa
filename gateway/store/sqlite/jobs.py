"""What the writer is asked to do, and those who wait for a lane to become ready."""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

from gateway.store.sqlite.clock import Moment, Woken

__all__ = ["Answer", "Job", "Operation", "Waiters"]

T = TypeVar("T")
Operation: TypeAlias = Callable[[sqlite3.Connection, Moment], T]
"""Reads and writes within the transaction it is given; runs again when its group had to be rolled back."""


@dataclass(slots=True, eq=False)
class Job:
    """An operation and whoever waits for it; see `Writer.submit`."""

    run: Operation[Any]
    future: asyncio.Future[Any]
    settled: Callable[[Any, bool], None] | None
    topic: Hashable | None
    concerned: Callable[[set[Woken]], bool]
    give_up: float
    durable: bool


class Answer(NamedTuple):
    """What a job came to."""

    job: Job
    value: Any
    error: Exception | None

    @property
    def found(self) -> bool:
        """Whether there is nothing more to wait for."""
        return self.value is not None or self.error is not None


class Waiters:
    """Jobs that found nothing so far, each behind those of its topic that came before."""

    def __init__(self, like: Waiters | None = None) -> None:
        """The same as those: for a transaction that may come to nothing."""
        self._topics: dict[Hashable, list[Job]] = {}
        self.give_up: float = math.inf
        """Nobody gives up before this moment."""
        if like is not None:
            self._topics = {topic: [*jobs] for topic, jobs in like._topics.items()}
            self.give_up = like.give_up

    def __iter__(self) -> Iterator[Job]:
        for jobs in self._topics.values():
            yield from jobs

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, topic: Hashable) -> bool:
        """Whether somebody waits for this, and so would have what there is."""
        return topic in self._topics

    def add(self, job: Job) -> None:
        self._topics.setdefault(job.topic, []).append(job)
        self.give_up = min(self.give_up, job.give_up)

    def served(self, woken: set[Woken] | None, attempt: Callable[[Job], Answer]) -> Iterator[Answer]:
        """Try those who are concerned with what was woken (None: all), of each topic until one finds nothing."""
        for topic, jobs in [*self._topics.items()]:
            if woken is not None and not jobs[0].concerned(woken):
                continue
            gone = 0
            for job in jobs:
                if not job.future.done():  # else its caller was cancelled
                    answer = attempt(job)
                    if not answer.found:
                        break
                    yield answer
                gone += 1
            self._keep(topic, jobs[gone:])

    def given_up(self, now: float) -> Iterator[Answer]:
        """Those who have waited for long enough."""
        if now < self.give_up:
            return
        for topic, jobs in [*self._topics.items()]:
            for job in jobs:
                if job.give_up <= now:
                    yield Answer(job, None, None)
            self._keep(topic, [job for job in jobs if job.give_up > now])
        self.give_up = min((job.give_up for job in self), default=math.inf)

    def _keep(self, topic: Hashable, jobs: list[Job]) -> None:
        if jobs:
            self._topics[topic] = jobs
        else:
            del self._topics[topic]
