"""The chat page: streams a conversation's visible log, and posts the person's messages and button presses."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from html import escape
from importlib.resources import files
from typing import Any, TypeAlias
from weakref import WeakSet

from aiohttp import hdrs, web

from channels import AskfirstError, Forged, Media, Stale
from channels.formatting import finished
from channels.webchat import COOKIE, SECURE_COOKIE, WebChatChannel
from channels.webchat.parse import address_of, language_of, split_ref
from channels.webchat.payload import MAX_FILE_BYTES, MAX_FILES
from channels.webchat.verify import SESSION_SECONDS, check_host, is_secure
from gateway.artifacts import LINK_SECONDS, ArtifactStore, OfSession
from gateway.observe import Feed
from gateway.observe.teller import SILENT, Teller
from gateway.store.types import LogEntry
from gateway.web.chat_uploads import Charge, ChatUploads
from gateway.web.fast_path import answer
from gateway.web.markdown import to_html
from gateway.web.server import SESSION, as_called, headers_of
from gateway.web.serving import gone
from gateway.web.webhooks import Accept, receive
from gateway.wording import LANGUAGES, direction, resolve

HEARTBEAT_SECONDS = 15.0
GONE_SECONDS = 1.0
"""Interval of the check that a page has disconnected. Until then its stream counts as one of the server's
connections."""
RETRY_MILLISECONDS = 1000
"""Delay before a page reconnects after it lost its connection."""

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

Watch: TypeAlias = Callable[[str, int], AsyncIterator[LogEntry]]
"""(session, after) -> the entries of its visible log after that sequence number, without end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPage:
    """Parts of the gateway that the chat page uses."""

    channel: WebChatChannel
    watch: Watch
    accept: Accept
    artifacts: ArtifactStore
    charge: Charge
    now: Callable[[], datetime]
    title: str = "Askfirst"
    language: str | None = None
    """Language of the page's own texts. None: the browser's preferred language."""
    greeting: str | None = None
    """Markdown shown on an empty page. Its bold phrases can be pressed. None: a default text."""
    public_url: str | None = None
    events: Teller = SILENT
    console: Feed | None = None
    """The live feed, shown beside the conversation. It shows the events of every conversation. None hides it."""
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
    if chat.console is not None:
        app.router.add_get("/chat/console", partial(pages.console, chat.console))
    app[SESSION] = pages.session
    app.on_shutdown.append(pages.end_streams)


