"""Thoughts and raw calls in the text of an answer.

Reasoning models write thoughts between tags, and a server without a parser passes the tags on
(https://github.com/nullclaw/nullclaw/issues/272, https://github.com/openclaw/openclaw/issues/69843). Some models begin
within the thoughts, so only the closing tag arrives. A call may stand in the text as well. None of this is for a
person. Tags within code are text.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Final

from gateway.providers.base import Request, Response, ToolCall
from gateway.providers.calls import WRITTEN, joined
from gateway.providers.lenient import told_once

_NAMES: Final = r"(?:seed:)?(?:think|thinking|thought|reasoning)"
_OPENS: Final = (
    rf"<{_NAMES}(?:\s[^<>]{{0,80}})?>|\[THINK\]|◁think▷|<\|channel\|>analysis<\|message\|>"
    r"|<\|(?:begin_of_thought|START_THINKING)\|>|<\|channel>\s*thought\b|<unused94>(?:thought\b)?"
)
_CLOSES: Final = (
    rf"</{_NAMES}>|\[/THINK\]|◁/think▷|<\|channel\|>final<\|message\|>"
    r"|<\|(?:end_of_thought|END_THINKING)\|>|<channel\|>|<unused95>"
)
_TAG: Final = re.compile(rf"(?P<opens>{_OPENS})|(?P<closes>{_CLOSES})", re.IGNORECASE)
_TOKEN: Final = re.compile(rf"```|`|{_OPENS}|{_CLOSES}", re.IGNORECASE)
_MAY_BEGIN: Final = re.compile(
    r"`{1,2}\Z|[<\[◁][^<>\[\]◁▷\n]{0,30}\Z|<\|channel\|>\w{0,8}(?:<[|a-z]{0,9})?\Z|<\|channel>\s{0,2}\w{0,7}\Z",
    re.IGNORECASE,
)
_FENCE: Final = re.compile(r"^ {0,3}(?P<mark>`{3,}+|~{3,}+)(?P<rest>[^\n]*)$", re.MULTILINE)
_SPAN: Final = re.compile(r"(?<!`)(?P<marks>`++)(?:[^\n]|\n(?!\s*\n)){1,2000}?(?<!`)(?P=marks)(?!`)")
_CALL: Final = re.compile(
    r"</?(?:minimax:)?tool_calls?>|<[|｜]tool[_▁]calls?(?:[_▁]section)?[_▁]begin[|｜]>|<[|｜]tool_call[|｜]>|\[TOOL_CALLS\]"
    r"|<function=|<\|python_tag\|>|[<‹][|｜]{1,2}DSML[|｜]|<\|tool_call>|</?function_calls>|<invoke name=|<TOOLCALL>"
    r"|<\|START_ACTION\|>|\bfunctools\[|<\|channel\|>commentary to=",
    re.IGNORECASE,
)


class _Code:
    """The places of code in a text, as in CommonMark: blocks with both fences, and spans between equal backticks.

    The time is linear: a fence that no later line can close is passed over, and a place found is kept.
    """

    def __init__(self, text: str) -> None:
        self._text = text if "`" in text or "~~~" in text else ""
        self._blocks = list(_blocks_in(self._text))
        self._places = self._from(0)
        self._next = next(self._places, None)

    def holds(self, place: int, since: int) -> bool:
        """Return True for a place in code that begins at `since` or later. Each call has a later place."""
        if self._next is not None and self._next[0] < since:
            self._places = self._from(since)
            self._next = next(self._places, None)
        while self._next is not None and self._next[1] <= place:
            self._next = next(self._places, None)
        return self._next is not None and self._next[0] <= place

    def _from(self, at: int) -> Iterator[tuple[int, int]]:
        for number in range(bisect_left(self._blocks, (at, at)), len(self._blocks)):
            begin, end = self._blocks[number]
            yield from (span.span() for span in _SPAN.finditer(self._text, at, begin))
            yield begin, end
            at = end
        yield from (span.span() for span in _SPAN.finditer(self._text, at))


def _blocks_in(text: str) -> Iterator[tuple[int, int]]:
    fences = list(_FENCE.finditer(text))
    closing = [len(each["mark"]) if not each["rest"].strip("`~ \t") else 0 for each in fences]
    longest: dict[str, list[int]] = {}
    """The sign of a fence -> the longest closing fence from each place on."""
    for sign in "`~":
        rest = [length if each["mark"][0] == sign else 0 for each, length in zip(fences, closing, strict=True)]
        longest[sign] = list(accumulate(reversed([*rest, 0]), max))[::-1]
    number = 0
    while number < len(fences):
        opened, number = fences[number], number + 1
        sign, length = opened["mark"][0], len(opened["mark"])
        if longest[sign][number] < length:
            continue
        while fences[number]["mark"][0] != sign or closing[number] < length:
            number += 1
        yield opened.start(), fences[number].end()
        number += 1


def _parted(text: str) -> tuple[str, bool]:
    """Return a whole text without thoughts, and True if the text began within thoughts.

    The first closing tag ends thoughts, except a tag between two backticks. No code reaches out of thoughts.
    """
    code = _Code(text)
    kept, at, thinks, begins_thinking = "", 0, False, False
    for tag in _TAG.finditer(text):
        if thinks:
            if tag["opens"] or text[tag.start() - 1] == text[tag.end() : tag.end() + 1] == "`":
                continue
            thinks = False
        elif code.holds(tag.start(), at):
            continue
        elif tag["opens"]:
            kept += text[at : tag.start()]
            thinks = True
        else:
            kept, begins_thinking = "", True
        at = tag.end()
    return kept + ("" if thinks else text[at:]), begins_thinking


def without_thoughts(text: str) -> str:
    """Return a whole text without thoughts."""
    kept, _ = _parted(text)
    return kept if kept == text else kept.strip()


class AnswerText:
    """Takes the pieces of a text, and returns the pieces of the answer in the text.

    `waits`: an earlier answer of this model began within thoughts, so pieces are held until the thoughts have ended.
    """

    def __init__(self, *, waits: bool = False) -> None:
        self.begins_thinking = False
        """True after a closing tag without an opening tag: the text before the tag was a thought, too."""
        self._waits, self._thinks = waits, False
        self._code = ""
        """The mark for the end of the current code."""
        self._held = self._raw = self._given = ""
        self._half = ""
        """The first half of a character whose second half comes with the next piece."""

    def add(self, piece: str) -> str:
        """Add a piece. Return the piece of the answer now safe to show."""
        piece, self._half = joined(self._half + piece), ""
        if "\ud800" <= piece[-1:] <= "\udbff":
            piece, self._half = piece[:-1], piece[-1]
        self._held += piece
        self._raw += piece
        shown, at = "", 0
        for token in _TOKEN.finditer(self._held):
            if token[0] == "`" and not self._held[token.start() :].strip("`"):
                break  # more of them may follow
            shown += self._text(self._held[at : token.start()])
            shown = self._mark(token[0], shown)
            at = token.end()
        rest = self._held[at:]
        waits = _MAY_BEGIN.search(rest)
        end = waits.start() if waits is not None else len(rest)
        shown += self._text(rest[:end])
        self._held = rest[end:]
        shown = "" if self._waits else shown
        self._given += shown
        return shown

    def rest(self) -> str:
        """Return the piece of the answer not shown yet, at the end of the text."""
        whole = self.whole()
        return whole[len(self._given) :] if whole.startswith(self._given) else ""

    def whole(self) -> str:
        """Return the whole answer, at the end of the text. The streamed draft may differ."""
        raw = self._raw + self._half
        kept, self.begins_thinking = _parted(raw)
        return kept.strip() if self.begins_thinking else kept.lstrip() if kept != raw else kept

    def _text(self, text: str) -> str:
        return "" if self._thinks else text

    def _mark(self, mark: str, shown: str) -> str:
        """Take a tag or a code mark. Return the still visible pieces before the mark."""
        if self._thinks:
            self._thinks = not _is_closing(mark)
            self._waits = self._waits and self._thinks
            return shown
        if self._code or mark.startswith("`"):
            self._code = "" if self._code == mark else self._code or mark
            return shown + mark
        if _is_closing(mark):
            self._waits = False
            return ""
        self._thinks = True
        return shown


def _is_closing(tag: str) -> bool:
    found = _TAG.fullmatch(tag)
    return found is not None and found["closes"] is not None


def shown(provider: str, response: Response, text: AnswerText, request: Request, model: str) -> Response:
    """Return the reply without thoughts. A call in the text becomes an unusable call."""
    content = text.whole()
    if response.finish == "refused":
        return replace(response, content=joined(without_thoughts(response.content)))
    before: str | None = None
    if request.tools and not response.tool_calls:
        before = "" if _is_call(content, request) else _before_raw_call(content)
    if before is None:
        return response if content == response.content else replace(response, content=content)
    told_once(f"{provider}: the model {model} writes its calls into the text: name it text+{provider}:{model}")
    call = ToolCall(call_id=f"text_{len(request.messages)}", name="unknown", parse_error=WRITTEN)
    return replace(response, content=before, tool_calls=(call,), finish="tools", echo=None)


def _before_raw_call(text: str) -> str | None:
    """Return the text in front of a written call; None without a call outside of code."""
    code = _Code(text)
    found = next((each for each in _CALL.finditer(text) if not code.holds(each.start(), 0)), None)
    return None if found is None else text[: found.start()].rstrip()


def _is_call(text: str, request: Request) -> bool:
    """Return True if a text is nothing but a call of a tool as JSON."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    names = {tool.name for tool in request.tools}
    return isinstance(value, dict) and value.get("name") in names and bool({"arguments", "parameters"} & value.keys())
