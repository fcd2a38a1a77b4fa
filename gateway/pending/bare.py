"""A bare yes or no in a one-to-one chat: when it is the answer to a question, and to which.

It is judged as of its own stamp; later messages and receipts make no difference.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from channels import Person
from gateway.pending import transitions
from gateway.pending.index import LATELY, Entry, Showing
from gateway.pending.words import Intent
from gateway.tools.pending_action import PendingAction

__all__ = ["BareWord"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BareWord:
    """A bare word, and the moment in which it was written."""

    at: datetime
    fresh: bool
    """The person typed it here just now, and nothing about it says otherwise."""
    last: Showing | None
    """The message of ours that was the last one before it; None when there was none, or another was on its way."""
    written: Literal["after", "unknown", "before"]
    """Whether it was written after that message, as the platform tells."""
    acted: datetime | None = None
    """When the person last wrote or pressed anything here before it."""
    beneath: str | None = None
    """The message of ours that began the thread in which it was written."""

    def decides(self, intent: Intent, action: PendingAction, person: Person) -> bool:
        """Return True when it decides the only action of this person that is open here.

        The question, alone in its message, is the last thing that was said. A no was not written before it. A yes was
        written after it, within the answer window of that showing, by somebody who may approve, and nothing else has
        come from them since; in the thread beneath a prompt it comes at any time.
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

    def meant_of(self, settled: Iterable[Entry]) -> Entry | None:
        """Return which of these, settled last first, it comes too late for; None when it is about something else.

        It yields to all that the person or the bot has said since, but for what told the end of that very action.
        """
        latest = next((entry for entry in settled if entry.at >= self.at - LATELY), None)
        if latest is None or (self.acted is not None and self.acted > latest.at):
            return None
        said = self.last
        if said is not None and said.at > latest.at and latest.action_id not in said.tells | said.shows:
            return None
        return latest
