"""Kept files, webhooks and health over HTTP."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime

import aiohttp
import pytest

from channels import Forged, Media, Stale, WebhookRequest
from channels.webchat import COOKIE, SessionCookies
from gateway.observe.event_log import EventLog
from gateway.observe.events import WebhookRejected
from gateway.observe.teller import Teller
from gateway.store.errors import Conflict, Overloaded, StoreUnavailable
from gateway.web import receive, webhooks
from gateway.web.webhooks import ACCEPT_SECONDS, RefusalMonitor
from tests.told import Told
from tests.web.conftest import KEY, LOGGED, Bot, Start

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SESSION = SessionCookies([KEY]).begin(NOW, lambda size: bytes(size))
HEADERS = {
    "host": "127.0.0.1:8000",
    "origin": "http://127.0.0.1:8000",
    "cookie": f"{COOKIE}={SESSION.cookie}",
}


def said(body: bytes = b'{"client_id": "12345678", "text": "hello"}', **headers: str) -> WebhookRequest:
    return WebhookRequest("POST", "http://127.0.0.1:8000/chat/messages", {**HEADERS, **headers}, body)


async def test_a_proven_webhook_is_stored_before_the_answer(bot: Bot) -> None:
    response = await receive(bot.channel, said(), accept=bot.accept, now=NOW)
    assert (response.status, response.body) == (200, b'{"status": "accepted"}')
    assert len(bot.accepted) == 1


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (said(cookie=""), 401),
        (said(origin="http://evil.example"), 401),
        (said(b"not json"), 400),
        (said(b'{"client_id": "12345678", "text": "\\ud800"}'), 400),
        (said(b"[" * 100_000), 400),
    ],
)
async def test_unproven_or_unreadable_reaches_no_store(bot: Bot, request_: WebhookRequest, status: int) -> None:
    assert (await receive(bot.channel, request_, accept=bot.accept, now=NOW)).status == status
    assert bot.accepted == []


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), Overloaded("full"), Conflict("x"), ZeroDivisionError()])
async def test_a_webhook_that_is_not_stored_asks_for_redelivery(bot: Bot, error: Exception) -> None:
    bot.fail.append(error)
    response = await receive(bot.channel, said(), accept=bot.accept, now=NOW)
    assert (response.status, response.headers["Retry-After"]) == (503, "5")
    assert str(error).encode() not in response.body or not str(error)


async def test_hanging_store_is_given_up(
    bot: Bot, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "ACCEPT_SECONDS", ACCEPT_SECONDS)

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    begun = time.monotonic()
    assert (await receive(bot.channel, said(), accept=never, now=NOW, events=LOGGED)).status == 503
    assert time.monotonic() - begun < 5
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_kept_file_is_served_inert_under_its_name_and_type(bot: Bot, start: Start) -> None:
    media = await bot.keeps(b"<html><script>alert(1)</script>", 'Über "uns".html')
    async with start(), aiohttp.ClientSession() as http:
        url = f"{bot.url}/{bot.link(media, lives_seconds=60)}"
        async with http.get(url) as response:
            assert (response.status, await response.read()) == (200, b"<html><script>alert(1)</script>")
            headers = response.headers
        async with http.head(url) as response:
            assert (response.status, response.headers["Content-Length"]) == (200, str(media.size))
        async with http.get(url, headers={"Range": "bytes=6-13"}) as response:
            assert (response.status, await response.read()) == (206, b"<script>")
            assert response.headers["Content-Range"] == f"bytes 6-13/{media.size}"

    assert headers["Content-Type"] == "text/html"
    assert headers["Content-Length"] == str(media.size)
    both = "attachment; filename=\"_ber _uns_.html\"; filename*=UTF-8''%C3%9Cber%20_uns_.html"
    assert headers["Content-Disposition"] == both
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"] == "default-src 'none'; sandbox"


@pytest.mark.parametrize("filename", ["report.js", "report.mjs", "report.css"])
async def test_a_kept_script_is_no_script_of_the_chat_page(bot: Bot, start: Start, filename: str) -> None:
    """The page may load scripts and styles of this host. With `nosniff` the type alone marks a script."""
    media = await bot.keeps(b"alert(1)", filename)
    async with (
        start(),
        aiohttp.ClientSession() as http,
        http.get(f"{bot.url}/{bot.link(media, lives_seconds=60)}") as response,
    ):
        assert response.headers["Content-Type"] == "application/octet-stream"
        assert response.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_link_with_any_bit_flipped_leads_nowhere(bot: Bot, start: Start) -> None:
    media = await bot.keeps(b"secret", "secret.txt")
    token = bot.link(media, lives_seconds=60).partition("/")[2]
    async with start(), aiohttp.ClientSession() as http:
        for position in range(len(token) * 8):
            flipped = bytearray(token.encode())
            flipped[position // 8] ^= 1 << position % 8
            async with http.get(f"{bot.url}/artifacts/{flipped.decode('latin-1')}") as response:
                assert response.status == 404


async def test_missing_file_and_ended_link_are_not_found(bot: Bot, start: Start) -> None:
    media = await bot.keeps(b"gone", "gone.txt")
    gone = Media(sha256="0" * 64, mime_type="text/plain", filename="never.txt", size=1)
    async with start(), aiohttp.ClientSession() as http:
        for path in (
            bot.link(gone, lives_seconds=60),
            bot.link(media, lives_seconds=-1),
        ):
            async with http.get(f"{bot.url}/{path}") as response:
                assert response.status == 404


async def test_a_link_is_not_followed_while_the_store_is_away(bot: Bot, start: Start) -> None:
    link = bot.link(await bot.keeps(b"secret", "secret.txt"), lives_seconds=60)
    async with start(), aiohttp.ClientSession() as http:
        bot.fail.append(StoreUnavailable("gone"))
        async with http.get(f"{bot.url}/{link}") as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "5")


async def test_health_shows_liveness_and_readiness_only(bot: Bot, start: Start) -> None:
    async with start(), aiohttp.ClientSession() as http:
        async with http.get(f"{bot.url}/livez") as response:
            assert (response.status, await response.text()) == (200, "live")
        async with http.get(f"{bot.url}/readyz") as response:
            assert (response.status, await response.json()) == (200, {"store": True, "channels": {"webchat": True}})
        bot.fail.append(StoreUnavailable("gone"))
        async with http.get(f"{bot.url}/readyz") as response:
            assert (response.status, await response.json()) == (503, {"store": False, "channels": {"webchat": True}})


@pytest.mark.parametrize(
    ("error", "reason", "loud"),
    [(StoreUnavailable("gone"), "StoreUnavailable", False), (KeyError("x"), "KeyError", True)],
)
async def test_a_refused_request_is_told_once_and_the_log_reads_it(
    bot: Bot, caplog: pytest.LogCaptureFixture, error: Exception, reason: str, loud: bool
) -> None:
    told = Told()
    bot.fail.append(error)
    events = Teller(readers=[EventLog(), told])
    await receive(bot.channel, said(), accept=bot.accept, now=NOW, events=events)
    (event,) = told.of_kind(WebhookRejected)
    assert (event.status, event.reason) == (503, reason)
    (line,) = [record for record in caplog.records if record.getMessage() == "a request was not stored"]
    assert (line.levelname, vars(line)["reason"], bool(line.exc_info)) == ("ERROR" if loud else "WARNING", reason, loud)


# ── a channel that refuses all that comes ──


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def monitor(clock: Clock) -> RefusalMonitor:
    return RefusalMonitor(clock)


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_slow_clock_is_told_within_a_minute(monitor: RefusalMonitor, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        monitor.refused("slack", Stale("too old"))
    (said,) = warned(caplog)
    assert "slack: every request of the last minute was refused" in said and "set this machine's clock by NTP" in said
    assert list(monitor.why) == ["slack"]


@pytest.mark.parametrize(
    ("channel", "name"), [("slack", "SLACK_SIGNING_SECRET"), ("telegram", "TELEGRAM_WEBHOOK_SECRET")]
)
def test_wrong_secret_named(monitor: RefusalMonitor, caplog: pytest.LogCaptureFixture, channel: str, name: str) -> None:
    for _ in range(3):
        monitor.refused(channel, Forged("no"))
    (said,) = warned(caplog)
    assert name in said


def test_a_hearing_channel_is_not_deaf(monitor: RefusalMonitor, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """Anyone with the URL can post refused requests."""
    monitor.accepted("slack")
    for _ in range(100):
        monitor.refused("slack", Forged("no"))
    assert (warned(caplog), dict(monitor.why)) == ([], {})
    clock.now += 601
    for _ in range(3):
        monitor.refused("slack", Forged("no"))
    assert list(monitor.why) == ["slack"]
    monitor.accepted("slack")
    assert dict(monitor.why) == {}


def test_few_refusals_over_a_long_time_are_not_reported(monitor: RefusalMonitor, clock: Clock) -> None:
    for _ in range(10):
        monitor.refused("telegram", Forged("no"))
        clock.now += 31
    assert dict(monitor.why) == {}


def test_deaf_channel_is_told_hourly(monitor: RefusalMonitor, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        for _ in range(5):
            monitor.refused("telegram", Forged("no"))
        clock.now += 1801
    assert len(warned(caplog)) == 2
