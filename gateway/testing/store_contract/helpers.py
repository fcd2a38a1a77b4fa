"""What the tests of a store say often."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import chain, count
from typing import Any

from hypothesis import HealthCheck, Phase, settings

from channels import Json
from gateway.store.base import Store
from gateway.store.transaction import Transaction
from gateway.store.types import Incoming, Kind, Lease, QueuedPart, Waiting

__all__ = ["arrive", "event", "later", "makes_ready", "many_histories", "near", "part", "seqs", "take", "transaction"]

many_histories = settings(
    derandomize=True,
    deadline=None,
    phases=set(Phase) - {Phase.explain},  # it tries a failing history many times more
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,  # histories share a store: each keeps to names of its own
        HealthCheck.differing_executors,  # one test, inherited by the suite of each store
    ],
)
"""For a Hypothesis test of the contract."""


def near(store: Store, name: str, to: str = "c") -> str:
    """A conversation of the same partition as another: `name`, or the first of its kind that is."""
    names = chain([name], (f"{name} {number}" for number in count()))
    return next(found for found in names if store.partition(found) == store.partition(to))


def event(conversation: str = "c", *event_ids: str, **options: Any) -> Incoming:
    """An event; without ids no other is its twin."""
    body: dict[str, Json] = options.pop("body", {})
    return Incoming(conversation=conversation, event_ids=event_ids, body=body, **options)


def part(part_id: str, conversation: str = "c", **body: Json) -> QueuedPart:
    """A part for an outbox."""
    return QueuedPart(part_id=part_id, conversation=conversation, body=body)


def makes_ready(kind: Kind, *lanes: str) -> dict[str, Any]:
    """What a transaction adds so that these lanes are ready, in that order."""
    if kind == "turn":
        return {"accept": [event(lane) for lane in lanes]}
    if kind == "out":
        return {"parts": [part(f"p {lane}", lane) for lane in lanes]}
    return {"actions": [*lanes]}


def transaction(store: Store, *, of: Lease | None = None, conversation: str = "c", **changes: Any) -> Transaction:
    """A transaction, of a lease or in the partition of a conversation."""
    partition = store.partition(conversation) if of is None else of.partition
    return Transaction(partition=partition, lease=of, **changes)


def seqs(events: Iterable[Waiting]) -> list[tuple[str, int]]:
    """Events as a transaction names them."""
    return [(waiting.conversation, waiting.seq) for waiting in events]


async def arrive(store: Store, conversation: str = "c", **options: Any) -> None:
    """One more event waits."""
    assert await store.accept([event(conversation, **options)]) == [True]


async def take(store: Store, kind: Any = "turn", only: str | None = None, **options: Any) -> Lease:
    """A lease that has to be there, at once or within a second."""
    options.setdefault("wait_seconds", 1.0)
    lease = await store.lease("worker", [kind], only=only, **options)
    assert lease is not None
    return lease


async def later(store: Store, seconds: float) -> datetime:
    """A moment on the store's clock."""
    return await store.now() + timedelta(seconds=seconds)
