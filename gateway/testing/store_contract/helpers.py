"""Helpers of the contract's tests."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import chain, count
from typing import Any

from hypothesis import HealthCheck, Phase, settings

from channels import Json
from gateway.store.base import Store
from gateway.store.transaction import Transaction
from gateway.store.types import MAILBOXES, Incoming, Kind, Lease, QueuedPart, Waiting

many_histories = settings(
    derandomize=True,
    deadline=None,
    phases=set(Phase) - {Phase.explain},  # it repeats a failing history many times
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,  # histories share a store, with names of their own
        HealthCheck.differing_executors,  # one test, inherited by the suite of each store
    ],
)
"""The settings of a Hypothesis test of the contract."""


def near(store: Store, name: str, to: str = "c") -> str:
    """Return a conversation in the same partition as `to`: `name`, or the first match of `name 0`, `name 1` ..."""
    names = chain([name], (f"{name} {number}" for number in count()))
    return next(found for found in names if store.partition(found) == store.partition(to))


def event(conversation: str = "c", *event_ids: str, **options: Any) -> Incoming:
    """Return an event. An event without ids has no twin."""
    body: dict[str, Json] = options.pop("body", {})
    return Incoming(conversation=conversation, event_ids=event_ids, body=body, **options)


def part(part_id: str, conversation: str = "c", **body: Json) -> QueuedPart:
    """Return a part for an outbox."""
    return QueuedPart(part_id=part_id, conversation=conversation, body=body)


def makes_ready(kind: Kind, *lanes: str) -> dict[str, Any]:
    """Return the fields of a transaction for making these lanes ready, in this order."""
    if kind in MAILBOXES:
        return {"accept": [event(lane, kind=kind) for lane in lanes]}
    if kind == "out":
        return {"parts": [part(f"p {lane}", lane) for lane in lanes]}
    return {"actions": [*lanes]}


def transaction(store: Store, *, of: Lease | None = None, conversation: str = "c", **changes: Any) -> Transaction:
    """Return a transaction, of a lease or in the partition of a conversation."""
    partition = store.partition(conversation) if of is None else of.partition
    return Transaction(partition=partition, lease=of, **changes)


def seqs(events: Iterable[Waiting]) -> list[tuple[str, int]]:
    """Return events as (conversation, seq)."""
    return [(waiting.conversation, waiting.seq) for waiting in events]


async def arrive(store: Store, conversation: str = "c", **options: Any) -> None:
    """Store an event."""
    assert await store.accept([event(conversation, **options)]) == [True]


async def take(store: Store, kind: Any = "turn", only: str | None = None, **options: Any) -> Lease:
    """Take a lease, available within a second."""
    options.setdefault("wait_seconds", 1.0)
    lease = await store.lease("worker", [kind], only=only, **options)
    assert lease is not None
    return lease


async def later(store: Store, seconds: float) -> datetime:
    """Return the moment on the store's clock at this distance from now."""
    return await store.now() + timedelta(seconds=seconds)
