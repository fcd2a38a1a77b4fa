"""An ordinary webhook takes the fast path. The answers of both paths are equal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp.web import BaseRequest

from channels import Channel, Media, Parsed, WebhookRequest, WebhookResponse
from channels.telegram.channel import TelegramChannel
from gateway.artifacts import ArtifactStore, Holder
from gateway.observe.event_log import EventLog
from gateway.observe.teller import Teller
from gateway.store.errors import StoreUnavailable
from gateway.web import Ready, Running, fast_path, serve, web_app
from tests.web.conftest import KEY, now
from tests.web.raw import exchange, status

SECRET = "a-secret-of-telegrams-0123456789"
PERSON = {"id": 5, "is_bot": False, "first_name": "Ana"}
MESSAGE = {"message_id": 1, "date": 1, "chat": {"id": 5, "type": "private"}, "from": PERSON, "text": "hello"}
BODY = json.dumps({"update_id": 1, "message": MESSAGE}).encode()
LAST = b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


class Odd(TelegramChannel):
    """Answers with the received headers as JSON."""

    said = "heard"

    def parse(self, request: WebhookRequest) -> Parsed:
        heard = json.dumps(dict(request.headers)).encode()
        return Parsed(
            super().parse(request).events,
            WebhookResponse(202, {"Content-Type": "application/json", "X-Said": self.said}, heard),
        )


@contextlib.asynccontextmanager
async def serving(channel: Channel, directory: Path) -> AsyncIterator[tuple[Running, list[str]]]:
    texts: list[str] = []

    async def accept(channel: Channel, parsed: Parsed) -> None:
        if "full" in texts:
            raise StoreUnavailable("the disk is full: make room")
        texts.extend(str(getattr(event, "text", "")) for event in parsed.events)

    async def ready() -> Ready:
        return Ready(True, {})

    files = ArtifactStore(directory, [KEY], public_url=None, now=now)

    async def follow(token: str) -> tuple[Path, Media, Holder]:
        return files.resolve(token)

    app = web_app(
        channels={"telegram": channel},
        accept=accept,
        follow=follow,
        ready=ready,
        now=now,
        events=Teller(readers=[EventLog()]),
    )
    running = await serve(app, "127.0.0.1", 0)
    try:
        yield running, texts
    finally:
        await running.cleanup()


def post(*lines: str, body: bytes = BODY, version: str = "1.1", length: bool = True) -> bytes:
    """A request as Telegram sends it, with these headers added."""
    head = [
        f"POST /webhooks/telegram HTTP/{version}",
        "Host: a",
        f"X-Telegram-Bot-Api-Secret-Token: {SECRET}",
        *([f"Content-Length: {len(body)}"] if length else []),
        *lines,
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


def parts(answer: bytes) -> tuple[bytes, dict[bytes, bytes], bytes]:
    head, _, rest = answer.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    return first, dict(line.split(b": ", 1) for line in lines), rest


class ShortWays(list[str]):
    """The paths of the requests on the fast path."""

    def __init__(self) -> None:
        super().__init__()
        self.looked = asyncio.Event()
        """Set once `is_ordinary` has judged a request, with the part of the body there."""


@pytest.fixture
def short_ways(monkeypatch: pytest.MonkeyPatch) -> ShortWays:
    gone = ShortWays()
    ordinary = fast_path.is_ordinary

    def noted(request: BaseRequest, most_bytes: int) -> bool:
        is_so = ordinary(request, most_bytes)
        if is_so:
            gone.append(request.path)
        gone.looked.set()
        return is_so

    monkeypatch.setattr("gateway.web.serving.is_ordinary", noted)
    return gone


async def test_ordinary_webhook_takes_the_fast_path(tmp_path: Path, short_ways: ShortWays) -> None:
    channel = Odd("123456:abc", SECRET)
    async with serving(channel, tmp_path) as (running, texts):
        answer = await exchange(running.port, post("X-Twice: one", "x-twice: two"), LAST)
    first, headers, rest = parts(answer)
    length = int(headers[b"Content-Length"])
    assert (first, headers[b"X-Said"], texts) == (b"HTTP/1.1 202 Accepted", b"heard", ["hello"])
    assert json.loads(rest[:length])["x-twice"] == "one, two"
    assert headers[b"Date"].endswith(b" GMT")
    assert b"Server" not in headers
    assert rest[length:].startswith(b"HTTP/1.1 200 OK")
    assert short_ways == ["/webhooks/telegram"]


@pytest.mark.parametrize(
    "sent",
    [
        [post(version="1.0")],
        [post("Connection: close")],
        [post("Expect: 100-continue", "Connection: close")],
        [post()[:-10], post()[-10:] + LAST],
        [post("Transfer-Encoding: chunked", length=False, body=b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)) + LAST],
    ],
    ids=["an old client", "a last request", "a careful client", "in two pieces", "in chunks"],
)
async def test_unusual_webhook_is_answered_alike(tmp_path: Path, sent: list[bytes], short_ways: ShortWays) -> None:
    async with serving(TelegramChannel("123456:abc", SECRET), tmp_path) as (running, texts):
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        for piece in sent:
            writer.write(piece)
            await short_ways.looked.wait()  # the first piece is read before the second is there
        answer = (await reader.read()).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        writer.close()
    first, headers, _ = parts(answer)
    assert first.endswith(b"200 OK")
    assert (headers[b"Content-Length"], texts) == (b"0", ["hello"])
    assert b"Server" not in headers
    assert short_ways == []


async def test_pipelined_webhooks_are_answered_in_order(tmp_path: Path) -> None:
    async with serving(TelegramChannel("123456:abc", SECRET), tmp_path) as (running, texts):
        forged = post().replace(SECRET.encode(), b"a-guess-of-somebody-else-0123456")
        answer = await exchange(running.port, post() + forged + post() + LAST)
    assert [int(line.split()[0]) for line in answer.split(b"HTTP/1.1 ")[1:]] == [200, 401, 200, 200]
    assert texts == ["hello", "hello"]


@pytest.mark.parametrize(
    "odd",
    [
        WebhookResponse(204, {}, b"x"),
        WebhookResponse(304, {}, b"x"),
        WebhookResponse(200, {"content-length": "1"}, b"x"),
        WebhookResponse(200, {"Server": "theirs"}, b""),
        WebhookResponse(200, {}, b"x"),
    ],
)
async def test_an_answer_that_is_not_plain_is_mended(tmp_path: Path, odd: WebhookResponse) -> None:
    class Theirs(TelegramChannel):
        def parse(self, request: WebhookRequest) -> Parsed:
            return Parsed((), odd)

    async with serving(Theirs("123456:abc", SECRET), tmp_path) as (running, _):
        answer = await exchange(running.port, post() + LAST)
    assert [int(line.split()[0]) for line in answer.split(b"HTTP/1.1 ")[1:]] == [odd.status, 200]
    first, headers, rest = parts(answer)
    expected = b"" if odd.status in (204, 304) else odd.body
    assert rest.startswith(expected + b"HTTP/1.1 200")
    assert first.startswith(b"HTTP/1.1 %d" % odd.status)
    assert answer.lower().count(b"content-length: 1") <= 1
    assert b"theirs" not in answer
    assert b"aiohttp" not in answer
    assert b"Content-Type" in headers or not expected


async def test_refused_requests_are_one_line_a_second(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        async with serving(TelegramChannel("123456:abc", SECRET), tmp_path) as (running, texts):
            forged = post().replace(SECRET.encode(), b"a-guess-of-somebody-else-0123456")
            texts.append("full")
            answer = await exchange(running.port, (post() + forged) * 30 + LAST)
    assert [answer.count(b"HTTP/1.1 %d" % code) for code in (503, 401)] == [30, 30]
    lines = [record for record in caplog.records if record.name == "gateway.web.webhooks"]
    assert len(lines) < 20
    (first, *_) = [vars(line) for line in lines if line.levelno == logging.WARNING]
    assert (first["channel"], first["reason"]) == ("telegram", "StoreUnavailable")
    assert first["why"] == "the disk is full: make room"


async def test_header_with_a_line_break_is_not_sent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    channel = Odd("123456:abc", SECRET)
    channel.said = "heard\r\nSet-Cookie: theirs"
    with caplog.at_level(logging.ERROR):
        async with serving(channel, tmp_path) as (running, _):
            answer = await exchange(running.port, post())
    assert status(answer) == 500
    assert b"Set-Cookie" not in answer
    assert "a request could not be handled" in caplog.text
