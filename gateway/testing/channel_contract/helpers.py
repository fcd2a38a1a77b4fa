"""The fixtures and helpers shared by the tests of the channel contract."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ParamSpec

import aiohttp
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings
from pydantic import TypeAdapter
from yarl import URL

from channels import Address, Channel, Event, Forged, Media, OpenMedia, Parsed, Part, Receipt, Reply, WebhookRequest
from channels.catalogue import BUILT_IN, Setting
from channels.events import event_from_json, event_to_json
from gateway.artifacts import ArtifactStore, Holder, OfConversation, collecting, emit_artifact
from gateway.engine.delivery.visible_log import bot_line
from gateway.observe.event_log import EventLog
from gateway.observe.teller import Teller
from gateway.testing.channel_contract.case import Arrived, ArrivedFile, ChannelCase, Webhook
from gateway.web import Ready, serve, web_app

P = ParamSpec("P")

NOW = datetime(2026, 1, 1, tzinfo=UTC)
"""The time of every request."""

any_input = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,  # examples share a channel, which has no state that they could change
        HealthCheck.differing_executors,  # one test, inherited by the suite of each channel
        HealthCheck.too_slow,  # each example may be several calls to a real server
    ],
)
"""The Hypothesis settings of the contract. The number of examples is the profile's: 100 if none is loaded."""


def with_proof(webhook: Webhook, request: WebhookRequest, at: datetime = NOW, attempt: int = 1) -> WebhookRequest:
    """Return the request as sent by the platform, with the proof."""
    return webhook.prove(request, at, attempt)


def settings_of(channel: type[Channel]) -> tuple[Setting, ...]:
    """Return the settings of a channel, from the catalogue, or else from the channel's class."""
    entry = BUILT_IN.get(channel.name)
    return entry.settings if entry else tuple(getattr(channel, "settings", ()))


def make_channel(case: ChannelCase) -> Channel:
    """Return the channel of the case, not started yet."""
    return case.channel.from_settings(case.settings, way="webhook" if case.webhook else "polling")


def webhook_test(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, Coroutine[Any, Any, None]]:
    """Decorate a test with a webhook. For a channel without webhook, check that every request is refused."""

    @functools.wraps(test)
    async def shown(*args: P.args, **kwargs: P.kwargs) -> None:
        fixtures: dict[str, Any] = {**kwargs}
        if fixtures["webhook"] is not None:
            await test(*args, **kwargs)
            return
        channel: Channel = fixtures["channel"] if "channel" in fixtures else fixtures["web_server"].channel
        with pytest.raises(Forged):
            channel.verify(WebhookRequest("POST", "https://bot.example/webhooks/x", {}, b"{}"), NOW)

    return shown


# ── pure ──

_noted: list[str] | None = None
_watched = 0
"""The id of the thread forbidden to do I/O; 0 before the first use."""
_OUTSIDE = ("open", "socket.", "subprocess.", "sqlite3.", "os.system", "os.exec", "os.posix_spawn", "time.sleep")


def _note_audit_event(event: str, arguments: tuple[Any, ...]) -> None:
    """Note an audit event of the watched thread.

    An audit hook cannot be removed (https://docs.python.org/3/library/audit_events.html).
    """
    if _noted is None or threading.get_ident() != _watched or not event.startswith(_OUTSIDE):
        return
    if event == "open" and str(arguments[0]).endswith((".py", ".pyc", ".so", ".pyd")):
        return  # a module that is imported at its first use
    _noted.append(event)


@contextlib.contextmanager
def without_io(what: str) -> Iterator[None]:
    """Raise AssertionError if the block opens a file, a connection or a process, sleeps or starts a task."""
    global _noted, _watched
    if not _watched:
        sys.addaudithook(_note_audit_event)
    _watched = threading.get_ident()
    tasks = asyncio.all_tasks()
    noted: list[str] = []
    _noted = noted
    try:
        yield
    finally:
        _noted = None
    assert noted == [], f"{what} must be pure, and did: {noted}"
    assert asyncio.all_tasks() <= tasks, f"{what} must be pure, and started a task"


# ── events ──


def check_event(channel: Channel, event: Event) -> None:
    """Check the rules of every event."""
    assert event.event_ids, "without an id a twin is not recognised"
    assert all(isinstance(each, str) and each for each in event.event_ids), event.event_ids
    address, person = event.address, event.person
    assert address.channel == channel.name
    assert Address.parse(str(address)) == replace(address, group=False), f"not read again as written: {address}"
    if person is not None:
        assert person.channel == channel.name
        assert str(person).split(":", 2) == [person.channel, person.account, person.user_id]
        read = Address.parse(str(person))
        assert (read.account, read.place, read.thread) == (person.account, person.user_id, None), str(person)
    assert event.sent_at is None or event.sent_at.tzinfo is not None
    assert event_from_json(_through_json(event_to_json(event))) == event, "not the same after it was stored"


def _through_json(value: Any) -> Any:
    """Return a JSON value as read back from a store. Raises for a lone surrogate: a store cannot hold lone
    surrogates."""
    return json.loads(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())


# ── a chat, and the web server ──


_PART = TypeAdapter(Part)