class _Pages:
    def __init__(self, chat: ChatPage) -> None:
        self._chat = chat
        self._written = {language: _written(chat, language) for language in LANGUAGES}
        """HTML of the page by language."""
        self._uploads = ChatUploads(channel=chat.channel, artifacts=chat.artifacts, charge=chat.charge, now=chat.now)
        self._streams: WeakSet[asyncio.Task[Any]] = WeakSet()

    async def page(self, request: web.Request) -> web.Response:
        """Return the page in the person's language, with a cookie that begins a session or renews the browser's."""
        headers, secure = self._from_our_host(request), self._is_secure(request)
        cookies, now = self._chat.channel.cookies, self._chat.now()
        try:
            session = cookies.renew(cookies.check(headers, now, secure=secure), now)
        except (Forged, Stale):
            session = cookies.begin(now, self._chat.random)
        language = resolve(self._chat.language or language_of(headers))
        response = web.Response(text=self._written[language], content_type="text/html", headers=_CLOSED)
        name = SECURE_COOKIE if secure else COOKIE
        response.set_cookie(
            name, session.cookie, max_age=SESSION_SECONDS, httponly=True, samesite="Strict", secure=secure
        )
        return response

    async def static(self, request: web.Request) -> web.Response:
        self._from_our_host(request)
        body, content_type = _STATIC[request.match_info["name"]]
        return web.Response(body=body, content_type=content_type, charset="utf-8", headers=_CLOSED)

    async def said(self, request: web.Request) -> web.Response:
        """Handle a posted message or button press."""
        chat = self._chat
        called = as_called(request, await request.read(), chat.public_url, "/chat")
        taken = await receive(chat.channel, called, accept=chat.accept, now=chat.now(), events=chat.events)
        return answer(taken)

    async def file(self, request: web.Request) -> web.Response:
        """Handle one piece of a file."""
        called = as_called(request, b"", self._chat.public_url, "/chat")
        return await self._uploads.take(called, request.query, await request.read())

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Stream the conversation after a sequence number, with typing notices and the answer that is being written."""
        session = self._session(request)
        after = _number(request.headers.get("Last-Event-ID") or request.query.get("after", "0"))
        draft = _GrowingAnswer(session)
        sources = self._shown(session, after, draft), self._typing(session), self._being_written(draft)
        return await self._stream(request, *sources)

    async def console(self, feed: Feed, request: web.Request) -> web.StreamResponse:
        """Stream the live feed."""
        here = str(address_of(self._session(request)))
        after = _number(request.headers.get("Last-Event-ID", "0"))
        return await self._stream(request, _notices(feed, after, here))

    async def end_streams(self, app: web.Application) -> None:
        """Cancel the open streams, which would not end by themselves."""
        for task in self._streams:
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

    def _session(self, request: web.Request) -> str:
        headers = self._from_our_host(request)
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise web.HTTPForbidden(text="only the chat page may read this")
        session = self.session(request)
        if session is None:
            raise web.HTTPUnauthorized(text="no session: open the chat page again")
        return session

    def session(self, request: web.Request) -> str | None:
        """Return the session that the request's cookie proves, on any path of this host, or None without a valid
        cookie."""
        try:
            cookies, secure = self._chat.channel.cookies, self._is_secure(request)
            return cookies.check(headers_of(request), self._chat.now(), secure=secure)
        except (Forged, Stale):
            return None

    async def _shown(self, session: str, after: int, draft: _GrowingAnswer) -> AsyncGenerator[str, None]:
        async for entry in self._chat.watch(session, after):
            draft.clear()
            yield _event("message", self._entry(session, entry), entry.seq)

    def _entry(self, session: str, entry: LogEntry) -> dict[str, Any]:
        """Return an entry for the page: Markdown rendered as HTML, and each file with a link for this session."""
        shown: dict[str, Any] = dict(entry.value) if isinstance(entry.value, dict) else {}
        if shown.get("from") == "bot":
            html = to_html(str(shown.pop("text", "")), links=not shown.pop("exact", False))
            shown["html"] = _timed(html, shown.get("settled") or ())
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
                yield _event("draft", {"html": to_html(finished(await draft.changed()))})
        finally:
            self._chat.channel.on_draft.discard(draft.tell)

    async def _stream(self, request: web.Request, *sources: AsyncGenerator[str, None]) -> web.StreamResponse:
        """Send the messages of all sources as server-sent events until the page disconnects or the server stops."""
        response = web.StreamResponse(headers={**_CLOSED, hdrs.CONTENT_TYPE: "text/event-stream"})
        await response.prepare(request)
        if task := asyncio.current_task():
            self._streams.add(task)
        writing = asyncio.Lock()

        async def send(source: AsyncGenerator[str, None]) -> None:
            async with aclosing(source):
                async for message in source:
                    async with writing:
                        await response.write(message.encode())

        try:
            async with asyncio.TaskGroup() as group:
                for source in (*sources, _heartbeat()):
                    group.create_task(send(source))
                group.create_task(_until_gone(request))
        except* ConnectionError:
            pass
        except* AskfirstError:
            # The store is unavailable: the page reconnects by itself.
            pass
        return response


class _GrowingAnswer:
    """The answer that is being written in a session, as far as it was not shown yet."""

    def __init__(self, session: str) -> None:
        self._session, self._text, self._has_changed = session, "", asyncio.Event()

    def tell(self, session: str, text: str) -> None:
        """Take the text so far of the answer in a session."""
        if session == self._session:
            self._text = text
            self._has_changed.set()

    def clear(self) -> None:
        """Forget it: a message follows, and the page would show an older text under it."""
        self._has_changed.clear()

    async def changed(self) -> str:
        """Wait for a change, and return the newest text."""
        await self._has_changed.wait()
        self._has_changed.clear()
        return self._text


def _written(chat: ChatPage, language: str) -> str:
    """Return the page's HTML in a language from LANGUAGES."""
    texts = {name.removeprefix("page_"): text for name, text in LANGUAGES[language].items() if name.startswith("page_")}
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


def _own_file(*, ref: str, **file: Any) -> dict[str, Any]:
    """Return a file of the person with the link of its upload, which this session alone may follow."""
    return {**file, "link": f"artifacts/{split_ref(ref)[1]}"}


def _timed(html: str, settled: Sequence[Mapping[str, str | None]]) -> str:
    """Wrap the times in the notes of settled questions in ``<time>``, so that the page shows them in the person's zone.

    The search runs from the end of the text, because a question's note is its last line.
    """
    end = len(html)
    for each in reversed(settled):
        at, written = each.get("at"), each.get("written")
        if at and written and (begin := html.rfind(written, 0, end)) >= 0:
            marked = f'<time datetime="{escape(at)}">{written}</time>'
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
    """Poll the connection. Raises ConnectionResetError when the client is gone, which a stream without writes would
    miss."""
    while True:
        await asyncio.sleep(GONE_SECONDS)
        if gone(request):
            raise ConnectionResetError


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
