"""The meaning of the bot's messages, read from their English text alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

__all__ = [
    "BEGUN_BY_PERMISSION",
    "CHANGED",
    "DONE_BY_PERMISSION",
    "REFUSED",
    "REPLACED",
    "TOO_LATE",
    "UNDELIVERED",
    "VOTE_COUNTED",
    "Asked",
    "End",
    "Told",
    "changing_in",
    "ends_in",
    "highest_number",
    "invoice_in",
    "is_answer_to_stop",
    "numbered_button",
    "numbered_list",
    "questions_in",
    "range_of",
    "standing_code_in",
    "subject_of",
]

End = Literal["done", "failed", "not done", "unknown", "tampered"]

_VERBS = "pay|archive|move|send|file|sign|share|copy|stamp"
_QUESTION = re.compile(
    rf"(?:(\d+)\\\. )?\*\*({_VERBS}) invoice “?(INV\\-\d+)”?(?: to folder “?(\d+)”?)?\?\*\*", re.IGNORECASE
)
_CODE = re.compile(r"\*\*(?:OK|NO) ([0-9A-Z]{4})\*\*")
_CODES = re.compile(r"In words: ((?:\d+ \*\*OK [0-9A-Z]{4}\*\*(?:, )?)+)")
_NUMBER_AND_CODE = re.compile(r"(\d+) \*\*OK ([0-9A-Z]{4})")
_NUMBERS = re.compile(r"Or write the numbers of those to confirm, for example 1, (\d+)")
_WHICH = {"Which one shall I do?": "confirm", "Which one shall I not do?": "cancel"}
_LINE = re.compile(r"^\d+\. .* \(([0-9A-Z]{4})\)$", re.MULTILINE)
_NUMBERED = re.compile(r"(Confirm|Cancel) (\d+)")
_RANGE = re.compile(r"\w+ (\d+)–(\d+)")
_STANDING = re.compile(r"(?:Yes, and for [\w ]+: |Or reply )\*\*OK ([0-9A-Z]{4})\*\*")
_SUBJECT = re.compile(rf"({_VERBS}) invoice “?(INV-\d+)(?!\d)", re.IGNORECASE)
_LEAD = re.compile(r"^(?:\d+\. )?(?:[✅❌❔🚫] )?")
_DONE = re.compile(rf"({_VERBS}) (INV-\d+) is settled")

CHANGED = "I have changed it:"
REFUSED = ("Not done: ", "Not done. ", "Not approved by ")
UNDELIVERED = "This did not arrive in time"
REPLACED = "Changed meanwhile"
TOO_LATE = "This came too late to count"
VOTE_COUNTED = "Your yes is counted"
BEGUN_BY_PERMISSION = "I am doing it, as you allowed until"
DONE_BY_PERMISSION = "Done under your permission"
_TAMPERED = "The record of this was changed from outside the chat"
_UNKNOWN = "This may or may not have happened"
_NOT_DONE = (
    *REFUSED,
    "Not done, because ",
    "Taken back: ",
    "This has expired and nothing was done",
    UNDELIVERED,
    "This is no longer as it was shown",
    "It could not be checked whether",
    "The bot has been changed since",
    "This was confirmed, but could not be started",
)
_FAILED = ("This was confirmed, but ", "It did not work: ")


class Asked(NamedTuple):
    """A question of a message."""

    number: int
    """The number in the list; 0 without a list."""
    tool: str
    invoice: str
    folder: str
    code: str


class Told(NamedTuple):
    """The end of a call in a line; without an invoice, the text ends with a code."""

    end: End
    tool: str
    invoice: str
    line: str


def questions_in(text: str) -> list[Asked]:
    """Return the questions of a message, in order. A question without a code is answered already."""
    listed = _CODES.search(text)
    codes = dict(_NUMBER_AND_CODE.findall(listed[1])) if listed is not None else {}
    found = list(_QUESTION.finditer(text))
    asked = []
    for each, after in zip(found, [*(later.start() for later in found[1:]), len(text)], strict=True):
        number, verb, invoice, folder = each.groups(default="")
        code = _CODE.search(text, each.end(), after)
        if (known := codes.get(number) or (code[1] if code is not None else None)) is not None:
            asked.append(Asked(int(number or 0), verb.lower(), invoice.replace("\\", ""), folder, known))
    return asked


def numbered_button(label: str) -> tuple[str, int] | None:
    """Return the intent and the number on a button for one question of several."""
    found = _NUMBERED.fullmatch(label)
    return (found[1].lower(), int(found[2])) if found is not None else None


def highest_number(text: str) -> int:
    """Return the number of the list's questions, if the message says that numbers answer the list; 0 otherwise."""
    found = _NUMBERS.search(text)
    return int(found[1]) if found is not None else 0


def numbered_list(text: str) -> tuple[str, list[str]] | None:
    """Return the meaning of a number in the answer to this message, and the codes of the lines; None without a list."""
    intent = next((intent for asks, intent in _WHICH.items() if asks in text), None)
    return (intent, _LINE.findall(text)) if intent is not None else None


def range_of(label: str) -> tuple[int, int] | None:
    """Return the first and the last number on a button for several questions."""
    found = _RANGE.fullmatch(label)
    return (int(found[1]), int(found[2])) if found is not None else None


def standing_code_in(text: str) -> str:
    """Return the code that also gives a permission; empty without a code."""
    found = _STANDING.search(text)
    return found[1] if found is not None else ""


def invoice_in(text: str) -> str:
    """Return the first invoice of a text; empty without an invoice."""
    found = re.search(r"INV-\d+", text)
    return found[0] if found is not None else ""


def subject_of(text: str) -> tuple[str, str] | None:
    """Return the tool and the invoice of a text."""
    found = _SUBJECT.search(text.replace("\\", ""))
    return (found[1].lower(), found[2]) if found is not None else None


def changing_in(text: str) -> tuple[str, str] | None:
    """Return the tool and the invoice of the question to change."""
    return subject_of(text) if text.startswith("Write what should be different: ") else None


def ends_in(text: str) -> Iterator[Told]:
    """Yield the ends of calls in the lines of a message."""
    for line in text.replace("\\", "").split("\n"):
        said = _LEAD.sub("", line)
        end = _end_of(said)
        if (done := _DONE.search(said)) is not None:
            yield Told("done", done[1], done[2], said)
        elif end is not None:
            tool, invoice = subject_of(said) or ("", "")
            yield Told(end, tool, invoice, said)


def _end_of(said: str) -> End | None:
    if said.startswith(_TAMPERED):
        return "tampered"
    if said.startswith(_UNKNOWN):
        return "unknown"
    if said.startswith(DONE_BY_PERMISSION):
        return "done"
    if said.startswith(_NOT_DONE):
        return "not done"
    return "failed" if said.startswith(_FAILED) else None


def is_answer_to_stop(text: str) -> bool:
    """Return True for the answer to /stop, which ends all waiting actions."""
    return text.startswith("Stopped")
