"""Several chats of a visitor: each keeps its question, the list shows them, and forgetting takes them all."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from channels import Address
from gateway.access.chats import MOST_CHATS, ChatLists
from gateway.privacy.scope import NotForgotten, find_scope
from gateway.stored import keys
from tests.web.site import Site, Visitor

CHAT, OTHER = "A" * 22, "B" * 22
EACH = pytest.mark.parametrize("login", ["bob", None], ids=["logged in", "anonymous"])


@pytest.fixture
def site() -> Site:
    return Site()


def words(lines: list[dict[str, Any]]) -> str:
    return "\n".join(each.get("text") or each["html"] for each in lines)


async def forgotten(site: Site, who: str) -> None:
    """Forget, as soon as no turn runs."""
    async with asyncio.timeout(30):
        while True:
            try:
                await site.gateway.bot.conversations.forget(who)
                return
            except NotForgotten:
                await asyncio.sleep(0.01)


@EACH
async def test_a_question_is_decided_in_its_own_chat_alone(site: Site, tmp_path: Path, login: str | None) -> None:
    async with site.served(tmp_path), Visitor(site, login) as ana:
        await ana.opens()
        await ana.says("delete invoice INV-42", CHAT)
        [_, asked] = await ana.reads(2, CHAT)
        press = {"token": asked["buttons"][0]["token"], "message_id": asked["message_id"]}
        [code] = re.findall(r"OK ([A-Z0-9]{4})", asked["html"] + asked.get("small", ""))

        for number, chat in enumerate((None, OTHER)):
            assert await ana.posts("presses", **press, chat=chat) == 200
            assert await ana.says(f"OK {code}", chat) == 200
            assert await ana.says("yes", chat) == 200
            await ana.says("list invoices", chat)
            lines = words(await ana.reads(5, chat))
            assert "INV-42" not in lines.replace("INV-7, INV-42", ""), f"chat {number} shows another one's question"
        assert site.deleted == []

        assert await ana.says(f"OK {code}", CHAT) == 200
        await ana.reads(4, CHAT)
        assert site.deleted == ["INV-42"]


@EACH
async def test_chats_are_listed_by_their_newest_line(site: Site, tmp_path: Path, login: str | None) -> None:
    async with site.served(tmp_path), Visitor(site, login) as ana, Visitor(site, "eve") as eve:
        for visitor in (ana, eve):
            await visitor.opens()
        assert await ana.chats() == []
        for text, chat in (("list invoices\nall of them", None), ("x" * 100, CHAT), ("/help", OTHER)):
            await ana.says(text, chat)
            await ana.reads(2, chat)
        listed = await ana.chats()
        assert [(each["chat"], each["title"]) for each in listed] == [
            (OTHER, "/help"),
            (CHAT, "x" * 79 + "…"),
            (None, "list invoices"),
        ]
        await ana.says("list invoices", CHAT)
        await ana.reads(4, CHAT)
        assert [each["chat"] for each in await ana.chats()] == [CHAT, OTHER, None]
        assert await eve.chats() == []
        await eve.says("hello", CHAT)
        [mine] = (await eve.reads(2, CHAT))[:1]
        assert mine["text"] == "hello", "the same id is another chat of another person"


async def test_the_list_is_bounded_to_the_last_chats(site: Site, tmp_path: Path) -> None:
    async with site.served(tmp_path):
        lists = ChatLists(site.gateway.store, site.gateway.engine.context.conversation)
        first = Address(channel="webchat", account="site", place="ana")
        await asyncio.gather(*(lists.note(thread(first, number)) for number in range(4)))
        for number in range(4, MOST_CHATS + 3):
            await lists.note(thread(first, number))
        await lists.note(thread(first, 10))
        [(_, record)] = await site.gateway.store.scan("chats/")
    assert isinstance(record.value, dict) and isinstance(record.value["chats"], list)
    assert len(record.value["chats"]) == MOST_CHATS
    assert record.value["chats"][-1] == thread(first, MOST_CHATS + 2).thread


def thread(first: Address, number: int) -> Address:
    return Address(channel=first.channel, account=first.account, place=first.place, thread=f"{number:022}")


async def test_a_forgotten_chat_leaves_the_list(site: Site, tmp_path: Path) -> None:
    async with site.served(tmp_path), Visitor(site, "ana") as ana:
        await ana.opens()
        for chat in (None, CHAT, OTHER):
            await ana.says("list invoices", chat)
            await ana.reads(2, chat)
        bot = site.gateway.bot.name
        await forgotten(site, f"{bot}/webchat:site:ana/{CHAT}")
        assert [each["chat"] for each in await ana.chats()] == [OTHER, None]
        await forgotten(site, f"{bot}/webchat:site:ana")
        assert [each["chat"] for each in await ana.chats()] == [OTHER], "the list is not in the first chat"


@EACH
async def test_forgetting_a_person_takes_all_chats(site: Site, tmp_path: Path, login: str | None) -> None:
    async with site.served(tmp_path), Visitor(site, login) as ana:
        await ana.opens()
        for text, chat in (("list invoices", None), ("delete invoice INV-7", CHAT)):
            await ana.says(text, chat)
            await ana.reads(2, chat)
        await ana.says("/forget", OTHER)
        [_, asks] = await ana.reads(2, OTHER)
        [code] = re.findall(r"\b(\d{4})\b", asks["html"])
        await ana.says(f"/forget {code}", OTHER)
        store = site.gateway.store
        async with asyncio.timeout(60):
            while await store.logs(keys.visible_log("")) or await store.scan(keys.chats("")):
                await asyncio.sleep(0.01)
        assert not [key.name for key, _ in await store.scan(keys.ACTION)]
        assert await ana.chats() == []


async def test_a_chat_without_a_turn_yet_is_forgotten(site: Site, tmp_path: Path) -> None:
    async with site.served(tmp_path):
        context = site.gateway.engine.context
        first = Address(channel="webchat", account="site", place="ana")
        await ChatLists(context.store, context.conversation).note(thread(first, 7))
        found = await find_scope(context.store, context.bot.name, "webchat:site:ana")
        assert context.conversation(thread(first, 7)) in found.own
        other = await find_scope(context.store, context.bot.name, "webchat:site:an")
        assert context.conversation(thread(first, 7)) not in other.own


@pytest.mark.parametrize("chat", ["short", "x" * 23, "../" + "x" * 19, "Bot:site:anaaaaaaaaaaa", "é" * 22])
async def test_an_id_of_another_form_is_no_chat(site: Site, tmp_path: Path, chat: str) -> None:
    async with site.served(tmp_path), Visitor(site, "ana") as ana:
        await ana.opens()
        assert await ana.says("hello", chat) == 400
        async with ana.http.get("/chat/events", params={"chat": chat}) as response:
            assert response.status == 400


async def test_typing_and_drafts_are_shown_in_their_chat(site: Site, tmp_path: Path) -> None:
    async with site.served(tmp_path), Visitor(site, "ana") as ana:
        await ana.opens()
        page: Any = site.gateway.channels["webchat"]
        first = Address(channel="webchat", account="site", place="ana")
        async with ana.http.get("/chat/events") as here, ana.http.get(f"/chat/events?chat={CHAT}") as there:
            for stream in (here, there):
                await stream.content.readline()
            draft = await page.stream(thread(first, 7))
            await draft.update("of another chat")
            await page.typing(first)
            handle = await page.stream(Address(channel="webchat", account="site", place="ana", thread=CHAT))
            await handle.update("words")
            async with asyncio.timeout(30):
                seen = [await until(stream, "data: ") for stream in (here, there)]
    assert seen == ["data: {}\n", 'data: {"html": "<p>words</p>\\n"}\n']


async def until(stream: aiohttp.ClientResponse, beginning: str) -> str:
    while not (line := (await stream.content.readline()).decode()).startswith(beginning):
        pass
    return line
