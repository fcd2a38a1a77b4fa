"""Cost of a conversation, a message and an idle worker to the store: the figures of docs/scale.md.

    python -m bench.scale

Runs whole turns through `ask_channel`, with an instant model, 50 conversations at a time. Then many known conversations
are created, and a fresh process looks for work in vain. Requires `redis-server` on the PATH.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import secrets
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from redis import Redis

from bench.rounds import machine
from channels import Json
from channels.direct import shared_place
from gateway import Agent, ChannelAgent, ConversationMemory
from gateway.config.settings import Settings
from gateway.pending.lines import seal_lines
from gateway.pending.seal import Keyring
from gateway.store.base import Store
from gateway.store.redis import RedisStore
from gateway.store.secret import keys_of
from gateway.store.sqlite import SqliteStore
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Incoming
from gateway.testing import ScriptedProvider
from tests.store.redis_server import RedisServer, answers

TURNS, IDS, KNOWN = 1_000, 20_000, 100_000
LONG, LONG_TURNS = 10_000, 100
AT_ONCE = 50
IDLE_SECONDS = 10.0
ANSWER = "It is on its way, and will be with you on Thursday between nine and noon. " * 4
QUESTION = "Where is what I ordered last week, and when will it be here?"
POOLS = ("telegram", "slack", "sms", "whatsapp")


class Sqlite:
    """SQLite file, with counters of the work done."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.store: Store = SqliteStore(url, max_waiting=10**9)

    def bytes(self) -> int:
        with contextlib.closing(sqlite3.connect(self.url)) as file:
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return Path(self.url).stat().st_size

    def scripts(self) -> tuple[int, float]:
        """Return the number of scripts run, and the server's CPU seconds."""
        return 0, 0.0


