"""A bot's Markdown as HTML that can do nothing but be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererProtocol
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

__all__ = ["to_html"]

_SCHEMES = ("https://", "http://", "mailto:")


def to_html(text: str) -> str:
    """HTML without raw HTML, images or any link but to the web and to mailboxes; links open apart."""
    html: str = _markdown.render(text)
    return html


def _open_link(
    renderer: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType
) -> str:
    link = tokens[index]
    link.attrSet("target", "_blank")
    link.attrSet("rel", "noopener noreferrer nofollow")
    # Where it really goes, whatever its words say.
    link.attrSet("title", str(link.attrGet("href")))
    html: str = renderer.renderToken(tokens, index, options, env)  # type: ignore[attr-defined]
    return html


def _make() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    # An image would be loaded from wherever the model says: a way to carry words out.
    markdown.disable("image")
    safe: Any = markdown
    safe.validateLink = lambda url: url.strip().lower().startswith(_SCHEMES)
    markdown.add_render_rule("link_open", _open_link)
    return markdown


_markdown = _make()
