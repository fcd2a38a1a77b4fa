"""Printed output of ``askfirst replay``: the recorded events and the bot's messages."""

from __future__ import annotations

import itertools
import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from channels import Address, Button, Part, Receipt
from gateway.cli.terminal import from_markdown, lines, visible
from gateway.tools.pending_action import PendingAction

__all__ = ["ShownMessage", "Transcript"]

_FIRST_ID = 10**12
"""First id of the bot's messages. No platform's ids are as large, and every channel can parse it."""
_INDENT = "    "


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message of the bot."""

    message_id: str
    address: Address
    buttons: Sequence[Button]


class Transcript:
    """What is said in a replay, printed as it comes."""

    def __init__(self, echo: Callable[[str], None]) -> None:
        self._echo = echo
        self._begun = self._shows = False
        """Whether anything is printed yet, and whether a message of the bot was last."""
        self._numbers = itertools.count(_FIRST_ID)
        self.shown: dict[str, ShownMessage] = {}
        self.here: Address | None = None
        """Where what is replayed was written."""
        self.seen = 0
        """How many messages of the bot were there when it was written."""
        self.said = False
        """Whether anything came of it."""

    def begins(self, source: str, channel: str, what: str, address: Address | None = None) -> None:
        """Print what is replayed next."""
        self.here, self.seen, self.said = address, len(self.shown), False
        self._part()
        self._echo(f"{source}  {channel}  {lines(what)}")

    def note(self, text: str) -> None:
        """Print what came of it."""
        self.said = True
        self._echo(textwrap.indent(text, _INDENT).rstrip())

    def would_run(self, action: PendingAction) -> None:
        """Print a confirmed action, which is not run."""
        self.note(f"would run: {action.kind} {visible(json.dumps(dict(action.args), ensure_ascii=False))}")

    def show(self, address: Address, part: Part) -> Receipt:
        """Print a message of the bot."""
        text, edits = from_markdown(str(part.arguments["text"])), part.arguments["edits"]
        labels = "  ".join(f"[ {visible(button.label)} ]" for button in part.buttons)
        file = f"[file: {visible(part.media.filename)}]" if part.media is not None else ""
        told = "\n\n".join(filter(None, [file, text, labels]))
        elsewhere = f"to {address}:\n" if self.here is not None and address != self.here else ""
        changed = "a message above now says:\n" if edits is not None else ""
        self._part(after_words=True)
        self.note(f"{elsewhere}{changed}{told}")
        self._shows = True
        message_id = str(next(self._numbers)) if edits is None else str(edits)
        self.shown[message_id] = ShownMessage(message_id, address, part.buttons)
        return Receipt(message_id=message_id)

    def _part(self, *, after_words: bool = False) -> None:
        """Print an empty line, `after_words` only after a message of the bot."""
        if self._begun and (self._shows or not after_words):
            self._echo("")
        self._begun, self._shows = True, False

    def newest(self, address: Address, label: str | None = None) -> ShownMessage | None:
        """Return the newest message of the bot in this chat, in its thread if one is there: one with such a button, or
        else one with buttons before one without."""
        here = [each for each in self.shown.values() if replace(each.address, thread=address.thread) == address]
        here.sort(key=lambda each: (each.address == address, bool(each.buttons), int(each.message_id)))
        for each in reversed(here):
            if label is None or any(button.label == label for button in each.buttons):
                return each
        return None
