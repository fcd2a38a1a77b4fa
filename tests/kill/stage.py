"""The stage of the kill tests: Telegram, the model and the business are held from outside; gateways are processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from aiohttp import web

from channels import Json
from gateway import AgentTrace
from gateway.assembly import open_store
from gateway.config.settings import Role
from tests.cli.processes import Process, forked
from tests.e2e.house import SECRET, SIGNING
from tests.fakes.openai import Call, FakeOpenAI, Say
from tests.fakes.telegram import FakeTelegram, Message, Press
from tests.store.redis_server import RedisServer

__all__ = ["LEASE_SECONDS", "Business", "Stage", "a_store", "on_stage"]

T = TypeVar("T")

BOT = Path(__file__).with_name("bot.py")
LEASE_SECONDS = 2.0


class Business:
    """The place of the effects. The business can hold before or after an effect, and keeps each effect with its key."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str, str]] = []
        self.hold_before = self.hold_after = False
        self.reached = asyncio.Event()
        self.release = asyncio.Event()
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/do", self._do)
        app.router.add_post("/probe", self._probe)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        self.release.set()
        await self._runner.cleanup()

    def happened(self, what: str) -> list[str]:
        """Return the invoices of an effect. An equal key is the same effect, as in a business with idempotency keys."""
        return [invoice for invoice, _ in dict.fromkeys((i, key) for w, i, key in self.done if w == what)]

    async def _do(self, request: web.Request) -> web.Response:
        body = await request.json()
        if self.hold_before:
            await self._hold()
        self.done.append((body["what"], body["invoice_id"], body["key"]))
        if self.hold_after:
            await self._hold()
        return web.Response(text=f"{body['what']} {body['invoice_id']} ok")

    async def _hold(self) -> None:
        self.reached.set()
        await self.release.wait()

    async def _probe(self, request: web.Request) -> web.Response:
        body = await request.json()
        known = any(invoice == body["invoice_id"] for _, invoice, _ in self.done)
        return web.Response(text="done" if known else "not_done")


class Stage:
    """Everything around gateway processes that share a store. The processes may be killed and restarted."""

    def __init__(
        self,
        directory: Path,
        store: str,
        telegram: FakeTelegram,
        model: FakeOpenAI,
        business: Business,
        processes: contextlib.AsyncExitStack,
    ) -> None:
        self.telegram, self.model, self.business = telegram, model, business
        self.directory = directory
        self.env = {
            "ASKFIRST_STORE": store,
            "ASKFIRST_ALLOW": "telegram:*",
            "TELEGRAM_BOT_TOKEN": telegram.token,
            "TELEGRAM_WEBHOOK_SECRET": SECRET,
            "TELEGRAM_API_URL": telegram.url,
            "OPENAI_API_KEY": model.key,
            "OPENAI_BASE_URL": model.url,
            "BUSINESS_URL": business.url,
        }
        if store.startswith("redis"):
            self.env |= {"ASKFIRST_SECRET": SIGNING, "ASKFIRST_ARTIFACTS": str(directory / "artifacts")}
        self._processes = processes
        self.constants: dict[str, float] = {}  # as of `forked`
        self.ana, self.bot = telegram.person("Ana"), BOT
        self._latest: Process | None = None

    async def start(self, role: Role = "all", bot: Path | None = None, **env: str) -> Process:
        """Start one more process. Telegram's webhook moves there, unless a worker. `env`: for this process only."""
        arguments = ("serve", bot or self.bot, "--host=127.0.0.1", "--port=0", f"--role={role}")
        process = await self._processes.enter_async_context(
            forked(
                *arguments,
                cwd=self.directory,
                env=self.env | env,
                lease_seconds=LEASE_SECONDS,
                constants=self.constants,
            )
        )
        await process.url()
        self._latest = process
        if role != "worker":
            await self.webhook_to(process)
        return process

    async def webhook_to(self, process: Process) -> None:
        self.telegram.webhook.update(url=f"{await process.url()}/webhooks/telegram", secret=SECRET)
        self.telegram._pump()

    async def kill(self) -> None:
        """Kill the latest process with SIGKILL, like a power failure."""
        assert self._latest is not None
        await self._latest.end()

    async def restart(self) -> None:
        """Kill the latest process and start another, without holding effects."""
        await self.kill()
        self.business.hold_before = self.business.hold_after = False
        await self.start()

    async def says(self, text: str, *script: Say | Call) -> None:
        """Ana writes; the model gets this script."""
        self.model.script(script)
        await self.telegram.person_says(self.ana, self.ana, text)

    async def asks(self, tool: str, *more: Say | Call) -> Message:
        """Have the model call a tool for INV-1, and return the question to Ana."""
        await self.says("do it", Call(tool, {"invoice_id": "INV-1"}), *more)
        return await self.until(lambda: self.telegram.last(self.ana, button="Confirm"))

    async def press(self, prompt: Message, *, wait: bool = True) -> Press:
        return await self.telegram.press(prompt, "Confirm", self.ana, wait=wait)

    async def dies_in_effect(self, when: str, prompt: Message | None = None) -> None:
        """Kill the process ``before`` or ``after`` the next effect happens, and start another."""
        self.business.hold_before, self.business.hold_after = when == "before", when == "after"
        if prompt is not None:
            await self.press(prompt)
        await self.business.reached.wait()
        await self.restart()

    async def until(self, condition: Callable[[], T | None]) -> T:
        """Return the first truthy value. Allows for a take-over: on Redis a killed process holds work for a lease."""
        return await self.telegram.wait_for(condition, timeout_seconds=60)

    async def traces(self) -> list[AgentTrace]:
        """Return all stored traces. Kills the latest process first: a single process owns an SQLite file."""
        await self.kill()
        store = open_store(self.env["ASKFIRST_STORE"])
        await store.open()
        try:
            found = [cast("dict[str, Json]", record.value) for _, record in await store.scan("trace/")]
            return [AgentTrace.from_dict(each) for each in found]
        finally:
            await store.close()

    def texts(self, chat: Any = None) -> list[str]:
        return [message.text for message in self.telegram.sent if message.chat.id == (chat or self.ana).id]


@contextlib.asynccontextmanager
async def a_store(kind: str, directory: Path) -> AsyncIterator[str]:
    """The address of a new store of this kind, ``sqlite`` or ``redis``."""
    if kind == "sqlite":
        yield f"sqlite:///{directory / 'askfirst.db'}"
        return
    server = RedisServer(directory)
    await server.start()
    try:
        yield server.url
    finally:
        await server.kill()


@contextlib.asynccontextmanager
async def on_stage(directory: Path, store: str) -> AsyncIterator[Stage]:
    """A stage around this store, without a process yet."""
    async with (
        FakeTelegram() as telegram,
        FakeOpenAI() as model,
        Business() as business,
        contextlib.AsyncExitStack() as processes,
    ):
        yield Stage(directory, store, telegram, model, business, processes)
