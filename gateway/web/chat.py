"""The chat page: streams a conversation's visible log, and posts the person's messages and button presses."""

from __future__ import annotations

import asyncio
import json
import math
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from html import escape
from importlib.resources import files
from typing import Any, Protocol, TypeAlias, TypeVar
from weakref import WeakSet

from aiohttp import hdrs, web

from channels import AskfirstError, Channel, Forged, Media, Parsed, Stale
from channels.cancellable_threads import WORK, in_thread
from channels.formatting import finished
from channels.webchat import COOKIE, SECURE_COOKIE, SESSION_SECONDS, Session, WebChatChannel
from channels.webchat.parse import address_of, language_of, split_ref
from channels.webchat.payload import MAX_FILE_BYTES, MAX_FILES
from channels.webchat.verify import check_host, is_secure, session_of
from gateway.artifacts import LINK_SECONDS, ArtifactStore, OfSession
from gateway.config.limits import Limits, Share
from gateway.observe import Feed
from gateway.observe.teller import SILENT, Teller
from gateway.store.errors import StoreUnavailable
from gateway.store.types import LogEntry
from gateway.web.chat_streams import DRAFT_CHARACTERS, KEPT_CHARACTERS, RenderedTexts, RenderingTurn, Streams
from gateway.web.chat_uploads import Charge, ChatUploads, KeepUpload, keep_named
from gateway.web.fast_path import answer
from gateway.web.markdown import to_html
from gateway.web.server import SESSION, as_called, headers_of
from gateway.web.serving import gone
from gateway.web.webhooks import Accept, receive
from gateway.wording import Wording, direction, resolve

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

_FILES = files("gateway.web") / "static"
_PAGE = (_FILES / "chat.html").read_text("utf-8")
_STATIC = {
    name: ((_FILES / name).read_bytes(), content_type)
    for name, content_type in (
        ("chat.css", "text/css"),
        *((f"{name}.js", "text/javascript") for name in ("chat", "console", "files", "lives", "make", "stages")),
        ("chat.svg", "image/svg+xml"),
    )
}
_CLOSED = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    hdrs.CACHE_CONTROL: "no-store",
}

_T = TypeVar("_T")

Watch: TypeAlias = Callable[[str, int], AsyncIterator[LogEntry]]
"""(session, after) -> the entries of the session's visible log after this sequence number, without end."""


class Sessions(Protocol):
    """Sessions of the page. Each method raises StoreUnavailable."""

    async def begin(self) -> float:
        """Count a new session. Return 0, else the seconds to wait."""

    async def has_ended(self, session: Session) -> bool:
        """Return True for a session ended by its person or by an operator."""

    async def end(self, session_id: str) -> None:
        """End a session."""


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
    now: Callable[[], datetime]
    title: str = "Askfirst"
    language: str | None = None
    """Language of the page's own texts. None: the browser's preferred language."""
    greeting: str | None = None
    """Markdown shown on an empty page. Its bold phrases can be pressed. None: a default text."""
    wording: Wording = Wording()  # noqa: RUF009 - it is not changed
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
    app.router.add_get(f"/chat/{{name:{'|'.join(map(re.escape, _STATIC))}}}", pages.static)
    app.router.add_get("/chat/events", pages.events)
    app.router.add_post("/chat/files", pages.file)
    app.router.add_post("/chat/messages", pages.said)
    app.router.add_post("/chat/presses", pages.said)
    app.router.add_post("/chat/stops", pages.said)
    app.router.add_post("/chat/logout", pages.logout)
    if chat.console is not None:
        app.router.add_get("/chat/console", partial(pages.console, chat.console))
    app[SESSION] = pages.session
    app.on_shutdown.append(pages.end_streams)