class OnRedis(Sqlite):
    """Redis server of this run."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.store = RedisStore(url, max_waiting=10**9, ack_seconds=30)
        self._redis: Redis = Redis.from_url(url)

    def bytes(self) -> int:
        found: Any = self._redis.info("memory")
        return int(found["used_memory"])

    def scripts(self) -> tuple[int, float]:
        found: Any = self._redis.info()
        commands: Any = self._redis.info("commandstats")
        return commands.get("cmdstat_evalsha", {"calls": 0})["calls"], found["used_cpu_user"] + found["used_cpu_sys"]


async def turns(kept: Sqlite, many: int) -> None:
    """Run a turn in each conversation, then nine more in a tenth of the conversations."""
    bot = ChannelAgent(Agent([], provider=ScriptedProvider([ANSWER] * (2 * many + AT_ONCE))), store=kept.store)
    slots = asyncio.Semaphore(AT_ONCE)

    async def turn(user: int) -> None:
        async with slots:
            await bot.ask_channel(f"u{user}", QUESTION)

    async with bot:
        await asyncio.gather(*map(turn, range(AT_ONCE)))
        before, (_, busy), cpu = kept.bytes(), kept.scripts(), time.process_time()
        await asyncio.gather(*map(turn, range(AT_ONCE, AT_ONCE + many)))
        cpu, busy = time.process_time() - cpu, kept.scripts()[1] - busy
        show("a conversation after its first turn, bytes", f"{(kept.bytes() - before) / many:,.0f}")
        before = kept.bytes()
        for _ in range(9):
            await asyncio.gather(*map(turn, range(AT_ONCE, AT_ONCE + many // 10)))
        show("each further turn, bytes", f"{(kept.bytes() - before) / (many // 10 * 9):,.0f}")
        show("a turn, ms of the worker's core", f"{cpu / many * 1000:.2f}")
        show("turns per second and worker core", f"{many / cpu:,.0f}")
        show("a turn, ms of the server", f"{busy / many * 1000:.2f}")


async def remembering(kept: Sqlite, messages: int, turns: int) -> None:
    """Run turns in a conversation with few messages, and in a conversation with many, of a bot with a memory."""
    memory = ConversationMemory(20)
    bot = ChannelAgent(Agent([], provider=ScriptedProvider([ANSWER] * 3 * turns), memory=memory), store=kept.store)
    lines: list[Json] = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}]
    async with bot:
        keyring = Keyring(keys_of(Settings(), kept.store))
        for name, many in (("before", 40), ("few", 40), ("many", messages)):
            place = f"{bot.name}/{shared_place('-', name)}"
            sealed = seal_lines(keyring, place, lines * (many // 2), now=await kept.store.now())
            for first in range(0, len(sealed), 40):
                appends = [(f"transcript/{place}", line) for line in sealed[first : first + 40]]
                await kept.store.commit(Transaction(partition=kept.store.partition(place), appends=appends))
            (_, busy), cpu = kept.scripts(), time.process_time()
            for _ in range(turns):
                await bot.ask_channel("u", QUESTION, conversation_id=name)
            cpu, busy = time.process_time() - cpu, kept.scripts()[1] - busy
            if name != "before":
                show(f"a turn with a memory after {many:,} messages, ms", f"{cpu / turns * 1000:.2f}")
                show("and ms of the server", f"{busy / turns * 1000:.2f}")


async def filled(kept: Sqlite) -> None:
    """Fill the store: with the ids of processed messages, then with conversations with a history."""
    await kept.store.open()
    before = kept.bytes()
    for first in range(0, IDS, 500):
        batch = [
            Incoming(conversation=f"c{first}", event_ids=(f"telegram:123456789:update {900_000_000 + n}",), body={})
            for n in range(first, first + 500)
        ]
        await kept.store.accept(batch)
        while (lease := await kept.store.lease("w", ["turn"])) is not None:
            consume = [(event.conversation, event.seq) for event in lease.events]
            await kept.store.commit(Transaction(partition=lease.partition, lease=lease, consume=consume, finish="done"))
    show("an id that is remembered, bytes", f"{(kept.bytes() - before) / IDS:,.0f}")

    keyring, now = Keyring(keys_of(Settings(), kept.store)), await kept.store.now()

    async def one(number: int) -> None:
        name = f"agent/telegram:123456789:{number}"
        lines: list[Json] = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}]
        await kept.store.commit(
            Transaction(
                partition=kept.store.partition(name),
                puts={f"heard/{name}": Put("2026-01-01T00:00:00+00:00")},
                appends=[(f"transcript/{name}", line) for line in seal_lines(keyring, name, lines, now=now)],
            )
        )

    for first in range(0, KNOWN, 500):
        await asyncio.gather(*map(one, range(first, first + 500)))
    await kept.store.close()


async def idle(store: Store) -> None:
    """Look for work as `serve` does, in vain. Prints the cost."""
    await store.open()

    async def look(kind: Any, pool: str = "") -> None:
        while True:
            await store.lease("idle", [kind], pool=pool, wait_seconds=30)

    async def keep_time() -> None:
        while True:
            await store.run_timers()
            await store.pending_decisions(older_than_seconds=2.0)
            await asyncio.sleep(1)

    loops = [look("turn"), look("action"), *(look("out", pool) for pool in POOLS), keep_time()]
    tasks = [asyncio.ensure_future(loop) for loop in loops]
    await asyncio.sleep(2)
    gc.collect()
    cpu = time.process_time()
    await asyncio.sleep(IDLE_SECONDS)
    cpu = time.process_time() - cpu
    print(json.dumps({"cpu": cpu / IDLE_SECONDS, "bytes": resident()}))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await store.close()


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def idles(kept: Sqlite, conversations: str) -> None:
    before, _ = kept.scripts()
    command = [sys.executable, "-m", "bench.scale", kept.url]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    show(f"an idle worker beside {conversations} conversations, MB", f"{found['bytes'] / 2**20:.0f}")
    show("and ms of a core each second", f"{found['cpu'] * 1000:.1f}")
    show("and scripts each second", f"{(kept.scripts()[0] - before) / (IDLE_SECONDS + 2):.0f}")


def main() -> None:
    if len(sys.argv) > 1:
        url = sys.argv[1]
        asyncio.run(idle((OnRedis if url.startswith("redis://") else Sqlite)(url).store))
        return
    os.environ.setdefault("ASKFIRST_SECRET", secrets.token_hex(16))  # a bot on Redis does not start without one
    print(machine())
    with tempfile.TemporaryDirectory() as here, (server := RedisServer(Path(here))).running():
        while not answers(server.url):
            time.sleep(0.01)
        for kept in (Sqlite(str(Path(here) / "askfirst.db")), OnRedis(server.url)):
            print(f"\n{type(kept).__name__}")
            idles(kept, "no")
            asyncio.run(turns(kept, TURNS))
            asyncio.run(remembering(kept, LONG, LONG_TURNS))
            asyncio.run(filled(kept))
            idles(kept, f"{KNOWN:,}")
            show("all of it, MB", f"{kept.bytes() / 2**20:,.0f}")


def show(what: str, figure: str) -> None:
    print(f"  {what:<60}{figure:>12}", flush=True)


if __name__ == "__main__":
    main()
