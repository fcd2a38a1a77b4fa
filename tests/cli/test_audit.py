"""``askfirst audit``: who asked, decided and ran what; and whether the lines are whole."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway import Agent, ChannelAgent, tool
from gateway.assembly import open_store
from gateway.operations import audit
from gateway.pending.audit import forget_person
from gateway.testing import ScriptedProvider, ToolCall
from tests.cli.pages import Page
from tests.cli.processes import running
from tests.cli.test_dev import http  # noqa: F401 - a fixture
from tests.cli.test_operator_commands import command, refusal, told

STORE = Path(".askfirst") / "askfirst.db"


@tool(confirm="Pay {amount}?")
async def pay(amount: int) -> str:
    """Pay."""
    return f"{amount} paid."


async def paid(here: Path, *amounts: int, person: str = "ana") -> list[str]:
    """Each is asked for and confirmed. The ids of the actions."""
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
    store = open_store(f"sqlite:///{here / STORE}")
    await store.open()
    assert await forget_person(store, "app:-:bob") == 1
    await store.close()
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
async def test_what_was_done_to_the_store_is_told(here: Path, statement: str, fault: str) -> None:
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


async def test_a_running_server_answers_too(here: Path, http: object) -> None:  # noqa: F811
    async with running("dev", here / "bot.py", "--port", "0", cwd=here) as process:
        page = Page(http, await process.url())  # type: ignore[arg-type]
        await page.open()
        await page.says("delete invoice INV-42")
        await page.sees("Delete invoice INV-42")
        found = await told("audit")
        assert [line["what"] for line in found] == ["asked", "shown"]
        assert (await told("audit", "--verify"))["faults"] == {}
