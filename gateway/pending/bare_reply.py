"""The bare reply: a whole message of a yes, a no or the numbers of a list, in a private chat.

The place in the chat selects the question. The reply is judged at its own stamp: later messages and receipts make no
difference.
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
    """A bare reply, and the state of the chat at the time of writing."""

    at: datetime
    fresh: bool
    """True if the person typed the reply here just now, as plain text in a message of its own."""
    shown: tuple[Showing, ...]
    """The bot's last messages before the reply, forming a single list; empty without any, or during a send."""
    written: Literal["after", "unknown", "before"]
    """The order of the reply and the `shown` messages, by the platform's own order."""
    acted: datetime | None = None
    """The time of the person's previous message or press here."""
    beneath: str | None = None
    """The id of the bot's message at the root of the reply's thread."""
    sending: tuple[str, ...] = ()
    """The ids of the numbered list, if a message of a list was being sent at the time of writing."""

    @property
    def listed(self) -> tuple[str, ...]:
        """The ids of the numbered list shown last or being shown."""
        return self.shown[-1].listed if self.shown else self.sending

    @property
    def intent(self) -> Intent | None:
        """The meaning of a number in answer to the list; None for a list of questions."""
        return self.shown[-1].intent if self.shown else None

    def decides(
        self, intent: Intent, action: PendingAction, person: Person, *, doubted: datetime | None = None
    ) -> bool:
        """Return True if the reply decides `action`, the only open action of this person here.

        The question must be alone in the bot's last message. A no must not be written before the question. A yes must
        be written after the question, within the answer window of this showing, by a person that may approve the action
        and has written and pressed nothing since the question was queued. In the thread beneath a prompt a yes counts
        until the action expires. `doubted`: only a showing queued at or after this time counts.
        """
        if len(self.shown) != 1 or self.shown[0].shows != {action.pending_action_id}:
            return False
        return self._decides(intent, action, person, self.shown[0], doubted)

    def _decides(
        self, intent: Intent, action: PendingAction, person: Person, shown: Showing, doubted: datetime | None = None
    ) -> bool:
        """Return True if the reply decides an action shown in this message of the bot."""
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
        """Return True if the reply decides these actions, the whole list shown last.

        Each message of the list must have arrived. The rules of a bare reply to a single question hold, within the
        shortest time of all. `doubts`: action id -> the time of the doubt about a `doubted` action.
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
        """Return the settled action of a late reply, or None. `settled` begins with the newest action.

        None if the person or the bot has written since the action settled, except for the message about its end.
        """
        latest = next((entry for entry in settled if entry.at >= self.at - LATELY), None)
        if latest is None or (self.acted is not None and self.acted > latest.at):
            return None
        said = self.shown[-1] if self.shown else None
        if said is not None and said.at > latest.at and latest.action_id not in said.tells | said.shows:
            return None
        return latest
