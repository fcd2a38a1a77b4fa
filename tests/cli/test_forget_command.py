"""`askfirst conversations forget`, on a file and on a Redis with an append-only file."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from channels import Json
from gateway.assembly import open_store
from gateway.cli import control_socket
from gateway.operations.ownership import record_served
from gateway.store.transaction import Put, Transaction
from tests.cli.test_operator_commands import at, command, refusal, told
from tests.store.redis_server import RedisServer

__all__ = ["at"]

HOME = "Shop/telegram:1:42"


async def fill(url: str, *more: str) -> None:
    store = await asyncio.to_thread(open_store, url)
    await store.open()
    try:
        await record_served(store, "Shop")
        for home in (HOME, *more):
            person = home.partition("/")[2]
            people: Json = {"group": False, "people": {person: "2026-01-01T00:00:00+00:00"}}
            said: Json = {"role": "user", "content": f"quokka of {person}"}
            puts, appends = {f"people/{home}": Put(people)}, [(f"transcript/{home}", said)]
            await store.commit(Transaction(partition=store.partition(home), puts=puts, appends=appends))
    finally:
        await store.close()


def bytes_in(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())


@pytest.mark.ledger("MEM-11")
async def test_a_person_is_forgotten_by_a_command(here: Path, at: Mapping[str, str]) -> None:
    await fill(at["ASKFIRST_STORE"], "Shop/telegram:1:421")
    assert len(await told("conversations", "list", env=at)) == 2
    answer = await command("conversations", "forget", "telegram:1:42", "--yes", env=at)
    assert answer.exit_code == 0 and answer.stdout.startswith("Gone: 1 lines, 1 records.\n")
    on_redis = at["ASKFIRST_STORE"].startswith("redis")
    assert ("BGREWRITEAOF" in answer.stdout) is on_redis
    assert await told("conversations", "list", env=at) == ["Shop/telegram:1:421"]
    again = await command("conversations", "forget", "telegram:1:42", "--yes", env=at)
    assert again.stdout.startswith("Nothing is kept of telegram:1:42.\n")
    if on_redis:
        await rewrite(at["ASKFIRST_STORE"])
    found = await asyncio.to_thread(bytes_in, here)
    assert b"quokka of telegram:1:421" in found
    assert found.count(b"telegram:1:42") == found.count(b"telegram:1:421")


async def rewrite(url: str) -> None:
    """Write the append-only file anew, in words that can be read."""
    server: Any = RedisServer(Path())
    server.url = url
    await server.command("CONFIG", "SET", "aof-use-rdb-preamble", "no")
    await server.command("BGREWRITEAOF")
    while True:
        info = await server.command("INFO", "persistence")
        if not (info["aof_rewrite_in_progress"] or info["aof_rewrite_scheduled"]):
            break


async def test_forgetting_asks_first(here: Path) -> None:
    env = {"ASKFIRST_STORE": f"sqlite:///{here / 'own.db'}"}
    await fill(env["ASKFIRST_STORE"])
    assert "Aborted" in (await command("conversations", "forget", "telegram:1:42", env=env)).output
    assert await told("conversations", "list", env=env) == [HOME]
    assert "not a person: 'ana'" in await refusal("conversations", "forget", "ana", "--yes", env=env)
    assert (await told("conversations", "forget", HOME, "--yes", env=env))["gone"] == {"lines": 1, "records": 1}
    assert await told("conversations", "list", env=env) == []


async def test_forgetting_may_take_long_and_a_list_may_not(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_socket, "_ANSWER_SECONDS", 1e-6)

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"result": {"gone": {"lines": 1}, "shared": False}})

    app = web.Application()
    app.router.add_post("/{operation}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, str(here / "own.db.sock")).start()
    (here / "own.db").touch()
    env = {"ASKFIRST_STORE": f"sqlite:///{here / 'own.db'}"}
    try:
        assert "the server did not answer" in await refusal("conversations", "list", env=env)
        forgotten = await command("conversations", "forget", "telegram:1:42", "--yes", env=env)
        assert (forgotten.exit_code, forgotten.stdout) == (0, "Gone: 1 lines.\n")
    finally:
        await runner.cleanup()
