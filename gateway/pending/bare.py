"""A bare yes or no in a one-to-one chat: when it is the answer to a question, and to which.

It is judged as of its own stamp: what came, or arrived, later makes no difference.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from channels import Person
from gateway.pending import transitions
from gateway.pending.index import LATELY, Entry
from gateway.pending.words import Intent
from gateway.tools.action import PendingAction

__all__ = ["BareWord"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BareWord:
    """What is known of the moment in which it was said."""

    at: datetime
    fresh: bool
    """Typed by the person just now: not forwarded, edited, transcribed or sent by a bot."""
    last_shown: frozenset[str]
    """The actions whose prompt was the last thing the bot sent before the word; empty when that was no prompt."""
    heard: datetime | None
    """When the person last wrote here before this word."""
    beneath: str | None = None
    """The message of ours that began the thread in which it was said."""

    def decides(self, intent: Intent, action: PendingAction, person: Person, *, pressed: datetime | None) -> bool:
        """Whether it decides the only action of this person that is open here. `pressed` is when they last pressed.

        A no needs nothing more. A yes comes within the answer window, right after the prompt, from who may approve; in
        the thread beneath a prompt it is of that one, and comes at any time.
        """
        if not self.fresh or person.is_bot:
            return False
        if intent == "cancel":
            return True
        there = self.beneath in action.prompts
        asked_in = action.address.thread if action.address is not None else None
        if not there and self.beneath not in (None, asked_in):
            return False
        shown, until = action.shown_at, action.expires_at if there else action.answer_until
        if shown is None or until is None or not shown <= self.at <= until:
            return False
        quiet = all(when is None or when < shown for when in (self.heard, pressed))
        return quiet and self.last_shown == {action.pending_action_id} and transitions.may_approve(action, str(person))

    def meant_of(self, settled: Iterable[Entry]) -> Entry | None:
        """Which of these, settled last first, it comes too late for; None when it is about something else."""
        latest = next((entry for entry in settled if entry.at >= self.at - LATELY), None)
        if latest is None or (self.heard is not None and self.heard > latest.at):
            return None
        return latest
