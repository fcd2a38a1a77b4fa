"""Telegram refuses, delays and repeats; a stranger is not let in."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from channels.telegram import channel as telegram
from gateway.artifacts import keep
from tests.e2e import house as houses
from tests.e2e.house import House, delete, open_house
from tests.e2e.test_confirming import DONE, code_of
from tests.fakes.openai import Call
from tests.fakes.telegram import FakeTelegram
from tests.threads import no_more_threads


async def dead(house: House) -> list[str]:
    return [letter.reason for letter in await house.gateway.store.dead_letters()]


# ── refusals by Telegram ──


async def test_prompt_repeated_after_a_lost_answer_keeps_old_buttons(house: House) -> None:
    house.telegram.fail_next("sendMessage", cut=True, taken=True)
    house.model.script(delete("INV-42"))
    await house.says("delete INV-42")
    await house.until(lambda: len(house.messages()) == 1)
    await house.idle()
    await house.later(3)
    await house.until(lambda: len(house.messages()) == 2)
    await house.idle()
    first, _second = house.messages()
    await house.presses(first)
    await house.until(lambda: house.shop.deleted == ["INV-42"])


async def test_a_settled_prompt_that_is_gone_leaves_no_dead_letter(house: House) -> None:
    prompt = await house.prompt()
    house.telegram.fail_next("editMessageText", 400, "Bad Request: message to edit not found")
    await house.presses(prompt)
    await house.until(lambda: house.telegram.called("editMessageText"))
    await house.until(lambda: DONE in house.texts())
    await house.idle()
    assert await dead(house) == []


# ── repeats and renamed groups ──


async def test_group_that_moves_keeps_its_history_and_its_asks(house: House) -> None:
    team = house.telegram.group("Team")
    await house.asks("my cat is called Felix", "Nice.", to=team, by=house.ana)
    prompt = await house.prompt(to=team, by=house.ana)
    new = await moves(house, team)
    await house.asks("what is its name?", "Felix.", to=new, by=house.ana)
    assert "called Felix" in str(house.model.requests[-1]["messages"])
    again = await house.until(lambda: house.telegram.last(new, button="Confirm"))
    assert again is not None
    await house.says(f"OK {code_of(prompt)}", to=new, by=house.ana)
    await house.until(lambda: DONE in house.texts(new))
    await house.until(lambda: not again.buttons)
    assert house.shop.deleted == ["INV-42"]
    assert prompt.buttons  # no message can be edited in the old place, but the answer to the press tells the truth
    assert (await house.presses(prompt)).text == "This is already done."
    assert await dead(house) == []


async def test_a_button_in_the_old_place_of_a_group_still_decides(house: House) -> None:
    team = house.telegram.group("Team")
    prompt = await house.prompt(to=team, by=house.ana)
    new = await moves(house, team)
    await house.until(lambda: house.telegram.last(new, button="Confirm"))
    await house.idle()
    await house.presses(prompt)
    await house.until(lambda: DONE in house.texts(new))
    await house.until(lambda: not house.telegram.last(new, button="Confirm"))
    assert house.shop.deleted == ["INV-42"]


async def test_an_outcome_reaches_a_group_that_moved_while_it_ran(house: House) -> None:
    team = house.telegram.group("Team")
    prompt = await house.prompt(to=team, by=house.ana)
    await house.telegram.press(prompt, "Confirm", house.ana, wait=False)
    new = house.telegram.group_moves(team)
    await house.until(lambda: DONE in house.texts(new))
    assert house.shop.deleted == ["INV-42"]


async def moves(house: House, team: Any) -> Any:
    """Report the move like Telegram: the new id in the old group, the old id in the new group."""
    new = house.telegram.group_moves(team)
    said = {"message_id": 1, "date": 1, "from": house.ana.to_json()}
    await house.telegram.deliver("message", team, {**said, "chat": team.to_json(), "migrate_to_chat_id": new.id})
    await house.telegram.deliver("message", new, {**said, "chat": new.to_json(), "migrate_from_chat_id": team.id})
    return new


# ── strangers ──


async def test_a_stranger_is_notified_once_a_day_and_leaves_no_data(tmp_path: Path) -> None:
    async with open_house(tmp_path, allow="telegram:7000001:1") as house:
        canary = "my-very-private-words"
        told = await house.asks(canary)
        assert told.text == "Sorry, this bot talks only to people it knows."
        await house.says(f"/start {canary}")
        await house.later(3600)
        await house.says(f"yes {canary}")
        await house.idle()
        assert len(house.texts()) == 1
        await house.later(24 * 3600)
        await house.says("hello?")
        await house.until(lambda: len(house.texts()) == 2)
        await house.idle()
        assert house.model.requests == []
    assert not any(canary.encode() in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


async def test_a_stranger_in_a_group_is_passed_over(tmp_path: Path) -> None:
    async with open_house(tmp_path, allow="telegram:7000001:1") as house:
        team = house.telegram.group("Team")
        await house.says("hello", to=team)
        await house.idle()
        assert (house.telegram.sent, house.model.requests) == ([], [])


async def test_press_of_a_stranger_is_refused_and_logged(tmp_path: Path) -> None:
    async with open_house(tmp_path, allow="telegram:7000001:1001") as house:
        assert house.ana.id == 1001
        team, bob = house.telegram.group("Team"), house.telegram.person("Bob")
        prompt = await house.prompt(to=team, by=house.ana)
        press = await house.presses(prompt, by=bob)
        assert (press.text, press.alert) == ("This is not yours to answer.", True)
        assert house.shop.deleted == []
        await house.idle()
        (line,) = await house.log("security")
        assert (line["what"], line["person"]) == ("stranger", f"telegram:{house.telegram.bot.id}:{bob.id}")


# ── a file that cannot be kept ──


async def test_action_is_done_and_told_when_its_file_is_lost(house: House, tmp_path: Path) -> None:
    artifacts = house.gateway.engine.context.artifacts
    artifacts.directory = tmp_path / "in the way"
    artifacts.directory.touch()
    prompt = await house.asks("archive INV-42", Call("archive_invoice", {"invoice_id": "INV-42"}))
    await house.idle()
    await house.presses(prompt)
    told = await house.next(house.ana, 1)
    assert told.text.split("\n\n") == [
        "Invoice INV-42 is archived.",
        "The file that belongs to it is lost: it could not be stored.",
    ]
    await house.idle()
    (action,) = await house.actions()
    assert (action.state, await house.gateway.store.dead_letters()) == ("done", [])


async def test_lost_file_is_told_to_the_model(house: House, tmp_path: Path) -> None:
    artifacts = house.gateway.engine.context.artifacts
    artifacts.directory = tmp_path / "in the way"
    artifacts.directory.touch()
    told = await house.asks("send it", Call("send_invoice_pdf", {"invoice_id": "INV-7"}), "Sorry, it is lost.")
    assert told.text == "Sorry, it is lost."
    assert house.model.requests[-1]["messages"][-1]["content"].endswith("nobody gets them. Tell the person.")


# ── no more threads ──


async def logged(words: str, log: pytest.LogCaptureFixture) -> None:
    async with asyncio.timeout(15):
        while words not in log.text:
            await asyncio.sleep(0.002)


def none_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use thread pools for files without any started thread."""
    monkeypatch.setattr(keep, "FILES", ThreadPoolExecutor(4))
    monkeypatch.setattr(telegram, "FILES", ThreadPoolExecutor(4))


