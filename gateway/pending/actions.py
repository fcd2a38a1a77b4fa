"""The actions of one conversation: read once, changed by the rules, written back in one transaction.

The rules are functions over a `ConversationActions`: `prompting` asks and shows, `deciding` takes answers, `settling`
launches and ends. They do no I/O between `loading` and `write`; after a Conflict the caller repeats both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TypeAlias

from channels import Capabilities, Person, Reply
from channels.formatting import drop_dear_accents
from gateway.artifacts import Artifact
from gateway.pending import transitions
from gateway.pending.changes import Changes
from gateway.pending.index import Index
from gateway.pending.seal import Keyring
from gateway.store.base import Transaction
from gateway.store.form import NewerForm
from gateway.tools.pending_action import Detail, PendingAction

__all__ = ["ConversationActions", "Drift", "OutgoingReply", "in_order"]

Drift: TypeAlias = Callable[[PendingAction], Detail | None]
"""Return why an action may no longer happen as it was shown: its tool is gone or another, or the policy denies it now;
None: it may."""

_DELIVERED_WITHIN = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingReply:
    """A reply to send, and the actions it is the prompt of."""

    reply: Reply
    shows: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    """The actions that were never asked if this does not arrive; empty: those it shows."""
    tells: tuple[str, ...] = ()
    """The actions whose end it tells: a late word after it is still about them."""
    alone: bool = False
    """It holds one question of the gateway's and nothing else, so a bare word may answer it."""


class ConversationActions:
    """The open and lately settled actions of one conversation, what is to be said about them, and every change."""

    def __init__(
        self,
        *,
        conversation: str,
        partition: str,
        index: Index,
        index_version: int,
        actions: Mapping[str, PendingAction],
        versions: Mapping[str, int],
        newer: Mapping[str, int] = MappingProxyType({}),
        rewrites: bool = False,
        keyring: Keyring,
        now: datetime,
        drift: Drift,
        capabilities: Capabilities | None = None,
    ) -> None:
        """`capabilities` are the channel's, for prompts; None: it shows buttons.

        `rewrites`: everything is written in any case, since the stored form is an older one or broken.
        """
        self.conversation, self.partition, self.now = conversation, partition, now
        self.has_buttons = capabilities is None or capabilities.buttons > 0
        self.shows_files = capabilities is None or capabilities.text_files
        cheap = capabilities is not None and not capabilities.accents
        self.letters: Callable[[str], str] = drop_dear_accents if cheap else str
        self.is_paid = cheap
        """Each message costs its sender: an answer that is not clear is told so for two showings, and no more."""
        self.index, self.drift = index, drift
        self.by_id: dict[str, PendingAction] = dict(actions)
        self.newer = newer
        """Actions that a newer release wrote, and the form of each. They and the decisions on them are left to that
        release."""
        self.changes = Changes(
            conversation=conversation,
            keyring=keyring,
            versions=dict(versions),
            index_read=index,
            index_version=index_version,
            rewrites=rewrites,
            actions=dict(actions) if rewrites else {},
        )
        self.says: list[OutgoingReply] = []
        self.files: dict[str, Artifact] = {}
        """Action id -> the file of its question. The caller keeps the bytes before it queues the question."""
        self.near: str = ""
        """The ids of the actions that an answer was meant for which is not clear enough; it was told so."""
        self.refused: bool = False
        """A person without the right tried to decide. Only a line of the audit is written then."""

    def get(self, action_id: str) -> PendingAction | None:
        """Return an action that was read. Raises NewerForm for one that a newer release wrote."""
        if action_id in self.newer:
            raise NewerForm(self.newer[action_id])
        return self.by_id.get(action_id)

    @property
    def open(self) -> list[PendingAction]:
        """The open actions, in the order they were asked."""
        found = [self.by_id.get(entry.action_id) for entry in self.index.open]
        return [action for action in found if action is not None and action.open]

    def open_for(self, person: str) -> list[PendingAction]:
        """The open actions that this person may decide."""
        return [action for action in self.open if transitions.may_refuse(action, person)]

    def check_all_are_known(self) -> None:
        """Raise NewerForm when a newer release has asked something here: only it can tell which action is meant."""
        if needs := [self.newer[entry.action_id] for entry in self.index.open if entry.action_id in self.newer]:
            raise NewerForm(max(needs))

    @property
    def language(self) -> str:
        """The language of the actions that were changed, in which all that is said of them is; English: none was."""
        return next((action.language for action in self.changes.actions.values()), "en")

    # ── changing ──

    def ask(self, action: PendingAction) -> PendingAction:
        """Write down a new action: from here on it is open."""
        self.put(action, "asked", action.requester, self.now)
        self.changes.due("undelivered", action, self.now + _DELIVERED_WITHIN)
        return self.by_id[action.pending_action_id]

    def say(self, text: str, *, tells: tuple[str, ...] = ()) -> None:
        """Have a text of our own said in the conversation."""
        self.says.append(OutgoingReply(reply=Reply(text=text, exact=True), tells=tells))

    def note_decided(self, person: Person | None, at: datetime) -> None:
        """Note that a person pressed or answered: a bare word after it is not about what else is open here."""
        if self.index.open:
            self.note_acted(person, at)

    def note_acted(self, person: Person | None, at: datetime) -> None:
        """Note that a person wrote or pressed something: a bare word after it is not about what was asked before."""
        if person is not None:
            self.index = self.index.acted_by(str(person), at)

    def put(self, action: PendingAction, what: str, person: str | None, at: datetime) -> None:
        """Change a record and add a line to its audit chain."""
        self.change(self.changes.audited(action, what, person, at), at)

    def change(self, action: PendingAction, at: datetime) -> None:
        """Change a record, and what the index says of it."""
        self.index = self.index.changed(action, at)
        self.by_id[action.pending_action_id] = self.changes.actions[action.pending_action_id] = action

    def write(self, transaction: Transaction) -> None:
        """Add every change to a transaction of this partition. The says are the caller's to queue."""
        self.changes.write(transaction, self.index, self.now)


def in_order(actions: Sequence[PendingAction]) -> list[PendingAction]:
    """Return them as they were asked: the same in every showing, so that no button takes another's place."""
    return sorted(actions, key=lambda action: (action.requested_at, action.pending_action_id))
