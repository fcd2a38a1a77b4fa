"""Parsing of Markdown (CommonMark, tables, strike-through) to text and spans.

HTML is shown as text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

from channels.formatting.styled import Span, SpanKind, Styled

MAX_MARKDOWN = 16_000
"""In characters. A longer text is shown as written, so no text can be built that takes long to parse."""

_MOST_BRACKETS = 1_000
"""The most opening brackets. With more unclosed brackets the parser is slow even for a short text."""

_MOST_CELLS = 10_000
"""The most lines times columns of the widest line: the parser fills up the short rows of a table."""

_MOST_SIGNS = 1_500
_SIGNS_OF_A_LINE = 2
"""The marks that a line counts as. `_MOST_SIGNS` limits the marks of emphasis, code, cells, pictures and tags:
each is a token or two."""

_PHONE_COLUMNS = 36
"""Characters of fixed width in a line of a phone."""

_MAX_TABLE = 8_000
"""Characters of the largest table with aligned columns or with a heading at each cell."""

_DEEPEST = 40
"""The most levels of nested lists and quotes. The parser drops deeper levels, so a deeper text is shown as written."""

_PARSER = MarkdownIt("commonmark", {"maxNesting": _DEEPEST}).enable(["table", "strikethrough"])
_PARSER.disable(["html_block", "html_inline"])

_MARKS = r"\0\r\\`~*_\[<&|"
"""Characters that the parser may change anywhere. Others change only at the beginning or end of a line."""
_LINE = rf"(?![>#+=-]|\d+[.)])[^\s{_MARKS}](?:[^\n{_MARKS}]*[^\s{_MARKS}])?"
_NO_MARKDOWN = re.compile(rf"{_LINE}(?:\n\n?{_LINE})*")
"""A text unchanged by the parser, as most messages are."""

_INLINE: dict[str, SpanKind] = {"strong": "bold", "em": "italic", "s": "strike"}
_LANGUAGE = re.compile(r"[\w+#.-]{1,32}")
_RULE = "———"


def read_markdown(markdown: str, *, columns: int = _PHONE_COLUMNS) -> Styled:
    """Return the text of a piece of Markdown and its spans. Raises no error and is quick for any input.

    `columns`: characters of fixed width in a line. The cells of a wider table are written one under another.
    """
    text = markdown.encode("utf-8", "replace").decode()  # a lone surrogate cannot be sent anywhere
    if _NO_MARKDOWN.fullmatch(text) or not is_quick(text):
        return Styled(text)
    tokens = _PARSER.parse(text)
    if any(token.level >= _DEEPEST - 1 for token in tokens):
        return Styled(text)
    return _Walk(columns).over(tokens)


def is_quick(text: str) -> bool:
    """Return True if a Markdown parser reads this text quickly. False for a text built to be slow."""
    if len(text) > MAX_MARKDOWN or text.count("[") > _MOST_BRACKETS:
        return False
    signs = sum(map(text.count, ("*", "_", "~", "`", "|", "![", "![", "<!")))
    if signs + _SIGNS_OF_A_LINE * text.count("\n") > _MOST_SIGNS:
        return False
    lines = text.split("\n")
    return len(lines) * (1 + max(line.count("|") for line in lines)) <= _MOST_CELLS


class _Walk:
    """Converter of the parser's tokens to text and spans, for one text."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._pieces: list[str] = []
        self._length = 0
        self._newlines = 0
        self._indent = ""
        self._after_marker = False
        self._spans: list[Span] = []
        self._open: list[tuple[SpanKind, str, int | None]] = []
        self._lists: list[int | None] = []
        """The open lists: the next number of each, or None for bullets."""
        self._depth: Counter[SpanKind] = Counter()

    def over(self, tokens: Sequence[Token]) -> Styled:
        walk = iter(tokens)
        for token in walk:
            if token.type == "table_open":
                self._table(walk)
            else:
                self._block(token)
        spans = sorted(self._spans, key=lambda span: (span.start, -span.end))
        return Styled("".join(self._pieces), tuple(spans))

    def _block(self, token: Token) -> None:
        match token.type:
            case "paragraph_open":
                self._gap()
                if not self._after_marker:
                    self._indent = "  " * len(self._lists)
            case "heading_open":
                self._gap()
                self._begin("bold")
            case "bullet_list_open":
                self._gap()
                self._lists.append(None)
            case "ordered_list_open":
                self._gap()
                self._lists.append(int(token.attrs.get("start", 1)))
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()
            case "list_item_open":
                self._item()
            case "blockquote_open":
                self._gap()
                self._begin("quote")
            case "heading_close" | "blockquote_close":
                self._end()
            case "fence" | "code_block":
                language = _LANGUAGE.match(token.info)
                self._gap()
                self._span("pre", token.content.rstrip("\n"), language[0] if language else "")
            case "hr":
                self._gap()
                self._write(_RULE)
            case "inline":
                self._inline(token.children or [])

    def _inline(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            name, _, side = token.type.rpartition("_")
            if name in _INLINE and side == "open":
                self._begin(_INLINE[name])
            elif token.type == "link_open":
                self._begin("link", str(token.attrs.get("href", "")))
            elif side == "close":
                self._end()
            elif token.type == "code_inline":
                self._span("code", token.content)
            elif token.type == "image":
                address = str(token.attrs.get("src", ""))
                self._span("link", token.content or address, address)
            elif token.type in ("softbreak", "hardbreak"):
                self._write("\n" + "  " * len(self._lists))
            else:
                self._write(token.content)

    def _item(self) -> None:
        self._gap()
        number = self._lists[-1]
        marker = "•" if number is None else f"{number}."
        if number is not None:
            self._lists[-1] = number + 1
        if not self._after_marker:
            self._indent = "  " * (len(self._lists) - 1)
        self._write(f"{marker} ")
        self._after_marker = True

    def _table(self, walk: Iterator[Token]) -> None:
        rows: list[list[str]] = []
        for token in walk:
            match token.type:
                case "tr_open":
                    rows.append([])
                case "inline":
                    rows[-1].append(_cell(token.children or []))
                case "table_close":
                    break
        widths = [max(map(_width, column)) for column in zip_longest(*rows, fillvalue="")]
        heads = rows[0] if rows else []
        if (sum(widths) + 3 * len(widths)) * len(rows) > _MAX_TABLE or sum(map(len, heads)) * len(rows) > _MAX_TABLE:
            self._gap()
            self._span("pre", "\n".join(" | ".join(row) for row in rows))
        elif sum(widths) + 3 * (len(widths) - 1) <= self._columns:
            self._gap()
            self._span("pre", _aligned(rows, widths))
        else:
            for row in rows[1:]:
                self._card(heads, row)
            if len(rows) == 1:
                self._card((), heads)

    def _card(self, heads: Sequence[str], row: Sequence[str]) -> None:
        """Write a row of a table by itself: the first cell, then each other cell behind its heading."""
        first, *others = row
        self._gap()
        self._span("bold", first)
        for head, cell in zip_longest(heads[1:], others, fillvalue=""):
            if cell:
                self._newlines = 1 if self._length else 0
                self._write(f"{head}: {cell}" if head else cell)

    def _gap(self) -> None:
        """Begin a block: after an empty line, or within a list on the next line."""
        if not self._after_marker:
            self._newlines = max(self._newlines, 1 if self._lists else 2)

    def _write(self, text: str) -> None:
        if not text:
            return
        if self._newlines and self._length:
            self._put("\n" * self._newlines + self._indent)
        self._newlines, self._indent, self._after_marker = 0, "", False
        # A span begins with its first character, after the newlines that go before it.
        self._open = [(kind, value, self._length if start is None else start) for kind, value, start in self._open]
        self._put(text)

    def _put(self, text: str) -> None:
        self._pieces.append(text)
        self._length += len(text)

    def _span(self, kind: SpanKind, text: str, value: str = "") -> None:
        self._begin(kind, value)
        self._write(text)
        self._end()

    def _begin(self, kind: SpanKind, value: str = "") -> None:
        self._open.append((kind, value, None))
        self._depth[kind] += 1

    def _end(self) -> None:
        kind, value, start = self._open.pop()
        self._depth[kind] -= 1
        if start is not None and self._depth[kind] == 0:
            self._spans.append(Span(kind, start, self._length, value))


def _cell(tokens: Sequence[Token]) -> str:
    """Return the text of a table's cell: one line without spans. The address of a link is written out."""
    pieces: list[str] = []
    address = ""
    for token in tokens:
        if token.type == "link_open":
            address = str(token.attrs.get("href", ""))
        elif token.type == "link_close":
            pieces.append("" if "".join(pieces).endswith(address) else f" ({address})")
        else:
            pieces.append(" " if token.type.endswith("break") else token.content)
    return "".join(pieces)


def _aligned(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> str:
    """Return columns of equal width, with a line under the head."""
    lines = [
        " | ".join(cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=False)).rstrip()
        for row in rows
    ]
    lines.insert(1, "-+-".join("-" * width for width in widths))
    return "\n".join(lines)


def _width(text: str) -> int:
    """Return the columns of a text in a fixed-width font. East Asian characters and emoji take two columns."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")
_HALF_FENCE: Final = re.compile(r"\s*(`{1,}|~{1,})\s*")
_BEGUN_LINE: Final = re.compile(r"\s*(?:[-*+>]|\d{1,9}[.)]|#{1,6}|[-=]+|[*_]+|>[> ]*)\s*")
"""A last line with only the sign of a list, quote, heading or rule."""
_TOKEN: Final = re.compile(r"\\.|(`+)|(\*+|_+|~~)", re.DOTALL)
_LINK: Final = re.compile(r"!?\[([^\[\]\n]*)(?:\]\([^()\n]*)?\Z")
"""A link that breaks off within the text or the address."""
_SIGNS: Final = re.compile(r"[*_~`]+\Z")


def finished(markdown: str) -> str:
    """Return the beginning of a Markdown text with open markup closed. Open markup without text is left out.

    A whole text stays unchanged, but a last line that may continue as a table or a list is held back. A text that is
    slow to parse is returned unchanged, because the chat shows the text without markup.
    """
    text = markdown.rstrip()
    if not is_quick(text):
        return markdown
    if (fence := _open_fence(text)) is not None:
        return fence
    blocks, gap, last = text.rpartition("\n\n")
    return (blocks + gap + _finished_block(last)).rstrip()


def _open_fence(text: str) -> str | None:
    """Return the text with its open fence closed; None if no fence is open."""
    lines, sign = text.split("\n"), ""
    begun = 0
    for number, line in enumerate(lines):
        found = _FENCE.fullmatch(line)
        if not sign and found is not None and not (found[1][0] == "`" and "`" in found[2]):
            sign, begun = found[1], number
        elif sign and found is not None and found[1].startswith(sign) and not found[2].strip():
            sign = ""
    if not sign:
        return None
    if begun == len(lines) - 1:
        return "\n".join(lines[:-1]).rstrip()  # its language may not be whole
    if (half := _HALF_FENCE.fullmatch(lines[-1])) is not None and half[1][0] == sign[0]:
        lines.pop()
    return "\n".join([*lines, sign])


def _finished_block(block: str) -> str:
    lines = block.split("\n")
    if lines[0].lstrip().startswith("|"):
        return "\n".join(_finished_table(lines))
    if _BEGUN_LINE.fullmatch(lines[-1]):
        lines.pop()
    return _finished_inline("\n".join(lines))


def _finished_table(lines: list[str]) -> list[str]:
    """Return the whole rows of a table. Before the line under the head there is no table yet."""
    if len(lines) < 3 and not (len(lines) == 2 and lines[1].count("|") >= lines[0].rstrip().count("|")):
        return []
    return lines if lines[-1].rstrip().endswith("|") else lines[:-1]


def _finished_inline(text: str) -> str:
    """Return a block with its spans closed."""
    open_signs, code = _open_signs(text)
    if not code and (link := _LINK.search(text)) is not None:
        text = text[: link.start()] + link[1]
        open_signs, code = _open_signs(text)
    if not (open_signs or code):
        return text
    if (signs := _SIGNS.search(text)) is not None:
        text = text[: signs.start()]  # the beginning of a sign, or one that nothing follows yet
        open_signs, code = _open_signs(text)
    text = text.rstrip()
    return text + code + "".join(reversed(open_signs))


def _open_signs(text: str) -> tuple[list[str], str]:
    """Return the signs of emphasis open at the end, and the sign of an open span of code."""
    opened: list[str] = []
    at = 0
    while (token := _TOKEN.search(text, at)) is not None:
        at = token.end()
        if (ticks := token[1]) is not None:
            closing = re.compile(rf"(?<!`){ticks}(?!`)").search(text, at)
            if closing is None:
                return opened, ticks
            at = closing.end()
        elif (sign := token[2]) is not None:
            _take(opened, sign, text[token.start() - 1 : token.start()], text[at : at + 1])
    return opened, ""


def _take(opened: list[str], sign: str, before: str, after: str) -> None:
    """Open or close emphasis with a sign between two characters, as CommonMark does."""
    in_word = sign[0] == "_" and before.isalnum() and after.isalnum()
    closes = bool(before.strip()) and not (sign[0] == "_" and after.isalnum())
    if in_word:
        return
    while sign and closes and opened and opened[-1][0] == sign[0]:
        last = opened.pop()
        shared = min(len(last), len(sign))
        if len(last) > shared:
            opened.append(last[shared:])
        sign = sign[shared:]
    opens = (bool(after.strip()) or not after) and not (sign[:1] == "_" and before.isalnum())
    if sign and opens and len(sign) <= 3:
        opened.append(sign)
