"""The stage of the kill tests: Telegram, the model and the business are held from outside; the gateway is a process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

from aiohttp import web

from tests.fakes.openai import FakeOpenAI
from tests.fakes.telegram import FakeTelegram

__all__ = ["Business", "Stage", "on_stage"]

SECRET = "kYq2c8Xv0mWn4Zt6"


class Business:
    """Where effects happen. It holds before or after one, and knows what happened, with which key."""

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
        """The invoices it was done to; the same key twice is one effect, as a business with keys makes it."""
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
    """Everything around one gateway process, which can be killed and started again on the same file."""

    def __init__(self, directory: Path, telegram: FakeTelegram, model: FakeOpenAI, business: Business) -> None:
        self.directory, self.telegram, self.model, self.business = directory, telegram, model, business
        self._process: asyncio.subprocess.Process | None = None
        self.log = directory / "gateway.log"

    async def start(self) -> None:
        environment: dict[str, Any] = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "ASKFIRST_STORE": f"sqlite:///{self.directory / 'askfirst.db'}",
            "ASKFIRST_ALLOW": "telegram:*",
            "TELEGRAM_BOT_TOKEN": self.telegram.token,
            "TELEGRAM_WEBHOOK_SECRET": SECRET,
            "TELEGRAM_API_URL": self.telegram.url,
            "OPENAI_API_KEY": self.model.key,
            "OPENAI_BASE_URL": self.model.url,
            "BUSINESS_URL": self.business.url,
        }
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "gateway",
                "serve",
                Path(__file__).with_name("bot.py"),
                "--host=127.0.0.1",
                "--port=0",
                env=environment,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        url = (await self._process.stdout.readline()).decode().rpartition(" ")[2].strip()
        assert url, self.log.read_text()
        await self.telegram_webhook(f"{url}/webhooks/telegram")

    async def telegram_webhook(self, url: str) -> None:
        self.telegram.webhook.update(url=url, secret=SECRET)
        self.telegram._pump()

    async def kill(self) -> None:
        """SIGKILL, as a machine that goes out."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()
        self._process = None

    async def end(self) -> None:
        if self._process is not None:
            await self.kill()

    def texts(self, chat: Any) -> list[str]:
        return [message.text for message in self.telegram.sent if message.chat.id == chat.id]


@contextlib.asynccontextmanager
async def on_stage(directory: Path) -> AsyncIterator[Stage]:
    async with FakeTelegram() as telegram, FakeOpenAI() as model, Business() as business:
        stage = Stage(directory, telegram, model, business)
        try:
            await stage.start()
            yield stage
        finally:
            await stage.end()
