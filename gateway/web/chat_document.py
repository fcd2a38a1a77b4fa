"""The document of the chat page: the HTML by language, style sheets and scripts, the logo, and the headers of all."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from html import escape
from importlib.resources import files
from typing import Final

from aiohttp import hdrs, web

from channels.cancellable_threads import WORK, in_thread
from channels.webchat.payload import MAX_FILE_BYTES, MAX_FILES
from gateway.web.chat_theme import Theme
from gateway.web.markdown import to_html
from gateway.wording import Wording, direction, speaking

_FILES = files("gateway.web") / "static"
_PAGE: Final = (_FILES / "chat.html").read_text("utf-8")
_MARK: Final = (_FILES / "mark.svg").read_text("utf-8")
_EMBED: Final = (_FILES / "embed.js").read_text("utf-8")
_SCRIPTS: Final = (
    *("answers", "chat", "chats", "commands", "console", "files", "lives", "make", "stages", "steps", "visit"),
)
_STATIC: Final = {
    name: ((_FILES / name).read_bytes(), content_type)
    for name, content_type in (
        ("chat.css", "text/css"),
        *((f"{name}.js", "text/javascript") for name in _SCRIPTS),
        ("chat.svg", "image/svg+xml"),
    )
}
_INERT: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    hdrs.CACHE_CONTROL: "max-age=300",
}
"""The headers of the logo. A drawing has styles, and must run no script under this origin."""


class Document:
    """The document of a page. `origins`: the sites with the page in a frame."""

    def __init__(
        self,
        title: str,
        theme: Theme,
        origins: Collection[str],
        *,
        greeting: str | None,
        wording: Wording,
        commands: Callable[[str], Mapping[str, str]],
        has_console: bool,
        check: Callable[[web.Request], object],
    ) -> None:
        """`check`: refuse a request to a host name of another site."""
        self._title, self._theme, self._origins = theme.title or title, theme, sorted(origins)
        self._greeting, self._wording, self._commands = greeting, wording, commands
        self._has_console, self._check = has_console, check
        self._written: dict[tuple[str, bool], str] = {}
        """Language, and whether in a frame -> HTML of the page."""
        self.headers = _headers(theme, self._origins)

    def add_to(self, app: web.Application) -> None:
        """Add the files of the page to an application."""
        app.router.add_get(f"/chat/{{name:{'|'.join(map(re.escape, _STATIC))}}}", self._static)
        app.router.add_get("/chat/theme.css", self._colours)
        if self._theme.logo is not None:
            app.router.add_get("/chat/logo", self._logo)
        if self._origins:
            app.router.add_get("/chat/embed.js", self._embed)

    async def html(self, language: str, *, embedded: bool) -> str:
        """Return the page's HTML in a language. Reads the language's sentences in a thread, once."""
        key = language, embedded
        if key not in self._written:
            self._written[key] = await in_thread(partial(self._write, language, embedded), threads=WORK)
        return self._written[key]

    def _write(self, language: str, embedded: bool) -> str:
        """Return the page's HTML in a language with a file of sentences."""
        said = self._wording.spoken(language).sentences
        texts = {name.removeprefix("page_"): text for name, text in said.items() if name.startswith("page_")}
        greeting = f"<p><strong>{escape(texts['hello'])}</strong></p>"
        if self._greeting is not None:
            greeting = f'<div class="greeting">{to_html(self._greeting)}</div>'
        with speaking(self._wording):
            commands = self._commands(language)
        logo = self._theme.source
        filled = {name: escape(text) for name, text in texts.items()} | {
            "title": escape(self._title),
            "mark": _MARK if logo is None else f'<img class="mark" src="{escape(logo)}" alt="">',
            "origins": escape(json.dumps(self._origins if embedded else None)),
            "greeting": greeting,
            "has_console": "on" if self._has_console else "off",
            "lang": language,
            "largest_file": str(MAX_FILE_BYTES),
            "most_files": str(MAX_FILES),
            "dir": direction(language),
            "texts": escape(json.dumps(texts)),
            "commands": escape(json.dumps(commands)),
        }
        return re.sub(r"\{\{(\w+)\}\}", lambda name: filled[name[1]], _PAGE)

    async def _static(self, request: web.Request) -> web.Response:
        self._check(request)
        body, content_type = _STATIC[request.match_info["name"]]
        return web.Response(body=body, content_type=content_type, charset="utf-8", headers=self.headers)

    async def _colours(self, request: web.Request) -> web.Response:
        self._check(request)
        return web.Response(text=self._theme.css, content_type="text/css", headers=self.headers)

    async def _logo(self, request: web.Request) -> web.Response:
        self._check(request)
        content, content_type = self._theme.logo or (b"", "")
        return web.Response(body=content, content_type=content_type, headers=_INERT)

    async def _embed(self, request: web.Request) -> web.Response:
        """Return the script for the pages of the sites around. It is the same for all, and holds nothing secret."""
        self._check(request)
        values = {"title": self._title, "accent": self._theme.fill, "on_accent": self._theme.on_fill}
        script = re.sub(r'"\{\{(\w+)\}\}"', lambda name: json.dumps(values[name[1]]), _EMBED)
        headers = {**self.headers, "Cross-Origin-Resource-Policy": "cross-origin", hdrs.CACHE_CONTROL: "max-age=300"}
        return web.Response(text=script, content_type="text/javascript", headers=headers)


def _headers(theme: Theme, origins: Collection[str]) -> Mapping[str, str]:
    """Return the headers of the page. Only the listed sites may show it in a frame."""
    frames = " ".join(origins) or "'none'"
    pictures = f"'self' {theme.logo_url}" if theme.logo_url is not None else "'self'"
    return {
        "Content-Security-Policy": (
            f"default-src 'none'; script-src 'self'; style-src 'self'; img-src {pictures}; connect-src 'self'; "
            f"base-uri 'none'; form-action 'none'; frame-ancestors {frames}"
        ),
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        hdrs.CACHE_CONTROL: "no-store",
    }
