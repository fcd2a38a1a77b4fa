"""A process popping the stashes of another process, killed from outside.

`pop` answers every user's action at the same time as the sibling processes; `hang` never ends a begun executor; `open`
only tries to open the store. Each act of an executor is a line in a file.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from gateway.pending import PendingAction, RedisPendingStore, SqlitePendingStore
from gateway.pending.seed.base import PendingStore
from gateway.pending.words import prepare
from gateway.store.errors import StoreRefused
from gateway.store.redis import RedisStore

prepare("pt", "en", "es")  # once, in the process that forks the children: this takes longer than most of these tests

USERS = [f"user {number}" for number in range(4)]


def run(pipe: Connection, where: str, prefix: str, what: str, secret: str, effects: str) -> None:
    """Run the process. `where` is a file or the URL of a Redis server."""
    os.environ["ASKFIRST_SECRET"] = secret
    asyncio.run(main(pipe, where, prefix, what, Path(effects)))


async def main(pipe: Connection, where: str, prefix: str, what: str, effects: Path) -> None:
    store = RedisStore(where, prefix=prefix, ack_seconds=30) if where.startswith("redis://") else None
    if store is not None:
        await store.open()
    pending: PendingStore = SqlitePendingStore(where) if store is None else RedisPendingStore(store)
    try:
        await pending.open()
    except StoreRefused as refused:
        pipe.send(("refused", str(refused)))
        return
    pending.register_executor_factory("delete_invoice", lambda record: deletes(pipe, record, what, effects))
    pipe.send(("open", ""))
    if what == "open":
        return
    await asyncio.to_thread(pipe.recv)
    outcomes = await asyncio.gather(*(pending.pop_if_confirmed(user, "yes") for user in USERS))
    pipe.send(("popped", [outcome.status if outcome is not None else None for outcome in outcomes]))
    await pending.close()
    if store is not None:
        await store.close()


def deletes(pipe: Connection, record: PendingAction, what: str, effects: Path) -> Callable[[], str]:
    def delete() -> str:
        with effects.open("a") as file:
            file.write(f"{record.args['invoice_id']}\n")
        if what == "hang":
            pipe.send(("running", record.args["invoice_id"]))
            threading.Event().wait()
        return "deleted"

    return delete
