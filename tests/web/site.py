"""A site with logged-in people around a real gateway: browsers without a window, and the bot's tools."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from gateway import Agent, ChannelAgent, ChatUser, Confirm, Gateway, Settings, ToolContext, tool
from gateway.web import serve

SECRET = "uB3nT8kQ5rW1xZ6vC9mL2pD7sF4gH0jK"
SHOP = "https://shop.example"
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001"
    "a5f645400000000049454e44ae426082"
)
PEOPLE = {"ana": ChatUser("ana", name="Ana Mota", language="de"), "boss": ChatUser("boss", name="The Boss")}
ids = itertools.count(1)


@dataclass
class Site:
    """The bot and its people. A request logs in by the cookie ``login``, or by the token of an embedding page."""

    gateway: Gateway = field(init=False)
    url: str = ""
    deleted: list[str] = field(default_factory=list)
    ran_for: list[ToolContext] = field(default_factory=list)
    requests: list[web.Request] = field(default_factory=list)
    """The requests shown to `chat_user`."""
    fails: Exception | None = None
    slow: asyncio.Event | None = None

    async def chat_user(self, request: web.Request) -> ChatUser | None:
        self.requests.append(request)
        if self.slow is not None:
            await self.slow.wait()
        if self.fails is not None:
            raise self.fails
        name = request.headers.get("X-Askfirst-User", "").removeprefix("token-of-") or request.cookies.get("login")
        return PEOPLE.get(name, ChatUser(name)) if name else None

    def bot(self) -> ChannelAgent:
        @tool(read_only=True)
        async def list_invoices(ctx: ToolContext) -> str:
            """List the invoices."""
            self.ran_for.append(ctx)
            return "INV-7, INV-42"

        @tool(confirm=Confirm("Delete invoice {invoice_id} for good?"))
        async def delete_invoice(invoice_id: str) -> str:
            """Delete an invoice."""
            self.deleted.append(invoice_id)
            return "deleted"

        return ChannelAgent(Agent([list_invoices, delete_invoice], provider="demo"))

    def _made(self, bot: ChannelAgent, directory: Path, settings: dict[str, Any]) -> Gateway:
        stored = Settings(store=f"sqlite:///{directory / 'askfirst.db'}", **settings)
        return Gateway(bot, stored, chat_user=self.chat_user, chat_hosts=["127.0.0.1", "localhost"])

    @contextlib.asynccontextmanager
    async def served(self, directory: Path, *, bot: ChannelAgent | None = None, **settings: Any) -> AsyncIterator[None]:
        allowed = {"allow": "webchat:*", "secret": SECRET, **settings}
        self.gateway = await asyncio.to_thread(self._made, bot or self.bot(), directory, allowed)
        running = await serve(self.gateway.aiohttp_app(), "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{running.port}"
        try:
            yield
        finally:
            await running.cleanup()


class Visitor:
    """A browser of a person, with its cookies."""

    def __init__(self, site: Site, login: str | None = None, token: str | None = None) -> None:
        jar = aiohttp.CookieJar(unsafe=True, treat_as_secure_origin=[URL(site.url)])
        headers = {"Origin": site.url, **({"X-Askfirst-User": token} if token is not None else {})}
        self.http = aiohttp.ClientSession(site.url, cookie_jar=jar, headers=headers)
        self.site = site
        self.log_in(login)

    def log_in(self, login: str | None) -> None:
        self.http.cookie_jar.clear(lambda cookie: cookie.key == "login")
        if login is not None:
            self.http.cookie_jar.update_cookies({"login": login}, URL(self.site.url))

    async def __aenter__(self) -> Visitor:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.http.close()

    async def opens(self, path: str = "/chat") -> aiohttp.ClientResponse:
        async with self.http.get(path) as response:
            await response.read()
            return response

    async def posts(self, path: str, **body: Any) -> int:
        sent = {
            name: value for name, value in {"client_id": f"client-{next(ids)}", **body}.items() if value is not None
        }
        async with self.http.post(f"/chat/{path}", json=sent) as response:
            return response.status

    async def says(self, text: str, chat: str | None = None) -> int:
        return await self.posts("messages", text=text, chat=chat)

    async def reads(self, count: int, chat: str | None = None) -> list[dict[str, Any]]:
        """Return the first lines of a chat."""
        found: list[dict[str, Any]] = []
        query = f"?chat={chat}" if chat else ""
        async with asyncio.timeout(30), self.http.get(f"/chat/events{query}") as response:
            assert response.status == 200, response.status
            while len(found) < count:
                line = (await response.content.readline()).decode()
                if line.startswith("data: ") and "from" in (entry := json.loads(line[6:])):
                    found.append(entry)
        return found

    async def chats(self) -> list[dict[str, Any]]:
        async with self.http.get("/chat/chats") as response:
            assert response.status == 200, response.status
            return list((await response.json())["chats"])
