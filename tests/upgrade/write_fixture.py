"""Writes the upgrade fixtures: what a release leaves in its store when its process is killed while much is going on.

Run it with the code of the release whose stores are to be upgraded, into a directory with that release's name:

    python -m tests.upgrade.write_fixture tests/upgrade/RELEASE

The commit that adds such a directory is one at which this works. For each store a process serves the bot of `books` to
people on a Telegram double, writes down what the store then holds, and is killed by SIGKILL; then the store's own
content is read. Redis is the one in REDIS_URL, else that of this machine; the keys are deleted afterwards.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from redis import Redis

from channels import Json
from gateway.store.redis import RedisStore
from gateway.store.sqlite import SqliteStore
from tests.upgrade.author import Author
from tests.upgrade.books import Books
from tests.upgrade.loading import PREFIX, pack
from tests.upgrade.valve import Valve
from tests.upgrade.world import Phones, open_world

SECRET = "p3Vw8xLq1Zr6Tn0Yk5Hs2Bd7Mf4Gc9Ja"


async def write(kind: str, directory: Path, redis_url: str, prefix: str) -> None:
    """Bring a store into its state, write the manifest, and be killed."""
    stores: dict[str, Callable[[], Any]] = {
        "sqlite": lambda: SqliteStore(directory / "askfirst.db"),
        "redis": lambda: RedisStore(redis_url, prefix=prefix, ack_seconds=5),
    }
    valve = Valve(stores[kind]())
    async with Phones() as phones, open_world(directory, Books(), phones, store=valve, secret=SECRET) as world:
        author = Author(world, valve)
        for plot in (
            author.dead_letters,
            author.open_questions,
            author.settled,
            author.half_done,
            author.questions_to_be_answered,
            author.unsent,
            author.what_waits,
        ):
            await plot()
        manifest = await author.manifest()
        (directory / "manifest.json").write_text(json.dumps(manifest))
        os.kill(os.getpid(), signal.SIGKILL)


def main(into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    redis_url, prefix = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"), f"askfirst-{secrets.token_hex(6)}"
    for kind in ("sqlite", "redis"):
        with tempfile.TemporaryDirectory(prefix="askfirst-fixture-") as name:
            directory = Path(name)
            command = [sys.executable, "-m", "tests.upgrade.write_fixture", "--child", kind, name]
            died = subprocess.run([*command, redis_url, prefix], check=False).returncode
            if died != -signal.SIGKILL:
                raise SystemExit(f"the {kind} writer ended with {died}, and was to be killed")
            manifest = json.loads((directory / "manifest.json").read_text())
            held: Json = sql_of(directory / "askfirst.db") if kind == "sqlite" else keys_of(redis_url, prefix)
            fixture: dict[str, Json] = {"manifest": manifest, "secret": SECRET, "held": held}
            size = pack(into / f"{kind}.json.xz", fixture)
            open_now = sum(action["state"] == "pending" for action in manifest["actions"])
            print(f"{kind}: {len(manifest['actions'])} actions, {open_now} open, {manifest['counts']}, {size} bytes")


def sql_of(path: Path) -> str:
    """The statements that make the file anew, with what only its log held."""
    with closing(sqlite3.connect(path)) as db:
        version, application = (
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id")
        )
        head = f"PRAGMA user_version = {version}; PRAGMA application_id = {application};"
        return "\n".join([head, *db.iterdump()])


def keys_of(url: str, prefix: str) -> list[Json]:
    """(name, type, milliseconds it lives or None, value) of every key; they are deleted."""
    found: list[Json] = []
    with Redis.from_url(url, decode_responses=True) as redis:
        read: dict[str, Callable[[str], Any]] = {
            "string": redis.get,
            "hash": redis.hgetall,
            "list": lambda name: redis.lrange(name, 0, -1),
            "set": lambda name: sorted(redis.smembers(name)),
            "zset": lambda name: [[member, int(score)] for member, score in redis.zrange(name, 0, -1, withscores=True)],
        }
        names = sorted(redis.scan_iter(f"{prefix}:*", count=1000))
        for name in names:
            kind, lives = str(redis.type(name)), int(redis.pttl(name))
            found.append([PREFIX + name.removeprefix(prefix), kind, lives if lives >= 0 else None, read[kind](name)])
        redis.delete(*names)
    return found


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        asyncio.run(write(sys.argv[2], Path(sys.argv[3]), sys.argv[4], sys.argv[5]))
    else:
        main(Path(sys.argv[1]))
