"""The chat page: streams a conversation's visible log, and posts the person's messages and button presses."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol, TypeAlias
from weakref import WeakSet

from aiohttp import hdrs, web
from pydantic import ValidationError

from channels import Address, AskfirstError, Channel, Event, Forged, Media, Message, Parsed, Stale
from channels.formatting import finished
from channels.webchat import SESSION_SECONDS, Session, WebChatChannel
from channels.webchat.parse import language_of, split_ref
from channels.webchat.payload import chat_from
from channels.webchat.verify import USER_HEADER, check_page, is_secure
from gateway.access.chats import ListedChat
from gateway.artifacts import LINK_SECONDS, ArtifactStore, OfSession
from gateway.config.limits import Limits, Share
from gateway.observe import Feed
from gateway.observe.teller import SILENT, Teller
from gateway.store.errors import StoreUnavailable
from gateway.store.types import LogEntry
from gateway.web.chat_document import Document
from gateway.web.chat_streams import DRAFT_CHARACTERS, KEPT_CHARACTERS, RenderedTexts, RenderingTurn, Streams
from gateway.web.chat_theme import Theme
from gateway.web.chat_uploads import Charge, ChatUploads, KeepUpload, keep_named
from gateway.web.chat_visitors import ChatUserHook, Sessions, Visitor, Visitors
from gateway.web.fast_path import answer
from gateway.web.markdown import to_html
from gateway.web.server import SESSION, as_called
from gateway.web.serving import gone
from gateway.web.webhooks import Accept, receive
from gateway.wording import Wording, resolve

HEARTBEAT_SECONDS = 15.0
GONE_SECONDS = 1.0
"""Interval of the check for a disconnected page. Until then the page's stream counts as a connection of the server."""
RETRY_MILLISECONDS = 1000
"""Delay before a page reconnects after a lost connection."""
_AGAIN_MILLISECONDS = 30_000
"""Delay before a page reconnects after its stream ended for another stream. Two pages must not end each other at
once."""
_LAST_SECONDS = 1.0
"""Time for a page to read the end of its stream. Then the connection is closed."""

LOGIN_SECONDS = 600.0
"""The longest stream of a page with a login. The page connects again, and `chat_user` is asked again."""

Watch: TypeAlias = Callable[[Address, int], AsyncIterator[LogEntry]]
"""(chat, after) -> the entries of the chat's visible log after this sequence number, without end."""


class Chats(Protocol):
    """The chats of the people of the page. Each method raises StoreUnavailable."""

    async def note(self, address: Address) -> None:
        """Add a chat to the list of its person."""

    async def listed(self, first: Address) -> Sequence[ListedChat]:
        """Return the chats of a person, the newest first. `first`: the address of the person's first chat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPage:
    """Parts of the gateway used by the chat page."""

    channel: WebChatChannel
    watch: Watch
    accept: Accept
    artifacts: ArtifactStore
    charge: Charge
    keep_upload: KeepUpload
    sessions: Sessions
    chats: Chats
    now: Callable[[], datetime]
    title: str = "Askfirst"
    theme: Theme = Theme()  # noqa: RUF009 - it is frozen
    chat_user: ChatUserHook | None = None
    """The author's function: who is logged in. None: every visitor is anonymous."""
    language: str | None = None
    """Language of the page's own texts. None: the browser's preferred language."""
    greeting: str | None = None
    """Markdown shown on an empty page. Its bold phrases can be pressed. None: a default text."""
    wording: Wording = Wording()  # noqa: RUF009 - it is not changed
    commands: Callable[[str], Mapping[str, str]] = lambda language: {}
    """(language) -> the commands of the bot, with descriptions in this language."""
    public_url: str | None = None
    streams: Share = Limits.usual().streams
    reached: Callable[[], None] = lambda: None
    """Called when all streams together are too many."""
    events: Teller = SILENT
    console: Feed | None = None
    """The live feed, shown beside the conversation, with the events of every conversation. None hides the feed."""
    random: Callable[[int], bytes] = secrets.token_bytes


def add_chat(app: web.Application, chat: ChatPage) -> None:
    """Add the chat page and its endpoints to an application, under ``/chat``."""
    pages = _Pages(chat)
    app.router.add_get("/chat", pages.page)
    app.router.add_get("/chat/events", pages.events)
    app.router.add_get("/chat/chats", pages.chats)
    pages.document.add_to(app)
    if chat.channel.origins:
        app.router.add_post("/chat/session", pages.begun)
    app.router.add_post("/chat/files", pages.file)
    app.router.add_post("/chat/messages", pages.said)
    app.router.add_post("/chat/presses", pages.said)
    app.router.add_post("/chat/stops", pages.said)
    app.router.add_post("/chat/feedback", pages.said)
    app.router.add_post("/chat/logout", pages.logout)
    if chat.console is not None:
        app.router.add_get("/chat/console", partial(pages.console, chat.console))
    app[SESSION] = pages.visitors.holders
    app.on_shutdown.append(pages.end_streams)


