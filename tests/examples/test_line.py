"""examples/line.py passes the contract of every channel, and serves a bot when registered like in the example."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import itertools
import json
import os
import re
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from channels import Address, Message, Parsed, Person, WebhookRequest, WebhookResponse
from gateway.testing import RETRY_AFTER_SECONDS, Arrived, ChannelCase, ChannelContract, Delivery, Fault, Webhook
from tests.cli.processes import running
from tests.examples.loading import EXAMPLES, load

LineChannel = load("line").LineChannel
SECRET = "the channel secret of the tests"
TOKEN = "the channel token of the tests"
ANA = "U" + "a1" * 16
SENT_AT = 1_767_225_600_000


class FakeLine:
    """LINE's Messaging API: pushes texts up to the limit, and each retry key once."""

    def __init__(self) -> None:
        self.calls = 0
        self.patient = True
        self._pushed: dict[str, Arrived] = {}
        self._faults: deque[Fault] = deque()
        self._more = asyncio.Condition()

    async def start(self) -> str:
        app = web.Application()
        app.router.add_get("/v2/bot/info", self._info)
        app.router.add_post("/v2/bot/message/push", self._push)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    def arrived(self) -> Sequence[Arrived]:
        return list(self._pushed.values())

    async def text(self, number: int) -> str:
        async with asyncio.timeout(20), self._more:
            await self._more.wait_for(lambda: len(self._pushed) > number)
            return self.arrived()[number].text

    async def fail(self, fault: Fault) -> None:
        if fault == "away":
            await self.stop()
        elif fault == "silent":
            self.patient = False
        self._faults.append(fault)

    async def _info(self, request: web.Request) -> web.Response:
        self.calls += 1
        return web.json_response({"userId": "U" + "0" * 32})

    async def _push(self, request: web.Request) -> web.Response:
        self.calls += 1
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        body = await request.json()
        match self._faults.popleft() if self._faults else None:
            case "limited":
                return web.Response(status=429, headers={"Retry-After": str(RETRY_AFTER_SECONDS)})
            case "refused":
                return web.json_response({"message": "Failed to send messages"}, status=400)
            case "unauthorized":
                return web.json_response({"message": "Authentication failed"}, status=401)
            case "page":
                return web.Response(status=403, text="<html>Denied</html>", content_type="text/html")
            case "broken":
                return web.json_response({"message": "Internal server error"}, status=500)
            case "cut" if request.transport:
                request.transport.abort()
            case "silent":
                await asyncio.sleep(3600)
        [message] = body["messages"]
        if message["type"] != "text" or not 0 < len(message["text"]) <= 5_000:
            return web.json_response({"message": "The request body has 1 error(s)"}, status=400)
        key = request.headers["X-Line-Retry-Key"]
        seen = key in self._pushed
        sent = self._pushed.setdefault(key, Arrived(message_id=f"46{len(self._pushed)}", text=message["text"]))
        async with self._more:
            self._more.notify_all()
        return web.json_response({"sentMessages": [{"id": sent.message_id}]}, status=409 if seen else 200)


def posted(number: int, text: str, sent_at: int = SENT_AT, **more: object) -> WebhookRequest:
    event = {
        "type": "message",
        "webhookEventId": f"01FZ{number}",
        "timestamp": sent_at,
        "source": {"type": "user", "userId": ANA},
        "message": {"type": "text", "id": f"44{number}", "text": text, **more},
    }
    body = json.dumps({"destination": "U" + "0" * 32, "events": [event]}).encode()
    return WebhookRequest("POST", "https://bot.example/webhooks/line", {"content-type": "application/json"}, body)


def prove(request: WebhookRequest, at: datetime, attempt: int) -> WebhookRequest:
    signature = base64.b64encode(hmac.new(SECRET.encode(), request.body, hashlib.sha256).digest()).decode()
    return replace(request, headers={**request.headers, "x-line-signature": signature})


def webhook() -> Webhook:
    message = Message(
        event_ids=("01FZ0",),
        address=Address(channel="line", account="bot", place=ANA),
        person=Person(channel="line", account="bot", user_id=ANA),
        sent_at=datetime.fromtimestamp(SENT_AT / 1000, UTC),
        message_id="440",
        text="delete INV-42",
        reply_to="461",
    )
    numbers = itertools.count(1)
    said = posted(0, "delete INV-42", quotedMessageId="461")
    return Webhook(
        deliveries=[Delivery(name="text", request=said, parsed=Parsed((message,), WebhookResponse()))],
        says=lambda text: posted(next(numbers), text),
        prove=prove,
        proof=["x-line-signature"],
        covers_body=True,
    )


class TestLine(ChannelContract):
    @pytest.fixture
    async def case(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ChannelCase]:
        line = FakeLine()
        short, long = aiohttp.ClientTimeout(total=0.2), LineChannel.limit
        monkeypatch.setattr(LineChannel, "limit", property(lambda channel: long if line.patient else short))
        yield ChannelCase(
            channel=LineChannel,
            settings={"LINE_CHANNEL_SECRET": SECRET, "LINE_CHANNEL_TOKEN": TOKEN, "LINE_API_URL": await line.start()},
            address=Address(channel="line", account="bot", place=ANA),
            webhook=webhook(),
            platform=line,
            recognises_keys=True,
        )
        await line.stop()


def install(site: Path) -> None:
    """Write the files of an installed distribution with the example's entry point."""
    found = re.search(r': line = "(line:\w+)"', (EXAMPLES / "line.py").read_text(encoding="utf-8"))
    assert found is not None
    (site / "line.py").symlink_to(EXAMPLES / "line.py")
    about = site / "askfirst_line-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: askfirst-line\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(f"[askfirst.channels]\nline = {found[1]}\n", encoding="utf-8")


async def test_installed_channel_serves_a_bot(tmp_path: Path) -> None:
    install(tmp_path)
    line = FakeLine()
    env = {
        "PYTHONPATH": os.pathsep.join(map(str, (EXAMPLES.parent, tmp_path))),
        "ASKFIRST_STORE": f"sqlite:///{tmp_path / 'askfirst.db'}",
        "ASKFIRST_ALLOW": f"line:bot:{ANA}",
        "LINE_CHANNEL_SECRET": SECRET,
        "LINE_CHANNEL_TOKEN": TOKEN,
        "LINE_API_URL": await line.start(),
    }
    bot = EXAMPLES / "approval.py"
    async with (
        aiohttp.ClientSession() as http,
        running("serve", bot, "--host", "127.0.0.1", "--port", "0", cwd=tmp_path, env=env) as server,
    ):
        url = f"{await server.url()}/webhooks/line"

        async def says(number: int, text: str) -> int:
            now = datetime.now(UTC)
            proven = prove(posted(number, text, int(now.timestamp() * 1000)), now, 1)
            async with http.post(url, data=proven.body, headers=dict(proven.headers)) as answer:
                return answer.status

        assert await says(1, "refund order A-17") == 200
        asked = await line.text(0)
        assert "Refund order A-17?" in asked
        code = re.search(r"\bOK ([A-Z0-9]{4})\b", asked)
        assert code is not None, asked
        assert await says(2, f"OK {code[1]}") == 200
        assert await line.text(1) == "40 EUR go back to Ana."
    await line.stop()
