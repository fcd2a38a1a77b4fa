"""A real server with a real store and every platform, and a client for the requests of `requests`."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import logging
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from urllib.parse import parse_qsl

from multidict import MultiDict
from twilio.request_validator import RequestValidator

from gateway import Gateway, Settings, emit_artifact
from gateway.artifacts import OfConversation, collecting
from gateway.providers import make_provider
from gateway.web import serve
from tests.channels.slack.case import BOT, TEAM
from tests.channels.twilio.forms import ACCOUNT_SID, OURS
from tests.e2e.house import SECRET, SIGNING, Shop
from tests.fakes.slack import FakeSlack
from tests.fakes.telegram import FakeTelegram
from tests.fakes.twilio import FakeTwilio
from tests.fuzz.requests import TOKEN, Request
from tests.ports import free_port

__all__ = ["Rig", "opened"]

HANGS_SECONDS = 20.0
"""The server itself ends a slow request after ten seconds."""


class Rig:
    """`wrong`: the failures: an answer of 500 and above, no answer, a traceback in the log."""

    def __init__(self, gateway: Gateway, port: int, telegram: FakeTelegram, slack: FakeSlack, token: str) -> None:
        self.gateway, self._port, self._token = gateway, port, token
        self._telegram, self._slack = telegram, slack
        self.answers: Counter[tuple[str, int]] = Counter()
        """(path, status) -> the number of answers."""
        self.wrong: list[tuple[Request, str]] = []
        self._log = _Log()

    async def send(self, requests: Iterable[Request], *, clients: int = 4) -> None:
        """Send the requests by parallel clients. Returns when all are answered and the resulting work is done."""
        waiting = iter(requests)

        async def client() -> None:
            async with contextlib.AsyncExitStack() as stack:
                line = await stack.enter_async_context(_Line(self._port))
                for request in waiting:
                    try:
                        status = await line.exchange(self._written(request), request)
                    except TimeoutError:
                        self.wrong.append((request, "no answer"))
                        await line.close()
                        continue
                    self.answers[request.path, status] += 1
                    if status >= 500:
                        self.wrong.append((request, f"answered {status}"))
                    self.wrong += [(request, told) for told in self._log.taken()]

        logging.getLogger().addHandler(self._log)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(clients):
                    group.create_task(client())
            await self.idle()
        finally:
            logging.getLogger().removeHandler(self._log)
        self.wrong += [(Request(path="any of them"), told) for told in self._log.taken()]

    async def idle(self) -> None:
        async with asyncio.timeout(120):
            while not await self.gateway.engine.idle():
                await asyncio.sleep(0.01)

    async def answers_somebody_new(self) -> bool:
        """Return True if a new person is answered. The store's clock is moved on for paced messages."""
        telegram, new = self._telegram, self._telegram.person("Zoe")
        telegram.webhook.update(url=f"http://127.0.0.1:{self._port}/webhooks/telegram", secret=SECRET)
        await telegram.person_says(new, new, "hello")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(30):
                while telegram.last(new) is None:
                    self.gateway.store.offset_seconds += 1.0
                    await self.gateway.engine.due()
                    await asyncio.sleep(0.01)
        return telegram.last(new) is not None

    def _written(self, request: Request) -> bytes:
        path = request.path.replace(TOKEN, self._token)
        lines = [f"{request.method} {path} HTTP/1.1".encode("utf-8", "replace"), b"Host: 127.0.0.1"]
        headers = [*request.headers, *self._proof(request)]
        lines += [name.encode() + b": " + value.encode("latin-1") for name, value in headers]
        if not any(name == "Content-Length" for name, _ in headers) and (request.body or request.method == "POST"):
            lines.append(b"Content-Length: %d" % len(request.body))
        return b"\r\n".join([*lines, b"", request.body])

    def _proof(self, request: Request) -> list[tuple[str, str]]:
        match request.proof:
            case "telegram":
                return [("X-Telegram-Bot-Api-Secret-Token", SECRET)]
            case "slack":
                return list(self._slack.signed(request.body).items())
            case "twilio":
                pairs = parse_qsl(request.body.decode("latin-1"), keep_blank_values=True, encoding="utf-8")
                url = f"http://127.0.0.1:{self._port}{request.path}"
                return [("X-Twilio-Signature", RequestValidator(_TOKEN).compute_signature(url, MultiDict(pairs)))]
            case "guess":
                guess = base64.b64encode(hashlib.sha256(request.body).digest()).decode()
                names = ("X-Telegram-Bot-Api-Secret-Token", "X-Slack-Signature", "X-Twilio-Signature")
                return [("X-Slack-Request-Timestamp", str(int(time.time()))), *((name, guess) for name in names)]
        return []


