"""Records that an operator reads and removes: ``askfirst audit``, ``usage`` and ``conversations forget``."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from channels import Json
from gateway import Agent, ChannelAgent, tool
from gateway.access.budgets import spendings
from gateway.assembly import open_store
from gateway.cli import control_socket
from gateway.operations import audit
from gateway.operations.base import record_served
from gateway.operations.control_server import control
from gateway.operations.operator import Operator
from gateway.pending.lines import seal_lines
from gateway.pending.seal import Keyring
from gateway.providers.base import Usage
from gateway.store.base import Store
from gateway.store.redis import RedisStore
from gateway.store.secret import secret_of
from gateway.store.sqlite import SqliteStore
from gateway.store.transaction import Put, Transaction
from gateway.testing import ScriptedProvider, ToolCall
from tests.cli.processes import Page, command, forked, refusal, told
from tests.e2e.house import SIGNING
from tests.store.redis_server import RedisServer

STORE = Path(".askfirst") / "askfirst.db"


@tool(confirm="Pay {amount}?")
async def pay(amount: int) -> str:
    """Pay."""
    return f"{amount} paid."


async def paid(here: Path, *amounts: int, person: str = "ana") -> list[str]:
    """Ask for each amount and confirm. Returns the ids of the actions."""
    script = ScriptedProvider([ToolCall("pay", {"amount": amount}) for amount in amounts])
    ids = []
    async with ChannelAgent(Agent([pay], provider=script), store=f"sqlite:///{here / STORE}") as bot:
        for amount in amounts:
            (asked,) = (await bot.ask_channel(person, f"pay {amount}")).pending
            await bot.decide(f"app:-:{person}", "confirm", action_id=asked.pending_action_id)
            ids.append(asked.pending_action_id)
    return ids


def edit(here: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(here / STORE) as db:
        assert db.execute(statement, values).rowcount
    db.close()


async def test_the_way_of_an_action_is_shown(here: Path) -> None:
    first, second = await paid(here, 5, 6)
    lines = (await command("audit", first[:6])).stdout.splitlines()
    assert lines[0].split() == ["AT", "(UTC)", "ACTION", "WHAT", "BY"]
    shown = [line.split()[1:] for line in lines[1:]]
    assert [each[:2] for each in shown] == [
        [first[:8], what] for what in ("asked", "shown", "decided", "launched", "finished")
    ]
    assert shown[2][2] == "app:-:ana"
    whole = await told("audit")
    assert len(whole) == 10
    assert {line["action"] for line in whole} == {first, second}
    assert [line["at"] for line in whole] == sorted(line["at"] for line in whole)


async def test_forgotten_people_are_shown_by_pseudonyms(here: Path) -> None:
    [anas] = await paid(here, 5)
    [bobs] = await paid(here, 7, person="bob")
    store = await asyncio.to_thread(open_store, f"sqlite:///{here / STORE}")
    await store.open()
    await record_served(store, "agent")
    await store.close()
    result = await command("conversations", "forget", "app:-:bob", "--yes")
    assert result.exit_code == 0, result.output
    assert await told("audit", "--person", "app:-:bob") == []
    lines = (await command("audit", bobs)).stdout.splitlines()
    [shown] = {line.split(maxsplit=3)[3] for line in lines if "decided" in line}
    assert re.fullmatch(r"~[0-9a-f]{8} \(forgotten\)", shown)
    forgotten = [line for line in await told("audit") if line.get("forgotten")]
    assert {line["action"] for line in forgotten} == {bobs}
    assert await told("audit", "--person", forgotten[0]["person"]) == forgotten
    assert {line["action"] for line in await told("audit", "--person", "app:-:ana")} == {anas}
    assert (await command("audit", "--verify")).stdout == "10 lines of 2 actions are whole.\n"


async def test_lines_tell_the_run_that_asked(here: Path) -> None:
    await paid(here, 5)
    lines, stored = await told("audit"), "json_extract(json_extract(value, '$.body'), '$.run_id')"
    with closing(sqlite3.connect(here / STORE)) as db:
        [(run_id,)] = db.execute(f"SELECT {stored} FROM record WHERE name LIKE 'action/%'").fetchall()
    assert run_id
    assert {line["run"] for line in lines} == {run_id}


async def test_lines_are_found_by_person_and_day(here: Path) -> None:
    await paid(here, 5)
    [bobs] = await paid(here, 7, person="bob")
    assert {line["action"] for line in await told("audit", "--person", "app:-:bob")} == {bobs}
    assert await told("audit", "--since", "2999-01-01") == []
    assert len(await told("audit", "--since", "2026-01-01")) == 10
    assert (await command("audit", "--person", "nobody")).stdout == "There are no lines.\n"
    assert "Invalid value" in await refusal("audit", "--since", "yesterday", code=2)


async def test_the_last_thousand_lines_are_told(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "LINES_TOLD", 7)
    monkeypatch.setattr(audit, "_PAGE", 3)
    ids = await paid(here, 5, 6, 7)
    found = await told("audit")
    assert [line["action"] for line in found] == [ids[1]] * 2 + [ids[2]] * 5
    assert (await told("audit", "--verify"))["lines"] == 15


async def test_whole_chains_are_verified(here: Path) -> None:
    [first, _] = await paid(here, 5, 6)
    assert (await command("audit", "--verify")).stdout == "10 lines of 2 actions are whole.\n"
    assert await told("audit", first, "--verify") == {"lines": 5, "actions": 1, "faults": {}}


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("UPDATE log SET value = replace(value, 'decided', 'refused') WHERE log = 'audit'", "a line was changed"),
        ("DELETE FROM log WHERE log = 'audit' AND value LIKE '%decided%'", "a line is missing, or was added"),
        ("DELETE FROM log WHERE log = 'audit' AND value LIKE '%finished%'", "its last lines are missing"),
        ("UPDATE record SET value = replace(value, 'Pay', 'Pie') WHERE name LIKE 'action/%'", "its record was changed"),
    ],
)
async def test_changes_made_to_the_store_are_reported(here: Path, statement: str, fault: str) -> None:
    [first] = await paid(here, 5)
    edit(here, statement)
    result = await command("audit", "--verify")
    assert result.exit_code == 1
    line = result.stdout.splitlines()[1]
    assert line.startswith(first[:8])
    assert fault in line
    result = await command("audit", "--verify", "--json")
    assert result.exit_code == 1
    assert fault in json.loads(result.stdout)["faults"][first]


async def test_a_running_server_answers_too(here: Path, http: aiohttp.ClientSession) -> None:
    async with forked("dev", here / "bot.py", "--port", "0", cwd=here) as process:
        page = Page(http, await process.url())
        await page.open()
        await page.says("delete invoice INV-42")
        await page.sees("Delete invoice INV-42")
        found = await told("audit")
        assert [line["what"] for line in found] == ["asked", "shown"]
        assert (await told("audit", "--verify"))["faults"] == {}


# ── conversations forget ──


HOME = "Shop/telegram:1:42"
NEW = "vB4kQ8mZ1xW7cT3nR9yL5pD2sF6gH0jU"


async def fill(url: str, *more: str) -> None:
    store = await asyncio.to_thread(open_store, url)
    await store.open()
    try:
        await record_served(store, "Shop")
        keyring = Keyring(await asyncio.to_thread(secret_of, store) or [SIGNING.encode()])
        for home in (HOME, *more):
            person = home.partition("/")[2]
            people: Json = {"group": False, "people": {person: "2026-01-01T00:00:00+00:00"}}
            said: Json = {"role": "user", "content": f"quokka of {person}"}
            (line,) = seal_lines(keyring, home, [said], now=await store.now())
            puts, appends = {f"people/{home}": Put(people)}, [(f"transcript/{home}", line)]
            await store.commit(Transaction(partition=store.partition(home), puts=puts, appends=appends))
    finally:
        await store.close()


def bytes_in(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())


async def test_old_secret_goes_once_no_record_needs_it(here: Path, at: Mapping[str, str]) -> None:
    await fill(at["ASKFIRST_STORE"])
    old = at.get("ASKFIRST_SECRET") or await asyncio.to_thread((here / "own.db.secret").read_text)
    both, new = ({**at, "ASKFIRST_SECRET": secret} for secret in (f"{NEW},{old}", NEW))
    doctor = await command("doctor", "bot.py", env=both)
    assert "warn  seals: 1 lines hang on an older key of ASKFIRST_SECRET: askfirst people reseal, " in doctor.output
    assert (await command("people", "reseal", env=both)).stdout == "Sealed anew: 1 lines.\n"
    assert "ok    seals: none hangs on" in (await command("doctor", "bot.py", env=both)).output
    assert await told("people", "reseal", env=both) == {}
    assert len(await told("conversations", "search", "quokka", env=new)) == 1
    assert " seals:" not in (await command("doctor", "bot.py", env=new)).output


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
    """Rewrite the append-only file in readable words."""
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


# ── usage ──


ANA, BOB = "telegram:1:2", "telegram:1:3"
PRICED = Usage(prompt_tokens=90, completion_tokens=10, cached_prompt_tokens=30, cost_usd=0.5, saved_usd=0.25)
UNPRICED = Usage(prompt_tokens=900, completion_tokens=100)
TODAY = datetime.now(UTC)


async def spend(store: Store, usage: Usage, person: str, *, days_ago: int = 0) -> None:
    conversation = f"Shop/{person}"
    spends = spendings(usage, person=person, conversation=conversation, at=TODAY - timedelta(days=days_ago))
    await store.commit(Transaction(partition=store.partition(conversation), spends=spends))


async def fill_usage(store: Store) -> None:
    for days in (0, 1, 1):
        await spend(store, PRICED, ANA, days_ago=days)
    await spend(store, UNPRICED, BOB)


@pytest.mark.ledger("USE-02")
async def test_usage_is_listed_beside_a_server_and_without_one(here: Path) -> None:
    env = {"ASKFIRST_STORE": f"sqlite:///{here / 'own.db'}"}
    assert (await command("usage", env=env)).exit_code == 1, "there is no store yet"
    store = SqliteStore(here / "own.db")
    await store.open()
    await fill_usage(store)
    operator = Operator(store, {}, Keyring([b"x" * 32]), bot="Shop")
    async with control(operator, here / "own.db"):
        up = [await told("usage", "--by", by, env=env) for by in ("person", "conversation", "bot", "day")]
    await store.close()
    down = [await told("usage", "--by", by, env=env) for by in ("person", "conversation", "bot", "day")]
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
    await fill_usage(store)
    await store.close()
    shown = await command("usage", "--by", "person", env=env)
    head, ana, bob = shown.stdout.splitlines()
    assert head.split("  ")[0] == "PERSON" and "CACHED" in head and "SAVED USD" in head
    assert ana.split() == [ANA, "3", "270", "90", "30", "1.5000", "0", "0.7500"]
    assert bob.split() == [BOB, "1", "900", "0", "100", "unknown", "1000", "0.0000"]
    since = await told("usage", "--since", f"{TODAY:%Y-%m-%d}", "--by", "person", env=env)
    assert [each["calls"] for each in since] == [1, 1]
    assert (await told("usage", "--since", f"{TODAY + timedelta(days=1):%Y-%m-%d}", env=env)) == []
    assert (await command("usage", "--since", "yesterday", env=env)).exit_code == 2


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
    assert [each["calls"] for each in await told("usage", env=env)] == [20]
    assert len(await told("usage", "--by", "person", env=env)) == 20