class _Pages:
    def __init__(self, chat: ChatPage) -> None:
        self._chat = chat
        self._written: dict[str, str] = {}
        """Language -> HTML of the page."""
        self._uploads = ChatUploads(channel=chat.channel, artifacts=chat.artifacts, charge=chat.charge, now=chat.now)
        self._streams, self._running = Streams(chat.streams, reached=chat.reached), WeakSet[asyncio.Task[Any]]()
        turn = RenderingTurn()
        self._entries = RenderedTexts(_entry_html, turn, KEPT_CHARACTERS)
        self._drafts = RenderedTexts(_draft_html, turn, DRAFT_CHARACTERS)

    async def page(self, request: web.Request) -> web.Response:
        """Return the page in the person's language, with the cookie of the browser's session or of a new session."""
        headers, secure = self._from_our_host(request), self._is_secure(request)
        cookies, now = self._chat.channel.cookies, self._chat.now()
        session = await self._proven(request)
        if session is None:
            await self._may_begin()
            session = cookies.begin(now, self._chat.random)
        language = resolve(self._chat.language or language_of(headers))
        response = web.Response(text=await self._in(language), content_type="text/html", headers=_CLOSED)
        response.set_cookie(
            SECURE_COOKIE if secure else COOKIE,
            cookies.sign(session.session_id, session.begun).cookie,  # by the newest key
            max_age=SESSION_SECONDS - int((now - session.begun).total_seconds()),
            httponly=True,
            samesite="Strict",
            secure=secure,
        )
        return response

    async def _in(self, language: str) -> str:
        """Return the page's HTML in a language. Reads the language's sentences in a thread, once."""
        if language not in self._written:
            self._written[language] = await in_thread(partial(_written, self._chat, language), threads=WORK)
        return self._written[language]

    async def _may_begin(self) -> None:
        """Count a new session. Raises HTTPTooManyRequests."""
        wait = math.ceil(await self._asked(self._chat.sessions.begin()))
        if wait:
            again = {hdrs.RETRY_AFTER: str(wait), "Refresh": str(wait)}
            raise web.HTTPTooManyRequests(text="too many people open this page now: it is tried again", headers=again)

    async def logout(self, request: web.Request) -> web.Response:
        """End the session for good, here and on each other page with the same cookie."""
        chat = self._chat
        called = as_called(request, await request.read(), chat.public_url, "/chat")
        try:
            chat.channel.verify(called, chat.now())
        except (Forged, Stale) as error:
            raise web.HTTPUnauthorized(text="no session: open the chat page again") from error
        secure = is_secure(called)
        session_id = session_of(called.headers, secure=secure)
        await self._asked(chat.sessions.end(session_id))
        self._streams.end(session_id)
        self._streams.end(_console_of(session_id))
        response = web.json_response({"status": "ended"}, headers={hdrs.CACHE_CONTROL: "no-store"})
        response.set_cookie(
            SECURE_COOKIE if secure else COOKIE, "", max_age=0, httponly=True, samesite="Strict", secure=secure
        )
        return response

    async def static(self, request: web.Request) -> web.Response:
        self._from_our_host(request)
        body, content_type = _STATIC[request.match_info["name"]]
        return web.Response(body=body, content_type=content_type, charset="utf-8", headers=_CLOSED)

    async def said(self, request: web.Request) -> web.Response:
        """Handle a posted message or button press."""
        chat = self._chat
        await self._refuse_ended(request)
        called = as_called(request, await request.read(), chat.public_url, "/chat")
        taken = await receive(chat.channel, called, accept=self._accept, now=chat.now(), events=chat.events)
        return answer(taken)

    async def _accept(self, channel: Channel, parsed: Parsed) -> None:
        await self._chat.accept(channel, parsed)  # first: a message sent after this one must not overtake it
        await keep_named(self._chat.artifacts, self._chat.keep_upload, parsed)

    async def file(self, request: web.Request) -> web.Response:
        """Handle a piece of a file."""
        await self._refuse_ended(request)
        called = as_called(request, b"", self._chat.public_url, "/chat")
        return await self._uploads.take(called, request.query, await request.read())

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Stream the conversation after a sequence number, with typing notices and the unfinished answer."""
        session = await self._session(request)
        name = session.session_id
        after = _number(request.headers.get("Last-Event-ID") or request.query.get("after", "0"))
        draft = _GrowingAnswer(name)
        sources = self._shown(name, after, draft), self._typing(name), self._being_written(draft)
        return await self._stream(request, session, name, *sources)

    async def console(self, feed: Feed, request: web.Request) -> web.StreamResponse:
        """Stream the live feed."""
        session = await self._session(request)
        after = _number(request.headers.get("Last-Event-ID", "0"))
        notices = _notices(feed, after, str(address_of(session.session_id)))
        return await self._stream(request, session, _console_of(session.session_id), notices)

    async def end_streams(self, app: web.Application) -> None:
        """Cancel the open streams. No stream ends by itself."""
        for task in self._running:
            task.cancel()

    def _is_secure(self, request: web.Request) -> bool:
        return is_secure(as_called(request, b"", self._chat.public_url, "/chat"))

    def _from_our_host(self, request: web.Request) -> dict[str, str]:
        headers = headers_of(request)
        try:
            check_host(headers, self._chat.channel.hosts)
        except Forged as error:
            raise web.HTTPForbidden(text="this page is not served under that host name") from error
        return headers

    async def _session(self, request: web.Request) -> Session:
        headers = self._from_our_host(request)
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise web.HTTPForbidden(text="only the chat page may read this")
        session = await self._proven(request)
        if session is None:
            raise web.HTTPUnauthorized(text="no session: open the chat page again")
        return session

    async def session(self, request: web.Request) -> str | None:
        """Return the session proven by the request's cookie, on any path of this host, or None without a valid cookie.
        Raises HTTPServiceUnavailable when the store cannot tell if the session has ended."""
        session = await self._proven(request)
        return session.session_id if session is not None else None

    async def _proven(self, request: web.Request) -> Session | None:
        """Return the session of the request's cookie. None without a valid cookie, and for an ended session."""
        session = self._of_cookie(request)
        if session is None or await self._asked(self._chat.sessions.has_ended(session)):
            return None
        return session

    async def _refuse_ended(self, request: web.Request) -> None:
        """Refuse the cookie of an ended session. The channel refuses a request without a valid cookie."""
        session = self._of_cookie(request)
        if session is not None and await self._asked(self._chat.sessions.has_ended(session)):
            raise web.HTTPUnauthorized(text="the session has ended: open the chat page again")

    def _of_cookie(self, request: web.Request) -> Session | None:
        try:
            cookies, secure = self._chat.channel.cookies, self._is_secure(request)
            return cookies.check(headers_of(request), self._chat.now(), secure=secure)
        except (Forged, Stale):
            return None

    async def _asked(self, question: Awaitable[_T]) -> _T:
        """Await a question to the store. Raises HTTPServiceUnavailable when the store does not answer."""
        try:
            return await question
        except StoreUnavailable as error:
            again = {hdrs.RETRY_AFTER: "5", "Refresh": "5"}
            raise web.HTTPServiceUnavailable(text="not now: it is tried again", headers=again) from error

    async def _shown(self, session: str, after: int, draft: _GrowingAnswer) -> AsyncGenerator[str, None]:
        async for entry in self._chat.watch(session, after):
            draft.clear()
            yield _event("message", await self._entry(session, entry), entry.seq)
            await asyncio.sleep(0)  # a long conversation must not hold the loop

    async def _entry(self, session: str, entry: LogEntry) -> dict[str, Any]:
        """Return an entry for the page: Markdown rendered as HTML, and each file with a link for this session."""
        shown: dict[str, Any] = dict(entry.value) if isinstance(entry.value, dict) else {}
        if shown.get("from") == "bot":
            text, links = str(shown.pop("text", "")), not shown.pop("exact", False)
            body = max(0, len(text) - int(shown.pop("small", 0)))
            html = await self._entries.html(text[:body], links=links)
            shown["html"] = _timed(html, shown.pop("times", ()))
            if text[body:]:
                shown["small"] = await self._entries.html(text[body:], links=links)
        own = [_own_file(**file) for file in shown.pop("files", ())]
        # The link is relative to /chat, so it works under any path prefix of a proxy.
        holder, path = OfSession(session), self._chat.artifacts.path
        shown["media"] = own + [
            {**media, "link": path(Media(**media), holder, lives_seconds=LINK_SECONDS)}
            for media in shown.get("media") or ()
        ]
        return {**shown, "at": entry.stamp.isoformat()}

    async def _typing(self, session: str) -> AsyncGenerator[str, None]:
        begun = asyncio.Event()

        def tell(place: str) -> None:
            if place == session:
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
        response = web.StreamResponse(headers={**_CLOSED, hdrs.CONTENT_TYPE: "text/event-stream"})
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
        """Raise _StreamEnded once the session is over."""
        over = session.begun + timedelta(seconds=SESSION_SECONDS)
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            if self._chat.now() > over or await self._chat.sessions.has_ended(session):
                raise _StreamEnded


