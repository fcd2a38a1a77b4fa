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

_FIRST_ID = 10**12
"""First id of the bot's messages. No platform's ids are as large, and every channel can parse it."""
_INDENT = "    "


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message that the bot has sent in this replay."""

    message_id: str
    address: Address
    buttons: Sequence[Button]


class Transcript:
    """Printer of a replay's messages, in the order in which they occur."""

    def __init__(self, echo: Callable[[str], None]) -> None:
        self._echo = echo
        self._begun = self._shows = False
        """Whether any line has been printed, and whether the last one was a message of the bot."""
        self._numbers = itertools.count(_FIRST_ID)
        self.shown: dict[str, ShownMessage] = {}
        self.here: Address | None = None
        """Address of the record that is being replayed."""
        self.seen = 0
        """Count of the bot's messages when the record began."""
        self.said = False
        """Whether any line was printed for the record."""

    def begins(self, source: str, channel: str, what: str, address: Address | None = None) -> None:
        """Print the next record."""
        self.here, self.seen, self.said = address, len(self.shown), False
        self._part()
        self._echo(f"{source}  {channel}  {lines(what)}")

    def note(self, text: str) -> None:
        """Print a result of the record."""
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
        body = "\n\n".join(filter(None, [file, text, labels]))
        elsewhere = f"to {address}:\n" if self.here is not None and address != self.here else ""
        changed = "a message above now says:\n" if edits is not None else ""
        self._part(after_words=True)
        self.note(f"{elsewhere}{changed}{body}")
        self._shows = True
        message_id = str(next(self._numbers)) if edits is None else str(edits)
        self.shown[message_id] = ShownMessage(message_id, address, part.buttons)
        return Receipt(message_id=message_id)

    def _part(self, *, after_words: bool = False) -> None:
        """Print an empty line. With `after_words`, only after a message of the bot."""
        if self._begun and (self._shows or not after_words):
            self._echo("")
        self._begun, self._shows = True, False

    def newest(self, address: Address, label: str | None = None) -> ShownMessage | None:
        """Return the newest message of the bot in this chat, or None. Messages of the same thread are preferred.

        With a `label`, only messages with that button count. Otherwise a message with buttons is preferred.
        """
        here = [each for each in self.shown.values() if replace(each.address, thread=address.thread) == address]
        here.sort(key=lambda each: (each.address == address, bool(each.buttons), int(each.message_id)))
        for each in reversed(here):
            if label is None or any(button.label == label for button in each.buttons):
                return each
        return None
