"""A bare worker, run as a separate process and killed from outside.

The pipe carries the acknowledgements of the store alone. `accept` takes in events by number; `work` leases, does a
step, commits, and writes each processed event into a log; `serve` does both; `share` does so beside others, and takes
over the lanes of dead workers; `hold` leases all lanes and keeps the leases; `hand` hands events over to conversations
of other partitions.
"""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from typing import Protocol

from channels import Json
from gateway.store.base import Store
from gateway.store.errors import Fenced, StoreRefused
from gateway.store.redis import RedisStore
from gateway.store.sqlite import SqliteStore
from gateway.store.transaction import Transaction
from gateway.store.types import Incoming

LANES = 5


class Say(Protocol):
    def __call__(self, **what: Json) -> None: ...


def run(pipe: Connection, path: str, what: str, first: int = 0) -> None:
    """Run the process."""

    def say(**said: Json) -> None:
        pipe.send(said)

    asyncio.run(main(say, path, what, first))


async def main(say: Say, path: str, what: str, first: int) -> None:
    """`path` is a file or the URL of a Redis server."""
    store: Store = RedisStore(path, ack_seconds=5) if path.startswith("redis://") else SqliteStore(path)
    try:
        await store.open()
    except StoreRefused as refusal:
        say(refused=str(refusal))
        return
    say(open=True)
    match what:
        case "accept":
            await accept(say, store, first)
        case "work":
            await work(say, store)
        case "serve":
            await asyncio.gather(accept(say, store, first), work(say, store, wait_seconds=60))
        case "share":
            await asyncio.gather(accept(say, store, first), work(say, store, wait_seconds=60, lease_seconds=0.5))
        case "hold":
            await hold(say, store)
        case "hand":
            await hand(say, store, first)


async def accept(say: Say, store: Store, first: int) -> None:
    """Take in events until the end of this process, several at a time."""
    numbers = iter(range(first, first + 100_000))

    async def one_after_another() -> None:
        for number in numbers:
            lane = f"c{number % LANES}"
            await store.accept([Incoming(conversation=lane, event_ids=(f"e{number}",), body={"n": number})])
            say(accepted=number)

    await asyncio.gather(*(one_after_another() for _ in range(8)))


async def work(say: Say, store: Store, wait_seconds: float = 0.0, lease_seconds: float = 60.0) -> None:
    """Process leases; end after this time without an event."""

    async def one_after_another(name: str) -> None:
        while lease := await store.lease(name, ["turn"], lease_seconds=lease_seconds, wait_seconds=wait_seconds):
            say(leased=lease.lane)
            with contextlib.suppress(Fenced):  # this worker was too slow, and another goes on
                await store.commit(Transaction(partition=lease.partition, lease=lease, steps=["begun"]))
                say(begun=lease.lane)
                await store.commit(
                    Transaction(
                        partition=lease.partition,
                        lease=lease,
                        consume=[(event.conversation, event.seq) for event in lease.events],
                        appends=[(lease.lane, {"n": event.body["n"], "seq": event.seq}) for event in lease.events],
                        finish="done",
                    )
                )
                say(committed=[event.body["n"] for event in lease.events])

    await asyncio.gather(*(one_after_another(f"w{n}") for n in range(3)))


async def hold(say: Say, store: Store) -> None:
    """Take and keep every lease."""
    while lease := await store.lease("holder", ["turn", "action", "out"], lease_seconds=3600):
        say(leased=lease.lane)
    say(holding=True)
    await asyncio.Event().wait()


async def hand(say: Say, store: Store, first: int) -> None:
    """Hand events over by number, from conversations of every partition, until the end of this process."""
    numbers = iter(range(first, first + 100_000))

    async def one_after_another(source: str) -> None:
        for number in numbers:
            event = Incoming(
                conversation=f"c{number % LANES}",
                event_ids=(f"vote {number}",),
                body={"n": number},
                stamp=datetime.fromtimestamp(number, UTC),
            )
            await store.commit(Transaction(partition=store.partition(source), hand_over=[event]))
            say(handed=number)

    await asyncio.gather(*(one_after_another(f"from {n}") for n in range(8)))
