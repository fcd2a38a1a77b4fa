"""The bare reply: a message of nothing but a yes or a no, or the numbers of a list, in a one-to-one chat.

It decides by its place in the chat. It is judged at its own stamp: later messages and receipts make no difference to
the question that it answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from channels import Person
from gateway.pending import transitions
from gateway.pending.index import LATELY, IndexEntry, Showing
from gateway.pending.words import Intent
from gateway.tools.pending_action import PendingAction


@dataclass(frozen=True, slots=True, kw_only=True)
class BareReply:
    """A bare reply, and the state of the chat at the moment when it was written."""

    at: datetime
    fresh: bool
    """True if the person typed it here just now, as plain text in a message of its own."""
    shown: tuple[Showing, ...]
    """The bot's last messages before it that make one list; empty if there was none, or another was being sent."""
    written: Literal["after", "unknown", "before"]
    """The order of this message and the `shown` ones, as the platform tells."""
    acted: datetime | None = None
    """The time when the person last wrote or pressed anything here before it."""
    beneath: str | None = None
    """The id of the bot's message that began the thread in which it was written."""
    sending: tuple[str, ...] = ()
    """The ids of the numbered list of which a message was being sent when it was written."""

    @property
    def listed(self) -> tuple[str, ...]:
        """The ids of the numbered list that was shown last, or is being shown."""
        return self.shown[-1].listed if self.shown else self.sending

    @property
    def intent(self) -> Intent | None:
        """The meaning of a number in answer to the list; None: the list is of questions."""
        return self.shown[-1].intent if self.shown else None

    def decides(
        self, intent: Intent, action: PendingAction, person: Person, *, doubted: datetime | None = None
    ) -> bool:
        """Return True if it decides `action`, the only open action of this person here.

        The question is the bot's last message and stands alone in it. A no was not written before the question. A yes
        was written after it, within the answer window of that showing, by an approver who has written and pressed
        nothing else since. In the thread beneath a prompt a yes counts until the action expires. A question that was
        `doubted` was queued to be shown since then.
        """
        if len(self.shown) != 1 or self.shown[0].shows != {action.pending_action_id}:
            return False
        return self._decides(intent, action, person, self.shown[0], doubted)

    def _decides(
        self, intent: Intent, action: PendingAction, person: Person, shown: Showing, doubted: datetime | None = None
    ) -> bool:
        """Return True if it decides an action that this message of the bot shows."""
        prompts = action.prompts
        if not self.fresh or person.is_bot or not shown.alone:
            return False
        if doubted is not None and shown.queued < doubted:
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
        # The message is on the screen some time between these two: a word of that time may have been written after it.
        quiet = self.acted is None or self.acted < shown.queued
        return shown.queued <= self.at <= until and quiet and transitions.may_approve(action, str(person))

    def decides_list(self, items: Sequence[PendingAction], person: Person, doubts: Mapping[str, datetime]) -> bool:
        """Return True if it decides these actions, which are all of the list that was shown last.

        Each message of the list has arrived. The rules of a bare reply to a single question hold, within the shortest
        time of all. `doubts`: the time of the doubt about each action that is `doubted`.
        """
        if not self.shown or any(each.shows for each in self.shown) != (self.intent is None):
            return False
        arrived = frozenset[str]().union(*(each.shows for each in self.shown))
        if self.intent is None and arrived != frozenset(self.listed):
            return False
        if self.acted is not None and self.acted >= self.shown[0].queued:
            return False
        intent: Intent = self.intent or "confirm"
        open_items = [item for item in items if item.open]
        return all(
            self._decides(intent, item, person, each, doubts.get(item.pending_action_id))
            for item in open_items
            for each in self.shown
        )

    def meant_of(self, settled: Iterable[IndexEntry]) -> IndexEntry | None:
        """Return the settled action that it answers too late, or None. `settled` begins with the newest one.

        None if the person or the bot has written since the action settled, except for the message that told its end.
        """
        latest = next((entry for entry in settled if entry.at >= self.at - LATELY), None)
        if latest is None or (self.acted is not None and self.acted > latest.at):
            return None
        said = self.shown[-1] if self.shown else None
        if said is not None and said.at > latest.at and latest.action_id not in said.tells | said.shows:
            return None
        return latest