class _Pages:
    def __init__(self, chat: ChatPage) -> None:
        self._chat = chat
        self.visitors = Visitors(
            chat.channel,
            chat.sessions,
            chat.chat_user,
            now=chat.now,
            random=chat.random,
            public_url=chat.public_url,
            on_end=self._end_streams_of,
        )
        self.document = Document(
            chat.title,
            chat.theme,
            chat.channel.origins,
            greeting=chat.greeting,
            wording=chat.wording,
            commands=chat.commands,
            has_console=chat.console is not None,
            check=self.visitors.from_our_host,
        )
        self._uploads = ChatUploads(channel=chat.channel, artifacts=chat.artifacts, charge=chat.charge, now=chat.now)
        self._streams, self._running = Streams(chat.streams, reached=chat.reached), WeakSet[asyncio.Task[Any]]()
        turn = RenderingTurn()
        self._entries = RenderedTexts(_entry_html, turn, KEPT_CHARACTERS)
        self._drafts = RenderedTexts(_draft_html, turn, DRAFT_CHARACTERS)

    async def page(self, request: web.Request) -> web.Response:
        """Return the page in the person's language, with the cookie of the browser's session or of a new session.

        A framed page comes without a session: only its own requests can bear the token of the site around.
        """
        headers = self.visitors.from_our_host(request)
        framed = "embed" in request.query or headers.get("sec-fetch-dest") in ("iframe", "frame")
        embedded = bool(self._chat.channel.origins) and framed and USER_HEADER not in headers
        visitor = None if embedded else await self.visitors.opened(request)
        wanted = visitor.user.language if visitor is not None and visitor.user is not None else None
        language = resolve(self._chat.language or wanted or language_of(headers))
        text = await self.document.html(language, embedded=embedded)
        if visitor is not None:
            text = text.replace('data-visit=""', f'data-visit="{_visit(visitor.session)}"', 1)
        response = web.Response(text=text, content_type="text/html", headers=self.document.headers)
        if visitor is not None:
            self.visitors.set_cookie(request, response, visitor.session)
        return response

    async def begun(self, request: web.Request) -> web.Response:
        """Begin the session of a framed page, or go on with the session of its cookie."""
        called = as_called(request, b"", self._chat.public_url, "/chat")
        self.visitors.from_our_host(request)
        try:
            check_page(called.headers, secure=is_secure(called), origins=self._chat.channel.origins)
        except Forged as error:
            raise web.HTTPUnauthorized(text="only the chat page may begin a session") from error
        visitor = await self.visitors.opened(request)
        begun = {"status": "begun", "visit": _visit(visitor.session)}
        response = web.json_response(begun, headers={hdrs.CACHE_CONTROL: "no-store"})
        self.visitors.set_cookie(request, response, visitor.session)
        return response

    async def logout(self, request: web.Request) -> web.Response:
        """End the session for good, here and on each other page with the same cookie. Works while a login fails."""
        chat = self._chat
        called = as_called(request, await request.read(), chat.public_url, "/chat")
        try:
            chat.channel.verify(called, chat.now())
            session = chat.channel.session(called, chat.now())
        except (Forged, Stale) as error:
            raise web.HTTPUnauthorized(text="no session: open the chat page again") from error
        await self.visitors.end(session)
        response = web.json_response({"status": "ended"}, headers={hdrs.CACHE_CONTROL: "no-store"})
        self.visitors.set_cookie(request, response, None)
        return response

    async def chats(self, request: web.Request) -> web.Response:
        """Return the chats of the visitor, the newest first."""
        visitor = await self.visitors.of_reader(request)
        try:
            found = await self._chat.chats.listed(visitor.session.address())
        except StoreUnavailable as error:
            raise web.HTTPServiceUnavailable(text="not now", headers={hdrs.RETRY_AFTER: "5"}) from error
        listed = [{"chat": each.chat, "title": each.title, "at": each.at.isoformat()} for each in found]
        return web.json_response({"chats": listed}, headers={hdrs.CACHE_CONTROL: "no-store"})

    async def said(self, request: web.Request) -> web.Response:
        """Handle a posted message, button press, stop or thumb."""
        chat = self._chat
        called = as_called(request, await request.read(), chat.public_url, "/chat")
        visitor = await self.visitors.of_post(request, called, chat.channel.verify)
        accept = partial(self._accept, visitor)
        return answer(await receive(chat.channel, called, accept=accept, now=chat.now(), events=chat.events))

    async def _accept(self, visitor: Visitor | None, channel: Channel, parsed: Parsed) -> None:
        if visitor is None:
            raise Forged("no session")
        events = tuple(_by(visitor, event) for event in parsed.events)
        parsed = replace(parsed, events=events)
        await self._chat.accept(channel, parsed)  # first: a message sent after this one must not overtake it
        await keep_named(self._chat.artifacts, self._chat.keep_upload, parsed)
        for event in events:
            if isinstance(event, Message):
                await self._chat.chats.note(event.address)

    async def file(self, request: web.Request) -> web.Response:
        """Handle a piece of a file."""
        called = as_called(request, b"", self._chat.public_url, "/chat")
        await self.visitors.of_post(request, called, self._chat.channel.verify_upload)
        return await self._uploads.take(called, request.query, await request.read())

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Stream a chat after a sequence number, with typing notices and the unfinished answer."""
        session = (await self.visitors.of_reader(request)).session
        try:
            address = session.address(chat_from(request.query))
        except ValidationError as error:
            raise web.HTTPBadRequest(text="no such chat") from error
        after = _number(request.headers.get("Last-Event-ID") or request.query.get("after", "0"))
        draft = _GrowingAnswer(address)
        sources = self._shown(session, address, after, draft), self._typing(address), self._being_written(draft)
        return await self._stream(request, session, session.session_id, *sources)

    async def console(self, feed: Feed, request: web.Request) -> web.StreamResponse:
        """Stream the live feed."""
        session = (await self.visitors.of_reader(request)).session
        after = _number(request.headers.get("Last-Event-ID", "0"))
        try:
            here = str(session.address(chat_from(request.query)))
        except ValidationError as error:
            raise web.HTTPBadRequest(text="no such chat") from error
        return await self._stream(request, session, _console_of(session.session_id), _notices(feed, after, here))

    async def end_streams(self, app: web.Application) -> None:
        """Cancel the open streams. No stream ends by itself."""
        for task in self._running:
            task.cancel()

    def _end_streams_of(self, session_id: str) -> None:
        self._streams.end(session_id)
        self._streams.end(_console_of(session_id))

    async def _shown(
        self, session: Session, address: Address, after: int, draft: _GrowingAnswer
    ) -> AsyncGenerator[str, None]:
        async for entry in self._chat.watch(address, after):
            draft.clear()
            yield _event("message", await self._entry(session, entry), entry.seq)
            await asyncio.sleep(0)  # a long conversation must not hold the loop

    async def _entry(self, session: Session, entry: LogEntry) -> dict[str, Any]:
        """Return an entry for the page: Markdown rendered as HTML, and each file with a link for this session."""
        shown: dict[str, Any] = dict(entry.value) if isinstance(entry.value, dict) else {}
        shown.pop("run", None)
        if shown.get("from") == "bot":
            text, exact = str(shown.pop("text", "")), shown.pop("exact", False)
            body = max(0, len(text) - int(shown.pop("small", 0)))
            shown["html"] = await self._entries.html(text[:body], links=not exact)
            if text[body:]:
                shown["small"] = await self._entries.html(text[body:], links=not exact)
            if not exact:  # the marks of a question are not the person's to copy
                shown["text"] = text
        own = [_own_file(**file) for file in shown.pop("files", ())]
        # The link is relative to /chat, so it works under any path prefix of a proxy.
        holder, path = OfSession(session.holder), self._chat.artifacts.path
        shown["media"] = own + [
            {**media, "link": path(Media(**media), holder, lives_seconds=LINK_SECONDS)}
            for media in shown.get("media") or ()
        ]
        return {**shown, "at": entry.stamp.isoformat()}

    async def _typing(self, address: Address) -> AsyncGenerator[str, None]:
        begun = asyncio.Event()

        def tell(written_in: Address) -> None:
            if written_in == address:
                begun.set()

        self._chat.channel.on_typing.add(tell)
        try:
            while True:
                await begun.wait()
                begun.clear()
                yield _event("typing", {})
        finally:
            self._chat.channel.on_typing.discard(tell)

    async def _being_written(self, draft: _GrowingAnswer) -> AsyncGenerator[str, None]:
        self._chat.channel.on_draft.add(draft.tell)
        try:
            while True:
                text, followed = await draft.changed(), draft.followed
                html = await self._drafts.html(text)
                if followed == draft.followed:
                    yield _event("draft", {"html": html})
        finally:
            self._chat.channel.on_draft.discard(draft.tell)

    async def _stream(
        self, request: web.Request, session: Session, name: str, *sources: AsyncGenerator[str, None]
    ) -> web.StreamResponse:
        """Send the messages of all sources as server-sent events until the page disconnects, the server stops or the
        stream has to end. The stream counts among the streams of `name`."""
        response = web.StreamResponse(headers={**self.document.headers, hdrs.CONTENT_TYPE: "text/event-stream"})
        await response.prepare(request)
        if task := asyncio.current_task():
            self._running.add(task)
        writing = asyncio.Lock()

        async def send(source: AsyncGenerator[str, None]) -> None:
            async with aclosing(source):
                async for message in source:
                    async with writing:
                        await response.write(message.encode())

        with self._streams.one(name) as ends:
            try:
                async with asyncio.TaskGroup() as group:
                    for source in (*sources, _heartbeat()):
                        group.create_task(send(source))
                    group.create_task(_until_gone(request))
                    group.create_task(_until_ended(ends))
                    group.create_task(self._until_over(session))
            except* ConnectionError:
                pass
            except* AskfirstError:
                # The store is unavailable, or the stream has to end: the page reconnects by itself.
                pass
        if ends.is_set():
            await _let_go(request, response)
        return response

    async def _until_over(self, session: Session) -> None:
        """Raise _StreamEnded once the session is over, or the login has to be asked for again."""
        over = session.begun + timedelta(seconds=SESSION_SECONDS)
        if self.visitors.logs_in:
            over = min(over, self._chat.now() + timedelta(seconds=LOGIN_SECONDS))
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            if self._chat.now() > over or await self._chat.sessions.has_ended(session):
                raise _StreamEnded


class _GrowingAnswer:
    """The unfinished answer of a chat, as far as not shown yet."""

    def __init__(self, address: Address) -> None:
        self._address, self._text, self._has_changed = address, "", asyncio.Event()
        self.followed = 0
        """Number of messages shown since the start."""

    def tell(self, address: Address, text: str) -> None:
        """Take the text so far of the answer in a chat."""
        if address == self._address:
            self._text = text
            self._has_changed.set()

    def clear(self) -> None:
        """Discard the pending change: a message follows, and the page would show an older text below the message."""
        self.followed += 1
        self._has_changed.clear()

    async def changed(self) -> str:
        """Wait for a change, and return the newest text."""
        await self._has_changed.wait()
        self._has_changed.clear()
        return self._text


def _visit(session: Session) -> str:
    """Return a name of a session for the page: the draft of one person is not shown to the next."""
    return hashlib.sha256(session.session_id.encode()).hexdigest()[:16]


def _by(visitor: Visitor, event: Event) -> Event:
    """Return an event with the name and the language of the logged-in person."""
    if visitor.user is None or event.person is None:
        return event
    return replace(event, person=visitor.user.as_person(event.person.language))


def _console_of(session_id: str) -> str:
    """Return the name under which the streams of the console are counted."""
    return f"console of {session_id}"


def _entry_html(text: str, links: bool) -> str:
    return to_html(text, links=links)


def _draft_html(text: str, links: bool) -> str:
    return to_html(finished(text), links=links)


def _own_file(*, ref: str, **file: Any) -> dict[str, Any]:
    """Return a file of the person with the link of its upload, valid for its holder alone."""
    return {**file, "link": f"artifacts/{split_ref(ref)[1]}"}


async def _notices(feed: Feed, after: int, here: str) -> AsyncGenerator[str, None]:
    """Yield the feed's notices as events. `here` is the address of the conversation shown beside the feed."""
    async with aclosing(feed.subscribe(after=after)) as notices:
        async for notice in notices:
            where = notice.life.conversation.partition("/")[2]
            about = {"where": where, "here": where == here, "run": notice.life.run, "joins": notice.life.joins}
            told = {"name": notice.name, "fields": notice.fields, "mend": notice.mend}
            shown = {"at": notice.at.isoformat(), **told, **about}
            yield _event("notice", shown, notice.seq)


