"""Markdown that a model is still writing, made whole: markup that is not closed yet shows no raw signs."""

from __future__ import annotations

import re
from typing import Final

from channels.formatting.markdown import is_quick

__all__ = ["finished"]

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")
_HALF_FENCE: Final = re.compile(r"\s*(`{1,}|~{1,})\s*")
_BEGUN_LINE: Final = re.compile(r"\s*(?:[-*+>]|\d{1,9}[.)]|#{1,6}|[-=]+|[*_]+|>[> ]*)\s*")
"""A last line that is nothing but the sign of a list, quote, heading or rule."""
_TOKEN: Final = re.compile(r"\\.|(`+)|(\*+|_+|~~)", re.DOTALL)
_LINK: Final = re.compile(r"!?\[([^\[\]\n]*)(?:\]\([^()\n]*)?\Z")
"""A link that breaks off within its text or its address."""
_SIGNS: Final = re.compile(r"[*_~`]+\Z")


def finished(markdown: str) -> str:
    """Return the beginning of a Markdown text with its open markup closed, or left out while it holds no text yet.

    A whole text stays as it is, except that a last line that may go on as a table or a list is held back. A text that
    is slow to parse is returned unchanged, as it is shown without markup.
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
    """Return the whole rows of a table. Before the line under its head it is no table yet."""
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
    """Return the signs of emphasis that are open at the end, and the sign of an open span of code."""
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
