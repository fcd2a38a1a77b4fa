"""A bot's Markdown as HTML that can do nothing but be read."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererProtocol
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from channels.formatting import is_quick

__all__ = ["to_html"]

_SCHEMES = ("https://", "http://", "mailto:")
_DEEPEST = 20
"""Levels of lists and quotes in each other; the parser leaves out what is deeper, so deeper text is shown as it is."""


def to_html(text: str) -> str:
    """HTML without raw HTML, images or any link but to the web and to mailboxes; links open apart.

    Text that is very long, or built to be slow to read, is shown as it is.
    """
    if is_quick(text):
        tokens = _markdown.parse(text)
        if all(token.level < _DEEPEST - 1 for token in tokens):
            html: str = _markdown.renderer.render(tokens, _markdown.options, {})
            return html
    return f"<p>{escape(text)}</p>\n".replace("\n", "<br />\n", text.count("\n"))


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
    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": _DEEPEST}).enable(
        ["table", "strikethrough"]
    )
    # An image would be loaded from wherever the model says: a way to carry words out.
    markdown.disable("image")
    safe: Any = markdown
    safe.validateLink = lambda url: url.strip().lower().startswith(_SCHEMES)
    markdown.add_render_rule("link_open", _open_link)
    return markdown


_markdown = _make()