async def arrived(house: House) -> None:
    """Wait until the file and its one message have arrived."""
    while len(house.messages()) < 3:
        await house.later(60)
        await house.idle()
    assert house.texts() == ["Hello.", "Here it is.", ""]
    assert await house.gateway.store.dead_letters() == []


async def test_a_turn_is_retried_if_its_file_cannot_be_kept(
    house: House, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.asks("hi", "Hello.")
    house.model.script([Call("send_invoice_pdf", {"invoice_id": "INV-7"}), "Here it is."])
    none_started(monkeypatch)
    with no_more_threads():
        await house.says("send it")
        await logged("failed: RuntimeError", caplog)
        await house.idle()
    await arrived(house)


async def test_a_file_that_cannot_be_opened_waits_and_is_no_duplicate(
    house: House, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.asks("hi", "Hello.")
    house.model.script([Call("send_invoice_pdf", {"invoice_id": "INV-7"}), "Here it is."])
    hold = house.telegram.hold("sendMessage", "after")
    await house.says("send it")
    await hold.reached()
    none_started(monkeypatch)
    with no_more_threads():
        hold.release()
        await logged("not delivered yet: Unavailable: no_thread", caplog)
        await house.idle()
    await arrived(house)


# ── No name resolves while a gateway runs: incoming events are taken and decided, outgoing messages wait and arrive ──


NAME = "localhost"  # any other would have to be reached by https


class Names(AbstractResolver):
    """Resolves one name. If `away`, raises the system's error for an absent name server."""

    def __init__(self) -> None:
        self.away = False
        self.asked = 0

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_INET) -> list[ResolveResult]:
        assert host == NAME
        self.asked += 1
        if self.away:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        found = ResolveResult(hostname=host, host="127.0.0.1", port=port, family=family, proto=0, flags=0)
        return [found]

    async def close(self) -> None:
        """Hold no resource."""


class NamedTelegram(FakeTelegram):
    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.url = self.url.replace("127.0.0.1", NAME)
        return self


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """A resolver asked for every connection. Each request makes a connection."""
    names = Names()
    connector = functools.partial(aiohttp.TCPConnector, resolver=names, use_dns_cache=False, force_close=True)
    monkeypatch.setattr(aiohttp, "TCPConnector", connector)
    monkeypatch.setattr(houses, "FakeTelegram", NamedTelegram)
    return names


@pytest.fixture
async def named_house(names: Names, tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(tmp_path) as house:
        yield house


async def status(house: House, page: str) -> int:
    async with aiohttp.ClientSession() as http, http.get(f"{house.url}/{page}") as answer:
        return answer.status


async def tried(names: Names, house: House) -> None:
    """Wait until the name was looked up and the attempt is over."""
    before = names.asked
    async with asyncio.timeout(15):
        while names.asked == before:
            await asyncio.sleep(0.002)
    await house.idle()


async def test_decisions_without_dns_are_done_and_told_once_it_is_back(named_house: House, names: Names) -> None:
    house = named_house
    ben = house.telegram.person("Ben")
    prompt = await house.prompt()
    names.away = True
    press = await house.telegram.press(prompt, "Confirm", house.ana)
    await house.until(lambda: house.shop.deleted == ["INV-42"])
    house.model.script(["Hello, Ben."])
    await house.says("hello", by=ben)
    await tried(names, house)
    for seconds in (3, 10):
        await house.later(seconds)
        await tried(names, house)
    assert [await status(house, page) for page in ("livez", "readyz")] == [200, 200]
    assert (house.texts(ben), house.texts()[1:]) == ([], [])
    names.away = False
    await house.later(60)
    await house.until(lambda: house.texts(ben) == ["Hello, Ben."] and house.texts()[1:] == [DONE])
    await house.until(lambda: not prompt.buttons)
    await house.idle()
    assert house.shop.deleted == ["INV-42"]
    assert await house.gateway.store.dead_letters() == []
    assert (await house.asks("again", *delete("INV-7"))).buttons
    assert not press.alert
