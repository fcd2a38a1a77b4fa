"""Links to files in chats: short, followed on every instance, and ended by time, by /new and by forgetting."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

import aiohttp
import pytest

from channels import Json, OpenMedia
from gateway import Agent, ChannelAgent, emit_artifact, tool
from gateway.artifacts import SHORT_LENGTH
from gateway.assembly import utc_now
from gateway.engine.delivery.links import follow_link
from gateway.privacy.conversations import Conversations
from gateway.store.errors import StoreUnavailable
from gateway.store.transaction import Put, Transaction
from gateway.testing import ScriptedProvider, ToolCall
from gateway.web import Ready, serve, web_app
from tests.engine.rig import Rig, Worker, rig

pytestmark = pytest.mark.both_stores

URL = "https://bot.example-company.com/"
assert len(URL) == 32

Get: TypeAlias = Callable[[str], Awaitable[tuple[int, bytes]]]
"""Follow the token of a link by GET."""


@tool(read_only=True)
async def send_report(name: str) -> str:
    """Send a report."""
    emit_artifact(content=f"report {name}".encode(), filename=f"{name}.txt")
    return "Here it is."


@contextlib.asynccontextmanager
async def reports(tmp_path: Path, *names: str) -> AsyncIterator[Rig]:
    """Yield a rig with a public URL, after the bot sent these reports to Ana."""
    script = [step for name in names for step in (ToolCall("send_report", {"name": name}), "Anything else?")]
    agent = Agent([send_report], provider=ScriptedProvider(script))
    async with rig(ChannelAgent(agent), tmp_path) as chat:
        chat.worker.context.artifacts.public_url = URL.rstrip("/")
        await chat.handles("ana", *(f"send me {name}" for name in names))
        yield chat


@contextlib.asynccontextmanager
async def web(worker: Worker) -> AsyncIterator[Get]:
    """Serve the links of a worker, and yield the way to follow one."""

    async def refuse(*_: object) -> None:
        raise StoreUnavailable("no webhooks here")

    async def ready() -> Ready:
        return Ready(True, {})

    app = web_app(channels={}, accept=refuse, follow=partial(follow_link, worker.context), ready=ready, now=utc_now)
    running = await serve(app, "127.0.0.1", 0)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{running.port}") as http:

        async def get(token: str) -> tuple[int, bytes]:
            path = f"/artifacts/{token}"
            async with http.get(path) as found, http.head(path) as head:
                body = await found.read()
                assert head.status == found.status
                assert found.status != 200 or head.headers["Content-Length"] == str(len(body))
                return found.status, body

        try:
            yield get
        finally:
            await running.cleanup()


def links(chat: Rig) -> list[str]:
    found = [part.media.link for _, part in chat.platform.sent if isinstance(part.media, OpenMedia)]
    return [link for link in found if link is not None]


async def put(chat: Rig, records: dict[str, Json]) -> None:
    for key, _ in await chat.store.scan("link/"):
        if key.name in records:
            await chat.store.commit(Transaction(partition=key.partition, puts={key.name: Put(records[key.name])}))


def token(link: str) -> str:
    return link.removeprefix(f"{URL}artifacts/")


async def test_a_link_for_a_chat_is_short_and_followed_by_any_instance(tmp_path: Path) -> None:
    async with reports(tmp_path, "may", "june") as chat, web(chat.another()) as get:
        may, june = links(chat)
        assert max(len(may), len(june)) < 80
        assert (await get(token(may)), await get(token(june))) == ((200, b"report may"), (200, b"report june"))
        assert not any(word in may for word in ("may.txt", "ana", "agent"))
        records = await chat.store.scan("link/")
        assert len(records) == 2
        for key, record in records:
            assert not any(hidden in f"{key.name} {record.value}" for hidden in ("may.txt", token(may)[2:]))


async def test_no_other_token_is_a_link(tmp_path: Path) -> None:
    async with reports(tmp_path, "may", "june") as chat, web(chat.worker) as get:
        may, june = map(token, links(chat))
        (one, kept), (other, others) = await chat.store.scan("link/")
        tries = [f"99{may[2:]}", f"xx{may[2:]}", may[2:], may[:-1], f"{may}A", may.swapcase(), "0" * (SHORT_LENGTH + 2)]
        for number in range(2, len(may)):
            tries.append(f"{may[:number]}{'A' if may[number] != 'A' else 'B'}{may[number + 1 :]}")
        assert {await get(tried) for tried in tries} == {(404, b"404: Not Found")}
        await put(chat, {one.name: others.value, other.name: kept.value})
        assert {await get(may), await get(june)} == {(404, b"404: Not Found")}
        values: list[Json] = [{"rest": 7}, {}, "rest", None, 7]
        for broken in values:
            await put(chat, {one.name: broken, other.name: broken})
            assert {await get(may), await get(june)} == {(404, b"404: Not Found")}


@pytest.mark.parametrize("ends", ["time", "new", "forgotten"])
async def test_links_of_a_conversation_end_together(tmp_path: Path, ends: str) -> None:
    async with reports(tmp_path, "may", "june") as chat, web(chat.worker) as get:
        may, june = map(token, links(chat))
        assert (await get(may), await get(june)) == ((200, b"report may"), (200, b"report june"))
        if ends == "time":
            await chat.advance(86_401)
        elif ends == "new":
            await chat.handles("ana", "/new")
        else:
            context = chat.worker.context  # without the files: other data may name them too
            gone = await Conversations(chat.store, context.keyring, chat.bot.name).forget("test:bot:ana")
            assert gone
            assert await chat.store.scan("link/") == []
        assert {await get(may), await get(june)} == {(404, b"404: Not Found")}


async def test_a_store_that_is_away_is_asked_again(tmp_path: Path) -> None:
    async with reports(tmp_path, "may") as chat, web(chat.worker) as get:
        (link,) = links(chat)
        chat.wire.errors["get"] = [StoreUnavailable("gone"), StoreUnavailable("gone")]
        assert (await get(token(link)))[0] == 503
        assert await get(token(link)) == (200, b"report may")


async def test_a_file_has_no_link_without_a_public_url(tmp_path: Path) -> None:
    agent = Agent([send_report], provider=ScriptedProvider([ToolCall("send_report", {"name": "may"}), "Here."]))
    async with rig(ChannelAgent(agent), tmp_path) as chat:
        await chat.handles("ana", "send me may")
        assert links(chat) == [] and await chat.store.scan("link/") == []
