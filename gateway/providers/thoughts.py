"""Thoughts and raw calls that a server leaves in the text of an answer.

Models that reason write their thoughts between tags, and a server without a parser for them passes the tags on
(https://github.com/nullclaw/nullclaw/issues/272, https://github.com/openclaw/openclaw/issues/69843). Some begin within
the thoughts, so that only the closing tag comes. A call may stand in the text as well. None of it is for a person. Tags
within code are text.
"""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(r"```|`|</?(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_MAY_BEGIN: Final = re.compile(r"`{1,2}\Z|<(?:/?[a-z]{0,9})?\Z", re.IGNORECASE)
_CALL: Final = re.compile(
    r"<tool_call>|<\|tool_call(?:s_section)?(?:_begin)?\|>|\[TOOL_CALLS\]|<function=", re.IGNORECASE
)


class AnswerText:
    """Takes the pieces of a text, and gives the pieces of the answer in it.

    `waits`: this model has begun within its thoughts before, so a piece is given only once they have ended.
    """

    def __init__(self, *, waits: bool = False) -> None:
        self.begins_thinking = False
        """True if a closing tag came without an opening one: the text before it was a thought, too."""
        self._waits, self._thinks = waits, False
        self._code = ""
        """The mark that ends the code in which the text is."""
        self._held = ""
        self._kept = ""
        self._shown = 0

    def add(self, piece: str) -> str:
        """Add a piece. Return the piece of the answer that can be shown now."""
        self._held += piece
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
        self._shown += len(shown)
        return shown

    def rest(self) -> str:
        """Return the piece of the answer that was not shown yet, at the end of the text."""
        self.whole()
        return "" if self.begins_thinking else self._kept[self._shown :]

    def whole(self) -> str:
        """Return the whole answer, at the end of the text."""
        self._kept += "" if self._thinks else self._held
        self._held = ""
        return self._kept.strip() if self.begins_thinking else self._kept.lstrip()

    def _text(self, text: str) -> str:
        if self._thinks:
            return ""
        self._kept += text
        return text

    def _mark(self, mark: str, shown: str) -> str:
        """Take a tag or a mark of code. Return the pieces before it that are still shown."""
        if self._thinks:
            self._thinks = not mark.startswith("</")
            self._waits = self._waits and self._thinks
            return shown
        if self._code or mark.startswith("`"):
            self._code = "" if self._code == mark else self._code or mark
            return shown + self._text(mark)
        if mark.startswith("</"):
            self.begins_thinking, self._waits, self._kept = True, False, ""
            return ""
        self._thinks = True
        return shown


def before_raw_call(text: str) -> str | None:
    """Return the text in front of a written call; None if it has no call outside of code."""
    code = ""
    for token in re.finditer(rf"```|`|{_CALL.pattern}", text, re.IGNORECASE):
        if token[0].startswith("`"):
            code = "" if code == token[0] else code or token[0]
        elif not code:
            return text[: token.start()].rstrip()
    return None