async def _until_gone(request: web.Request) -> None:
    """Poll the connection. Raises ConnectionResetError when the client is gone. A stream without writes would not
    notice."""
    while True:
        await asyncio.sleep(GONE_SECONDS)
        if gone(request):
            raise ConnectionResetError


class _StreamEnded(AskfirstError):
    """The stream has to end."""


async def _until_ended(ends: asyncio.Event) -> None:
    """Raise _StreamEnded once the event is set."""
    await ends.wait()
    raise _StreamEnded


async def _let_go(request: web.Request, response: web.StreamResponse) -> None:
    """End a stream. Abort the connection if the page does not read the end in time."""
    try:
        async with asyncio.timeout(_LAST_SECONDS):
            await response.write(f"retry: {_AGAIN_MILLISECONDS}\n\n".encode())
            await response.write_eof()
    except (TimeoutError, ConnectionError):
        if request.transport is not None:
            request.transport.abort()


async def _heartbeat() -> AsyncGenerator[str, None]:
    yield f"retry: {RETRY_MILLISECONDS}\n\n"
    while True:
        yield ":\n\n"
        await asyncio.sleep(HEARTBEAT_SECONDS)


def _event(name: str, data: object, seq: int | None = None) -> str:
    numbered = f"id: {seq}\n" if seq is not None else ""
    return f"event: {name}\n{numbered}data: {json.dumps(data)}\n\n"


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