class _GrowingAnswer:
    """The unfinished answer of a session, as far as not shown yet."""

    def __init__(self, session: str) -> None:
        self._session, self._text, self._has_changed = session, "", asyncio.Event()
        self.followed = 0
        """Number of messages shown since the start."""

    def tell(self, session: str, text: str) -> None:
        """Take the text so far of the answer in a session."""
        if session == self._session:
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


def _written(chat: ChatPage, language: str) -> str:
    """Return the page's HTML in a language with a file of sentences."""
    said = chat.wording.spoken(language).sentences
    texts = {name.removeprefix("page_"): text for name, text in said.items() if name.startswith("page_")}
    greeting = f"<p><strong>{escape(texts['hello'])}</strong></p>"
    if chat.greeting is not None:
        greeting = f'<div class="greeting">{to_html(chat.greeting)}</div>'
    filled = {name: escape(text) for name, text in texts.items()} | {
        "title": escape(chat.title),
        "greeting": greeting,
        "has_console": "on" if chat.console is not None else "off",
        "lang": language,
        "largest_file": str(MAX_FILE_BYTES),
        "most_files": str(MAX_FILES),
        "dir": direction(language),
        "texts": escape(json.dumps(texts)),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda name: filled[name[1]], _PAGE)


def _console_of(session_id: str) -> str:
    """Return the name under which the streams of the console are counted."""
    return f"console of {session_id}"


def _entry_html(text: str, links: bool) -> str:
    return to_html(text, links=links)


def _draft_html(text: str, links: bool) -> str:
    return to_html(finished(text), links=links)


def _own_file(*, ref: str, **file: Any) -> dict[str, Any]:
    """Return a file of the person with the link of its upload, valid in this session alone."""
    return {**file, "link": f"artifacts/{split_ref(ref)[1]}"}


def _timed(html: str, times: Sequence[tuple[str, str, bool]]) -> str:
    """Wrap these times in ``<time>``. The page shows a time in the person's zone. `times`: time, words, with a day.

    The search runs from the end of the text, because the lines with times are the last lines.
    """
    end = len(html)
    for at, written, with_day in reversed(times):
        if (begin := html.rfind(written, 0, end)) >= 0:
            day = " data-day" if with_day else ""
            marked = f'<time datetime="{escape(at)}"{day}>{written}</time>'
            html, end = f"{html[:begin]}{marked}{html[begin + len(written) :]}", begin
    return html


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
