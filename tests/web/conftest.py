"""A bot in memory behind the real page, channel and server, without the engine."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from channels import Address, Channel, Event, Json, Media, Message, Parsed, Part, Reply
from channels.webchat import Session, WebChatChannel
from gateway.access.chats import ListedChat
from gateway.artifacts import ArtifactStore, Holder, NotKept, OfConversation, collecting, emit_artifact
from gateway.config.limits import Limits, Share
from gateway.observe import Feed
from gateway.observe.event_log import EventLog
from gateway.observe.teller import Teller
from gateway.store.types import LogEntry
from gateway.web import ClientLimits, Ready, Running, serve, web_app
from gateway.web.chat import ChatPage, add_chat
from gateway.wording import Wording

KEY = b"k" * 32
Answer = Callable[["Bot", Event], None]


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Bot:
    """The part behind the page: a visible log, the accepted events, and a scripted answer."""

    artifacts: ArtifactStore
    channel: WebChatChannel = field(default_factory=lambda: WebChatChannel(keys=[KEY], hosts=["127.0.0.1"]))
    feed: Feed = field(default_factory=lambda: Feed(now=now))
    accepted: list[Event] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    log: dict[str, list[LogEntry]] = field(default_factory=dict)
    answer: Answer = lambda bot, event: None
    fail: list[Exception] = field(default_factory=list)
    """Raised by the next accepts, one each."""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    charged: list[tuple[str, int]] = field(default_factory=list)
    """The counted files: a person and bytes each."""
    named: list[tuple[str, str]] = field(default_factory=list)
    """The uploads named by messages: a file name and a person each."""
    ended: set[str] = field(default_factory=set)
    """The ended sessions."""
    wait: float = 0.0
    """The seconds until a new session may begin."""
    is_full: bool = False
    """True: no person may keep a further file."""
    greeting: str | None = None
    commands: Callable[[str], Mapping[str, str]] = lambda language: {}
    url: str = ""

    async def accept(self, channel: Channel, parsed: Parsed) -> None:
        if self.fail:
            raise self.fail.pop(0)
        async with self.changed:
            for event in parsed.events:
                if self.seen.isdisjoint(event.event_ids):
                    self.accepted.append(event)
                    if isinstance(event, Message):
                        self.write(
                            event.address.place,
                            {
                                "message_id": event.message_id,
                                "from": "person",
                                "text": event.written,
                                "edits": None,
                                "files": files_of(event),
                            },
                        )
                    self.answer(self, event)
                self.seen.update(event.event_ids)
            self.changed.notify_all()

    def write(self, session: str, value: dict[str, Json]) -> None:
        entries = self.log.setdefault(session, [])
        entries.append(LogEntry(seq=len(entries) + 1, stamp=now(), value={"buttons": [], "media": [], **value}))

    def says(self, session: str, message_id: str, reply: Reply, *, asks: Sequence[str] = ()) -> None:
        """Show a reply as a delivery does: one entry a part. `asks`: the ids of the actions asked about."""
        address = Address(channel="webchat", account="local", place=session)
        for number, part in enumerate(self.channel.render(address, reply)):
            self.write(session, {**shown(part, f"{message_id}.{number}"), **({"asks": [*asks]} if asks else {})})

    async def watch(self, address: Address, after: int) -> AsyncIterator[LogEntry]:
        while True:
            async with self.changed:
                fresh = [entry for entry in self.log.get(address.place, []) if entry.seq > after]
                if not fresh:
                    await self.changed.wait()
            for entry in fresh:
                yield entry
                after = entry.seq

    async def charge(self, person: str, size: int) -> None:
        if self.fail:
            raise self.fail.pop(0)
        if self.is_full:
            raise NotKept("ASKFIRST_LIMITS allows files=100 MiB")
        self.charged.append((person, size))

    async def keep_upload(self, media: Media, person: str) -> None:
        if self.is_full:
            raise NotKept("ASKFIRST_LIMITS allows files=100 MiB")
        self.named.append((media.filename, person))
        await self.artifacts.prolong(media.sha256)

    async def begin(self) -> float:
        return self.wait

    async def has_ended(self, session: Session) -> bool:
        return session.session_id in self.ended

    async def end(self, session_id: str) -> None:
        self.ended.add(session_id)

    async def note(self, address: Address) -> None:
        """No list is kept: the chats of a gateway are shown by tests/web/test_chats.py."""

    async def listed(self, first: Address) -> list[ListedChat]:
        return []

    async def follow(self, token: str) -> tuple[Path, Media, Holder]:
        if self.fail:
            raise self.fail.pop(0)
        return self.artifacts.resolve(token)

    def link(self, media: Media, *, lives_seconds: float) -> str:
        return self.artifacts.path(media, OfConversation("agent/telegram:1:2"), lives_seconds=lives_seconds)

    async def ready(self) -> Ready:
        return Ready(not self.fail, {"store": not self.fail, "channels": {"webchat": True}})

    async def keeps(self, content: bytes, filename: str) -> Media:
        with collecting() as artifacts:
            emit_artifact(content=content, filename=filename)
        return await self.artifacts.keep(artifacts[0])

    async def arrived(self, count: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.accepted) >= count)


def files_of(message: Message) -> list[Json]:
    return [
        {"ref": file.ref, "mime_type": file.mime_type, "filename": file.filename, "size": file.size}
        for file in message.attachments
    ]


def shown(part: Part, message_id: str) -> dict[str, Json]:
    buttons: list[Json] = [dict(asdict(button)) for button in part.buttons]
    media: list[Json] = [dict(asdict(part.media))] if part.media else []
    return {"message_id": message_id, "from": "bot", **part.arguments, "buttons": buttons, "media": media}


Start = Callable[..., contextlib.AbstractAsyncContextManager[Running]]


@pytest.fixture
def bot(tmp_path: Path) -> Bot:
    return Bot(artifacts=ArtifactStore(tmp_path / "artifacts", [KEY], public_url=None, now=now))


STREAMS = Limits().streams
LOGGED = Teller(readers=[EventLog()])


def page(
    bot: Bot,
    limits: ClientLimits | None = None,
    *,
    console: bool = True,
    public_url: str | None = None,
    language: str | None = None,
    wording: Wording = Wording(),  # noqa: B008 - it is not changed
    streams: Share = STREAMS,
) -> web.Application:
    app = web_app(
        channels={"webchat": bot.channel},
        accept=bot.accept,
        follow=bot.follow,
        ready=bot.ready,
        now=now,
        limits=limits,
        public_url=public_url,
        events=LOGGED,
    )
    chat = ChatPage(
        channel=bot.channel,
        watch=bot.watch,
        accept=bot.accept,
        artifacts=bot.artifacts,
        charge=bot.charge,
        keep_upload=bot.keep_upload,
        sessions=bot,
        chats=bot,
        now=now,
        title="Invoices",
        language=language,
        greeting=bot.greeting,
        wording=wording,
        commands=bot.commands,
        public_url=public_url,
        streams=streams,
        events=LOGGED,
        console=bot.feed if console else None,
    )
    add_chat(app, chat)
    return app


@pytest.fixture
def start(bot: Bot) -> Start:
    @contextlib.asynccontextmanager
    async def start(limits: ClientLimits | None = None, *, port: int = 0, **options: Any) -> AsyncIterator[Running]:
        running = await serve(page(bot, limits, **options), "127.0.0.1", port)
        bot.url = f"http://127.0.0.1:{running.port}"
        try:
            yield running
        finally:
            async with asyncio.timeout(60):
                await running.cleanup()

    return start


FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(browser_executable: Path) -> AsyncIterator[Browser]:
    """One browser for all tests of a file: each test has a context. A start takes as long as a test."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=browser_executable, args=FLAGS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    context = await browser.new_context(viewport={"width": 1200, "height": 800})
    # A script or style that the policy stopped, a file that is not there or an error in ours is a broken page.
    broken: list[str] = []
    context.on("weberror", lambda error: broken.append(str(error.error)))
    context.on("console", lambda said: broken.append(said.text) if re.search("Policy|404", said.text) else None)
    yield context
    await context.close()
    assert broken == []


async def opened(context: BrowserContext, bot: Bot) -> Page:
    page = await context.new_page()
    await page.goto(f"{bot.url}/chat")
    await expect(page.get_by_role("status")).to_have_text("Connected")
    return page
