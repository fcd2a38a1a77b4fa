"""The conversations and the pending stores of these tests: in memory, in a file, and on a Redis server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.pending import (
    ConfirmOutcome,
    InMemoryPendingStore,
    PendingAction,
    RedisPendingStore,
    SqlitePendingStore,
)
from gateway.pending.seed.base import PendingStore
from gateway.pending.words import languages
from gateway.store.base import Store
from gateway.store.redis import RedisStore
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key
from tests.pending.records import GROUP, Table, table
from tests.store.conftest import prefix, redis_url

__all__ = ["ARGS", "SECRET", "NoYes", "Place", "Ran", "not_in_memory", "prefix", "redis_url", "stashed", "status"]

SECRET = "kept-for-tests-0123456789-ABCDEFGHIJ"
ARGS = {"invoice_id": "INV-42"}

not_in_memory = pytest.mark.parametrize("kept", ["file", "redis"], indirect=True)
"""Stores with data beyond a process."""


class Place:
    """A kind of store, for the duration of a test."""

    def __init__(self, kind: str, path: Path, url: str, prefix: str) -> None:
        self.kind, self.path, self.url, self.prefix = kind, path, url, prefix
        self._offset = 0.0
        self._made: list[PendingStore] = []
        self._stores: list[Store] = []

    async def open(self, *, elsewhere: bool = False, **options: Any) -> PendingStore:
        """Open a pending store on the data of the earlier stores; in memory there is no earlier data.

        `elsewhere`: open as another process does; on a file, the earlier stores are closed before.
        """
        made: PendingStore
        match self.kind:
            case "memory":
                made = InMemoryPendingStore(**options)
            case "file":
                if elsewhere:
                    await self.close()
                made = SqlitePendingStore(self.path, **options)
            case _:
                if elsewhere or not self._stores:
                    self._stores.append(RedisStore(self.url, prefix=self.prefix, ack_seconds=5))
                made = RedisPendingStore(self._stores[-1], **options)
        (await made.open()).offset_seconds = self._offset
        self._made.append(made)
        return made

    async def later(self, seconds: float) -> None:
        """Advance the time of the store."""
        self._offset += seconds
        for made in self._made:
            (await made.open()).offset_seconds = self._offset

    @property
    def passed(self) -> float:
        """The advanced seconds."""
        return self._offset

    async def close(self) -> None:
        """Close as the process ends."""
        for made in self._made:
            await made.close()
        for store in self._stores:
            await store.close()
        self.forget()

    def forget(self) -> None:
        """Forget the opened stores after another caller closed them."""
        self._made.clear()
        self._stores.clear()

    async def stored(self, pending: PendingStore, prefix: str) -> dict[Key, Any]:
        """Return the stored records with this prefix of names."""
        return {key: record.value for key, record in await (await pending.open()).scan(prefix)}

    async def change(self, pending: PendingStore, key: Key, value: Any) -> None:
        """Write a value into the store, as an attacker without the key could."""
        store = await pending.open()
        await store.commit(Transaction(partition=key.partition, puts={key.name: Put(value)}))


class Ran:
    """The acts of executors, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def deletes(self, invoice_id: str = "INV-42") -> Callable[[], str]:
        def delete() -> str:
            self.done.append(invoice_id)
            return f"{invoice_id} is deleted."

        return delete

    def factory(self, record: PendingAction) -> Callable[[], str]:
        return self.deletes(str(record.args["invoice_id"]))


async def stashed(pending: PendingStore, executor: Any = None, user: str = "ana", **more: Any) -> PendingAction:
    given = {"kind": "delete_invoice", "preview": "Delete invoice INV-42", "args": ARGS, **more}
    return await pending.stash(user, executor=executor, **given)


def status(outcome: ConfirmOutcome | None) -> str | None:
    return None if outcome is None else outcome.status


class NoYes:
    """Reads no text as a yes."""

    version = "no-yes-1"

    def is_confirm(self, message: str) -> bool:
        return False

    def is_cancel(self, message: str) -> bool:
        return False


@pytest.fixture(scope="session", params=languages())
def lang(request: pytest.FixtureRequest) -> str:
    """Each language. The tests of a language run one after another, so the words are read once."""
    return str(request.param)


@pytest.fixture
async def private() -> AsyncIterator[Table]:
    async with table() as found:
        yield found


@pytest.fixture
async def group() -> AsyncIterator[Table]:
    async with table(GROUP) as found:
        yield found


@pytest.fixture(params=["memory", "redis"])
def kept(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """An empty store in memory and another on Redis, with a secret. A file has the same store as the memory."""
    kind, url, own = str(request.param), "", ""
    monkeypatch.setenv("ASKFIRST_SECRET", SECRET)
    if kind == "redis":
        url, own = request.getfixturevalue("redis_url"), request.getfixturevalue("prefix")
    return Place(kind, tmp_path / "pending.db", url, own)


@pytest.fixture
async def place(kept: Place) -> AsyncIterator[Place]:
    """The same, closed at the end."""
    try:
        yield kept
    finally:
        await kept.close()


@pytest.fixture
async def pending(place: Place) -> PendingStore:
    return await place.open()


@pytest.fixture
def ran() -> Ran:
    return Ran()
