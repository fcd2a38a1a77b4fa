"""``askfirst usage``: who used how much, with the server up and down, on both stores."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.access.budgets import spendings
from gateway.assembly import open_store
from gateway.cli import main
from gateway.control_server import control
from gateway.operations.operator import Operator
from gateway.pending.seal import Keyring
from gateway.providers.base import Usage
from gateway.store.base import Store
from gateway.store.redis import RedisStore
from gateway.store.sqlite import SqliteStore
from gateway.store.transaction import Transaction
from tests.e2e.house import SIGNING
from tests.store.conftest import prefix, redis_url

__all__ = ["prefix", "redis_url"]

ANA, BOB = "telegram:1:2", "telegram:1:3"
PRICED = Usage(prompt_tokens=90, completion_tokens=10, cached_prompt_tokens=30, cost_usd=0.5, saved_usd=0.25)
UNPRICED = Usage(prompt_tokens=900, completion_tokens=100)
TODAY = datetime.now(UTC)


async def spend(store: Store, usage: Usage, person: str, *, days_ago: int = 0) -> None:
    conversation = f"Shop/{person}"
    spends = spendings(usage, person=person, conversation=conversation, at=TODAY - timedelta(days=days_ago))
    await store.commit(Transaction(partition=store.partition(conversation), spends=spends))


async def fill(store: Store) -> None:
    for days in (0, 1, 1):
        await spend(store, PRICED, ANA, days_ago=days)
    await spend(store, UNPRICED, BOB)


async def command(*arguments: str, env: Mapping[str, str]) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, main, ["usage", *arguments], env=env)


async def listed(*arguments: str, env: Mapping[str, str]) -> list[dict[str, Any]]:
    result = await command(*arguments, "--json", env=env)
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


@pytest.mark.ledger("USE-02")
async def test_usage_is_listed_beside_a_server_and_without_one(here: Path) -> None:
    env = {"ASKFIRST_STORE": f"sqlite:///{here / 'own.db'}"}
    assert (await command(env=env)).exit_code == 1, "there is no store yet"
    store = SqliteStore(here / "own.db")
    await store.open()
    await fill(store)
    operator = Operator(store, {}, Keyring([b"x" * 32]), bot="Shop")
    async with control(operator, here / "own.db"):
        up = [await listed("--by", by, env=env) for by in ("person", "conversation", "bot", "day")]
    await store.close()
    down = [await listed("--by", by, env=env) for by in ("person", "conversation", "bot", "day")]
    assert up == down
    people, conversations, bots, days = up
    assert [(each["person"], each["calls"], each["cost_usd"]) for each in people] == [(ANA, 3, 1.5), (BOB, 1, None)]
    assert [each["conversation"] for each in conversations] == [f"Shop/{ANA}", f"Shop/{BOB}"]
    assert [(each["bot"], each["calls"]) for each in bots] == [("Shop", 4)]
    assert [(each["day"], each["total_tokens"]) for each in days] == [
        (f"{TODAY - timedelta(days=1):%Y-%m-%d}", 200),
        (f"{TODAY:%Y-%m-%d}", 1_100),
    ]
    assert days[1] | {"day": ""} == {
        "day": "", "calls": 2, "total_tokens": 1_100, "prompt_tokens": 990, "completion_tokens": 110,
        "cached_prompt_tokens": 30, "cache_write_tokens": 0, "cost_usd": 0.5, "unpriced_tokens": 1_000,
        "saved_usd": 0.25,
    }  # fmt: skip


async def test_table_sets_cached_saved_and_unpriced_apart(here: Path) -> None:
    env = {"ASKFIRST_STORE": f"sqlite:///{here / 'own.db'}"}
    store = SqliteStore(here / "own.db")
    await store.open()
    await fill(store)
    await store.close()
    shown = await command("--by", "person", env=env)
    head, ana, bob = shown.stdout.splitlines()
    assert head.split("  ")[0] == "PERSON" and "CACHED" in head and "SAVED USD" in head
    assert ana.split() == [ANA, "3", "270", "90", "30", "1.5000", "0", "0.7500"]
    assert bob.split() == [BOB, "1", "900", "0", "100", "unknown", "1000", "0.0000"]
    since = await listed("--since", f"{TODAY:%Y-%m-%d}", "--by", "person", env=env)
    assert [each["calls"] for each in since] == [1, 1]
    assert (await listed("--since", f"{TODAY + timedelta(days=1):%Y-%m-%d}", env=env)) == []
    assert (await command("--since", "yesterday", env=env)).exit_code == 2


async def test_usage_of_instances_on_redis_is_read_from_all_partitions(
    here: Path, redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def own(url: str) -> Store:
        return RedisStore(url, prefix=prefix, ack_seconds=5.0) if url.startswith("redis") else open_store(url)

    monkeypatch.setattr("gateway.assembly.open_store", own)
    store = own(redis_url)
    await store.open()
    for number in range(20):
        await spend(store, PRICED, f"telegram:1:{number}")
    await store.close()
    env = {"ASKFIRST_STORE": redis_url, "ASKFIRST_SECRET": SIGNING, "ASKFIRST_ARTIFACTS": str(here / "files")}
    assert [each["calls"] for each in await listed(env=env)] == [20]
    assert len(await listed("--by", "person", env=env)) == 20
