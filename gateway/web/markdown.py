"""A bot's Markdown as HTML that can do nothing but be read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererProtocol
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from channels.formatting import is_quick

__all__ = ["to_html"]

_SCHEMES = ("https://", "http://", "mailto:")
_DEEPEST = 20
"""Levels of lists and quotes in each other; the parser leaves out what is deeper, so deeper text is shown as it is."""
_TASK = re.compile(r"\[([ xX])\]\s")


def to_html(text: str, *, links: bool = True) -> str:
    """Return HTML without raw HTML, images or any link but to the web and to mailboxes; links open apart.

    `links`: an address that stands in the text by itself becomes a link too. Text that is very long, or built to be
    slow to read, is shown as it is.
    """
    if is_quick(text):
        markdown = _with_links if links else _markdown
        tokens = markdown.parse(text)
        if all(token.level < _DEEPEST - 1 for token in tokens):
            html: str = markdown.renderer.render(tokens, markdown.options, {})
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


def _image(renderer: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    """A picture is a link to it. It would be loaded from wherever the model says: a way to carry words out."""
    image = tokens[index]
    address = str(image.attrGet("src"))
    words = escape(image.content or address)
    if sum(token.nesting for token in tokens[:index] if token.tag == "a"):
        return words  # it stands in a link already
    opening = _open_link(renderer, [Token("link_open", "a", 1, attrs={"href": address})], 0, options, env)
    return f"{opening}{words}</a>"


def _open_cell(
    renderer: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType
) -> str:
    """A cell's alignment is a class: the page's policy lets no inline style through."""
    cell = tokens[index]
    if isinstance(style := cell.attrs.pop("style", None), str):
        cell.attrSet("class", style.rpartition(":")[2])
    html: str = renderer.renderToken(tokens, index, options, env)  # type: ignore[attr-defined]
    return html


def _tasks(state: StateCore) -> None:
    """Make boxes of the ``[ ]`` and ``[x]`` that the items of a list begin with, as GitHub does."""
    for item, paragraph, inline in zip(state.tokens, state.tokens[1:], state.tokens[2:], strict=False):
        if (item.type, paragraph.type, inline.type) != ("list_item_open", "paragraph_open", "inline"):
            continue
        first = inline.children[0] if inline.children else None
        task = _TASK.match(first.content) if first is not None and first.type == "text" else None
        if first is not None and task is not None:
            first.content = first.content[task.end() :]
            checked = "" if task[1] == " " else " checked"
            box = Token("html_inline", "", 0, content=f'<input type="checkbox" disabled{checked}> ')
            inline.children = [box, *(inline.children or [])]
            item.attrJoin("class", "task")


def _make(*, links: bool) -> MarkdownIt:
    options = {"html": False, "breaks": True, "maxNesting": _DEEPEST, "linkify": links}
    markdown = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
    if links:
        markdown.enable("linkify")
        # Only addresses with a scheme: no "example.com", no "ana@example.com".
        safe_links: Any = markdown.linkify
        safe_links.set({"fuzzy_link": False, "fuzzy_email": False, "fuzzy_ip": False})
        for scheme in ("ftp:", "//"):
            safe_links.add(scheme, None)
    safe: Any = markdown
    safe.validateLink = lambda url: url.strip().lower().startswith(_SCHEMES)
    markdown.core.ruler.push("tasks", _tasks)
    markdown.add_render_rule("link_open", _open_link)
    markdown.add_render_rule("image", _image)
    for cell in ("th_open", "td_open"):
        markdown.add_render_rule(cell, _open_cell)
    return markdown


_markdown, _with_links = _make(links=False), _make(links=True)
