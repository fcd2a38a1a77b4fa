"""Texts that some code reads slowly, and the time that an entry holds the event loop."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable
from typing import Final

__all__ = ["NASTY", "held_seconds", "nasty"]

_SIZE: Final = 65_536
NASTY: Final[tuple[str, ...]] = (
    # marks
    "*", "_", "**", "~~", "`", "```\n", "[", "](", "[a](", "![", "<", ">", "> ", "- ", "1. ", "# ", "|", "| a ",
    "|-",
    "\\", "&", "&#9", "<a ", "<!--", "http://", "https://a.b/", "a@b.", "=\n", "***\n", "<think>", "  \n",
    # blanks
    " ", "\t", "\n", "\r\n", "\xa0", "\u200b", "\u200d", "\u202e", "\ufeff", "\x00", "\x1b[2J", "\ud800",
    # letters
    "a", "A", "aa ", "é", "e\u0301", "\u0301", "ß", "ﬁ", "ﷺ", "½", "漢", "あ", "ー", "한", "ไทย", "א", "\u0647\u064b",
    "аa", "а ", "ա", "\U0001f44d", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f3fd", "\ufe0f",
    # numbers
    "1", "1,", "1 ", "+1 ", "1.", "9-", "4111 1111 ", "DE89 ", "+4930",
    # code
    "{", "[1,", '{"a":', '"', "'", "\u201c",
    # words
    "yes ", "no, ", "ignore ", "ignore the previous ", "system: ", "you must ", "INV-1 ", "@bot ", "OK K7P2 ",
)  # fmt: skip
"""Units for slow texts by repetition: marks, blanks, letters, numbers, code and words."""


def nasty(unit: str, size: int = _SIZE) -> str:
    """Return a unit repeated to a text of this many characters."""
    return (unit * (size // len(unit) + 1))[:size]


async def held_seconds(work: Awaitable[object]) -> float:
    """Return this process's most CPU seconds between two beats of the loop until the work is done.

    Threads count, because they hold the interpreter; the time of other programs does not.
    """
    gc.freeze()  # the objects of all tests before would make each full collection a stall
    longest, before = 0.0, time.process_time()

    async def beat() -> None:
        nonlocal longest, before
        while True:
            await asyncio.sleep(0.01)
            now = time.process_time()
            longest, before = max(longest, now - before), now

    beating = asyncio.ensure_future(beat())
    await asyncio.sleep(0)
    before = time.process_time()
    try:
        await work
        await asyncio.sleep(0.011)
    finally:
        beating.cancel()
        gc.unfreeze()
    return longest