def as_stored(part: Part) -> Part:
    """Return the part as returned by the outbox."""
    return _PART.validate_python(_through_json(_PART.dump_python(part, mode="json")))


async def media_of(files: ArtifactStore, content: bytes, filename: str, mime_type: str) -> Media:
    """Keep a file, and return the file as media."""
    with collecting() as artifacts:
        emit_artifact(content=content, filename=filename, mime_type=mime_type)
    return await files.keep(artifacts[0])


@dataclass
class WebServer:
    """The gateway's own web server in front of the channel."""

    url: str
    channel: Channel
    stored: list[Parsed]


class Chat:
    """A chat. Replies take the engine's way: rendered, stored, read again, files opened, sent."""

    def __init__(self, case: ChannelCase, channel: Channel, files: ArtifactStore, url: str) -> None:
        self._case, self._channel, self._url = case, channel, url
        self.files = files
        self._log: dict[str, Arrived] = {}
        self._keys = 0

    @property
    def address(self) -> Address:
        return self._case.address

    def render(self, reply: Reply) -> Sequence[Part]:
        return self._channel.render(self.address, reply)

    async def say(self, reply: Reply | str) -> list[Receipt]:
        reply = Reply(text=reply) if isinstance(reply, str) else reply
        return [await self.send(part, edits=reply.edits) for part in self.render(reply)]

    async def send(
        self, part: Part, *, key: str | None = None, edits: str | None = None, opened: OpenMedia | None = None
    ) -> Receipt:
        """Send a part as the outbox does. `opened` is the part's file, for a file not kept by the store."""
        self._keys += 1
        part = as_stored(part)
        if part.media is not None:
            part = replace(part, media=opened or self._opened(part.media))
        receipt = await self._channel.send(self.address, part, key=key or f"{self._keys:032x}")
        if self._channel.capabilities.visible:
            await self._show(part, receipt, edits)
        return receipt

    def _opened(self, media: Media) -> OpenMedia:
        link = f"{self._url}/{self.files.path(media, OfConversation('contract'), lives_seconds=3600)}"
        return self.files.open(media, link)

    def arrived(self) -> list[Arrived]:
        """Return the messages seen by the person, oldest first."""
        return list(self._case.platform.arrived() if self._case.platform else self._log.values())

    async def _show(self, part: Part, receipt: Receipt, edits: str | None) -> None:
        """Record the line of the visible log, as written by delivery. An edit replaces the line of the edited
        message."""
        _, entry = bot_line("contract", part, receipt.message_id, edits)
        assert isinstance(entry, dict)
        media = part.media
        file = None
        if isinstance(media, OpenMedia):
            content = await asyncio.to_thread(media.path.read_bytes)
            file = ArrivedFile(content=content, mime_type=media.mime_type, filename=media.filename)
        message_id = str(edits or receipt.message_id)
        self._log[message_id] = Arrived(
            message_id=message_id,
            text=str(entry["text"]),
            buttons=tuple((button.label, button.token) for button in part.buttons),
            file=file,
        )


class Contract:
    """The base of the tests, with the shared fixtures. A subclass adds the fixture `case`."""

    pytestmark = pytest.mark.asyncio

    @pytest_asyncio.fixture
    async def channel(self, case: ChannelCase) -> AsyncIterator[Channel]:
        """Yield the channel of the case, started."""
        connector = aiohttp.TCPConnector(force_close=True)  # so that "away" is a refused connection, not a broken one
        async with aiohttp.ClientSession(connector=connector) as http:
            channel = make_channel(case)
            await channel.start(http)
            yield channel
            await channel.close()

    @pytest.fixture
    def webhook(self, case: ChannelCase) -> Webhook | None:
        return case.webhook

    @pytest.fixture
    def files(self, tmp_path: Path) -> ArtifactStore:
        return ArtifactStore(tmp_path / "artifacts", [b"k" * 32], public_url=None, now=lambda: NOW)

    @pytest_asyncio.fixture
    async def web_server(self, case: ChannelCase, channel: Channel, files: ArtifactStore) -> AsyncIterator[WebServer]:
        parsed: list[Parsed] = []

        async def accept(channel: Channel, read: Parsed) -> None:
            parsed.append(read)

        async def ready() -> Ready:
            return Ready(True, {})

        async def follow(token: str) -> tuple[Path, Media, Holder]:
            return files.resolve(token)

        app = web_app(
            channels={channel.name: channel},
            accept=accept,
            events=Teller(readers=[EventLog()]),
            follow=follow,
            ready=ready,
            now=lambda: NOW,
            public_url=_origin(case.webhook),
        )
        running = await serve(app, "127.0.0.1", 0)
        try:
            yield WebServer(f"http://127.0.0.1:{running.port}", channel, parsed)
        finally:
            await running.cleanup()

    @pytest.fixture
    def chat(self, case: ChannelCase, channel: Channel, files: ArtifactStore, web_server: WebServer) -> Chat:
        return Chat(case, channel, files, web_server.url)


def _origin(webhook: Webhook | None) -> str | None:
    """Return the public URL of the deliveries."""
    return None if webhook is None else str(URL(webhook.deliveries[0].request.url).origin())
