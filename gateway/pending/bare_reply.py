"""The bare reply, a message of nothing but a yes or a no in a one-to-one chat: which question it answers, if any.

It is judged at its own stamp: later messages and receipts make no difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from channels import Person
from gateway.pending import transitions
from gateway.pending.index import LATELY, IndexEntry, Showing
from gateway.pending.words import Intent
from gateway.tools.pending_action import PendingAction

__all__ = ["BareReply"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BareReply:
    """A bare reply, and the state of the chat at the moment when it was written."""

    at: datetime
    fresh: bool
    """True if the person typed it here just now, as plain text in a message of its own."""
    last: Showing | None
    """The bot's last message before it; None if there was none, or if another one was being sent."""
    written: Literal["after", "unknown", "before"]
    """The order of the two messages, as the platform tells."""
    acted: datetime | None = None
    """The time when the person last wrote or pressed anything here before it."""
    beneath: str | None = None
    """The id of the bot's message that began the thread in which it was written."""

    def decides(self, intent: Intent, action: PendingAction, person: Person) -> bool:
        """Return True if it decides `action`, the only open action of this person here.

        The question is the bot's last message and stands alone in it. A no was not written before the question. A yes
        was written after it, within the answer window of that showing, by an approver who has written and pressed
        nothing else since. In the thread beneath a prompt a yes counts until the action expires.
        """
        shown, prompts = self.last, action.prompts
        if not self.fresh or person.is_bot or shown is None:
            return False
        if not shown.alone or shown.shows != {action.pending_action_id}:
            return False
        if intent == "cancel":
            return self.written != "before"
        there = self.beneath in prompts
        asked_in = action.address.thread if action.address is not None else None
        if not there and self.beneath not in (None, asked_in):
            return False
        if self.written != "after" or action.expires_at is None:
            return False
        window = timedelta(seconds=action.answer_window_seconds)
        until = action.expires_at if there else min(action.expires_at, shown.at + window)
        quiet = self.acted is None or self.acted < shown.at
        return shown.at <= self.at <= until and quiet and transitions.may_approve(action, str(person))

    def decides_plan(self, items: Sequence[PendingAction], person: Person) -> bool:
        """Return True if it decides these items, which are all that the bot's last message shows.

        The rules are those for a yes to a single question, within the shortest time of all.
        """
        shown = self.last
        if shown is None or shown.shows != {item.pending_action_id for item in items}:
            return False
        each = [(item, replace(shown, shows=frozenset({item.pending_action_id}))) for item in items if item.open]
        return all(replace(self, last=alone).decides("confirm", item, person) for item, alone in each)

    def meant_of(self, settled: Iterable[IndexEntry]) -> IndexEntry | None:
        """Return the settled action that it answers too late, or None. `settled` begins with the newest one.

        None if the person or the bot has written since the action settled, except for the message that told its end.
        """
        latest = next((entry for entry in settled if entry.at >= self.at - LATELY), None)
        if latest is None or (self.acted is not None and self.acted > latest.at):
            return None
        said = self.last
        if said is not None and said.at > latest.at and latest.action_id not in said.tells | said.shows:
            return None
        return latest
