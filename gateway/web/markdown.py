"""Conversion of a bot's Markdown to safe HTML: no scripts, no raw HTML, no remote content."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererProtocol
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from channels.formatting import TIME_SCHEME, is_quick, time_of
from gateway.web.code_colors import Colors
from gateway.web.formulas import add_formulas

_SCHEMES = ("https://", "http://", "mailto:")
_DEEPEST = 20
"""Maximum nesting of lists and quotes. The parser drops deeper levels, so a text with deeper levels is shown
unformatted."""
_MOST_ADDRESSES = 250
"""A text with more addresses gets no links of them. A search takes 60 microseconds, or 200 in a text without blanks."""
_LONGEST_NAME = 100
"""Characters of a checkbox's name, for screen readers."""
_TASK = re.compile(r"\[([ xX])\]\s")


def to_html(text: str, *, links: bool = True) -> str:
    """Return HTML without raw HTML and images. Links go to web and mail addresses only and open in a new tab.

    `links`: turn a bare URL into a link too, and ``$...$`` into a formula. Without `links`, a time made by `time_link`
    becomes a ``time`` element. A very long text, or a text slow to parse, is shown unformatted.
    """
    if is_quick(text):
        markdown = _markdown if not links else _with_links if text.count("://") <= _MOST_ADDRESSES else _with_formulas
        tokens = markdown.parse(text)
        if all(token.level < _DEEPEST - 1 for token in tokens):
            html: str = markdown.renderer.render(tokens, markdown.options, {})
            return html
    return f"<p>{escape(text)}</p>\n".replace("\n", "<br />\n", text.count("\n"))


def is_slow(text: str) -> bool:
    """Return True for a text whose code or formulas take long to read, for its length."""
    return "```" in text or "~~~" in text or "$" in text


def _fence(renderer: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    """Render code with colours, which come from the page's stylesheet. Its policy blocks inline styles."""
    fence = tokens[index]
    language = fence.info.split(maxsplit=1)[0] if fence.info.strip() else ""
    colors = env.setdefault("colors", Colors())
    return f"<pre><code>{colors.html(fence.content, language)}</code></pre>\n"


def _open_link(
    renderer: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType
) -> str:
    link = tokens[index]
    if (time := time_of(str(link.attrGet("href")))) is not None:
        kind, at = time
        return f'<time datetime="{datetime.fromtimestamp(at, UTC).isoformat()}"{" data-day" * (kind == "day")}>'
    link.attrSet("target", "_blank")
    link.attrSet("rel", "noopener noreferrer nofollow")
    # Show the real target, which may differ from the link's text.
    link.attrSet("title", str(link.attrGet("href")))
    html: str = renderer.renderToken(tokens, index, options, env)  # type: ignore[attr-defined]
    return html


def _close_link(
    renderer: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType
) -> str:
    opening = next(token for token in reversed(tokens[:index]) if token.type == "link_open")
    if time_of(str(opening.attrGet("href"))) is not None:
        return "</time>"
    html: str = renderer.renderToken(tokens, index, options, env)  # type: ignore[attr-defined]
    return html


def _image(renderer: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    """Render an image as a link. The browser must not load URLs of the model, because such a URL could carry data
    out."""
    image = tokens[index]
    address = str(image.attrGet("src"))
    words = escape(image.content or address)
    if sum(token.nesting for token in tokens[:index] if token.tag == "a"):
        return words  # the image is inside a link already
    opening = _open_link(renderer, [Token("link_open", "a", 1, attrs={"href": address})], 0, options, env)
    return f"{opening}{words}</a>"


def _open_cell(
    renderer: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType
) -> str:
    """Render a cell's alignment as a class, because the page's policy blocks inline styles."""
    cell = tokens[index]
    if isinstance(style := cell.attrs.pop("style", None), str):
        cell.attrSet("class", style.rpartition(":")[2])
    html: str = renderer.renderToken(tokens, index, options, env)  # type: ignore[attr-defined]
    return html


def _tasks(state: StateCore) -> None:
    """Turn ``[ ]`` and ``[x]`` at the start of list items into checkboxes, as GitHub does."""
    for item, paragraph, inline in zip(state.tokens, state.tokens[1:], state.tokens[2:], strict=False):
        if (item.type, paragraph.type, inline.type) != ("list_item_open", "paragraph_open", "inline"):
            continue
        first = inline.children[0] if inline.children else None
        task = _TASK.match(first.content) if first is not None and first.type == "text" else None
        if first is not None and task is not None:
            first.content = first.content[task.end() :]
            checked = "" if task[1] == " " else " checked"
            children = inline.children or []
            name = escape(" ".join("".join(each.content for each in children).split())[:_LONGEST_NAME])
            input_ = f'<input type="checkbox" disabled{checked} aria-label="{name}"> '
            inline.children = [Token("html_inline", "", 0, content=input_), *children]
            item.attrJoin("class", "task")


def _make(*, links: bool, formulas: bool) -> MarkdownIt:
    options = {"html": False, "breaks": True, "maxNesting": _DEEPEST, "linkify": links}
    markdown = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
    if links:
        markdown.enable("linkify")
        # Link only addresses with a scheme, not "example.com" or "ana@example.com".
        safe_links: Any = markdown.linkify
        safe_links.set({"fuzzy_link": False, "fuzzy_email": False, "fuzzy_ip": False})
        for scheme in ("ftp:", "//"):
            safe_links.add(scheme, None)
    safe: Any = markdown
    schemes = _SCHEMES if formulas else (*_SCHEMES, TIME_SCHEME)
    safe.validateLink = lambda url: url.strip().lower().startswith(schemes)
    markdown.core.ruler.push("tasks", _tasks)
    if formulas:
        add_formulas(markdown)
    markdown.add_render_rule("fence", _fence)
    markdown.add_render_rule("link_open", _open_link)
    markdown.add_render_rule("link_close", _close_link)
    markdown.add_render_rule("image", _image)
    for cell in ("th_open", "td_open"):
        markdown.add_render_rule(cell, _open_cell)
    return markdown


_markdown, _with_formulas = _make(links=False, formulas=False), _make(links=False, formulas=True)
_with_links = _make(links=True, formulas=True)