_TOKEN = "f0e1d2c3b4a5968778695a4b3c2d1e0f"


class _Line:
    """A connection, opened again after a close by the server or a request without a clear end."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> _Line:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(ConnectionError):
                await self._writer.wait_closed()
        self._reader = self._writer = None

    async def exchange(self, sent: bytes, request: Request) -> int:
        """Return the status of the answer; 0 if the server closed. Raises TimeoutError."""
        async with asyncio.timeout(HANGS_SECONDS):
            if self._reader is None or self._writer is None:
                self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
            try:
                self._writer.write(sent)
                if not request.whole:
                    self._writer.write_eof()
                head = await self._reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                status = int(head.split(b" ", 2)[1])
                if request.method != "HEAD" and length:
                    await self._reader.readexactly(int(length[1]))
                elif request.method != "HEAD" and re.search(rb"(?i)transfer-encoding: chunked", head):
                    await self._reader.readuntil(b"0\r\n\r\n")
            except (ConnectionError, asyncio.IncompleteReadError):
                await self.close()
                return 0
        if not request.whole or re.search(rb"(?i)connection: close|HTTP/1.0", head):
            await self.close()
        return status


class _Log(logging.Handler):
    """Collects the forbidden lines of the log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        wrong_here = record.name.startswith("gateway.web") and record.levelno >= logging.ERROR
        if wrong_here or record.exc_info or record.name == "asyncio":
            self._told.append(f"{record.name}: {record.getMessage()} {record.exc_info and record.exc_info[1]!r}")

    def taken(self) -> list[str]:
        told, self._told = self._told, []
        return told


@contextlib.asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[Rig]:
    """A server with store and files in the directory."""
    async with contextlib.AsyncExitStack() as stack:
        telegram = await stack.enter_async_context(FakeTelegram())
        slack = FakeSlack()
        slack.team, slack.bot_user = TEAM, BOT
        await stack.enter_async_context(slack)
        twilio = FakeTwilio(sms=OURS, whatsapp=OURS, auth_token=_TOKEN, reports=())
        twilio.account_sid = ACCOUNT_SID
        await stack.enter_async_context(twilio)
        port = free_port()
        settings = Settings(
            store=f"sqlite:///{directory / 'askfirst.db'}",
            secret=SIGNING,
            allow="*",
            public_url=f"http://127.0.0.1:{port}",
            telegram_bot_token=telegram.token,
            telegram_webhook_secret=SECRET,
            telegram_api_url=telegram.url,
            slack_bot_token=slack.bot_token,
            slack_signing_secret=slack.signing_secret,
            slack_api_url=slack.api_url,
            twilio_account_sid=ACCOUNT_SID,
            twilio_auth_token=_TOKEN,
            twilio_sms_from=OURS,
            twilio_whatsapp_from=f"whatsapp:{OURS}",
            twilio_api_url=twilio.url,
        )
        bot = Shop().bot(make_provider("demo", environ={}))
        gateway = await stack.enter_async_context(await asyncio.to_thread(Gateway, bot, settings))
        running = await serve(gateway.aiohttp_app(), "127.0.0.1", port)
        stack.push_async_callback(running.cleanup)
        with collecting() as artifacts:
            emit_artifact(content=b"a file of some length", filename="file.txt")
        files = gateway.engine.context.artifacts
        link = files.path(await files.keep(artifacts[0]), OfConversation("shop/telegram:1:2"), lives_seconds=3600)
        yield Rig(gateway, port, telegram, slack, link.removeprefix("artifacts/"))
