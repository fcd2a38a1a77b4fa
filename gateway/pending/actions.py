"""The actions of one conversation: read once, changed by the rules, written back in one transaction.

The rules are functions over a `ConversationActions`: `prompting` shows questions, `deciding` applies answers,
`settling` launches and ends actions. They do no I/O. After a Conflict the caller repeats them on newly loaded actions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from channels import Address, Capabilities, Person, Reply
from channels.formatting import drop_dear_accents
from gateway.artifacts import Artifact
from gateway.pending import transitions
from gateway.pending.audit import Noted, Pseudonyms
from gateway.pending.changes import Changes
from gateway.pending.index import Index
from gateway.pending.seal import Keyring
from gateway.pending.words import Intent
from gateway.store.transaction import Transaction
from gateway.tools.pending_action import Detail, PendingAction

Fits: TypeAlias = Callable[[Address, Reply], bool]
"""Return True if a reply is one message of the platform, with all its buttons."""
Drift: TypeAlias = Callable[[PendingAction], Detail | None]
"""Return the reason why an action may no longer run as it was shown: its tool is missing or changed, or the policy
denies it now. None: it may run."""

_LAUNCH_GRACE = timedelta(seconds=5)
"""The time that a launch under way has to commit before the approval is closed as too old."""
_DELIVERED_WITHIN = timedelta(minutes=10)
"""An action whose prompt has not arrived by then is closed as undelivered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingReply:
    """A reply to send, and the actions that it asks about or tells of."""

    reply: Reply
    shows: tuple[str, ...] = ()
    """The ids of the actions whose prompt it is."""
    asks: tuple[str, ...] = ()
    """The ids of the actions that count as not asked if it does not arrive; empty: the same as `shows`."""
    tells: tuple[str, ...] = ()
    """The ids of the actions whose end it tells. A late bare reply after it still belongs to them."""
    alone: bool = False
    """True if it holds questions of the gateway's, or its list of them, alone: words may answer it."""
    listed: tuple[str, ...] = ()
    """The ids of all actions of its numbered list, which may go on over several messages."""
    intent: Intent | None = None
    """The meaning of a number in answer to a list that asks which action a yes or a no meant."""


def codes_of(actions: Iterable[PendingAction]) -> set[str]:
    """Return the codes that decide these actions: their own, and those of the permissions that they offer."""
    codes: set[str] = set()
    for action in actions:
        codes.add(action.code)
        if action.standing is not None:
            codes.add(action.standing.code)
    return codes


class ConversationActions:
    """The open and the lately settled actions of one conversation, their changes, and the replies to send."""

    def __init__(
        self,
        *,
        conversation: str,
        partition: str,
        index: Index,
        index_version: int,
        actions: Mapping[str, PendingAction],
        versions: Mapping[str, int],
        rewrites: bool = False,
        keyring: Keyring,
        pseudonyms: Pseudonyms,
        now: datetime,
        drift: Drift,
        capabilities: Capabilities | None = None,
        fits: Fits = lambda address, reply: True,
    ) -> None:
        """`capabilities` are those of the channel, for prompts; None: it shows buttons and files. `fits` is its rule.

        `rewrites`: all records are written in any case, because the index is broken.
        """
        self.conversation, self.partition, self.now = conversation, partition, now
        self.most_buttons = capabilities.buttons if capabilities is not None else 100
        """The most buttons under one message."""
        self.has_numbers = capabilities is None or (capabilities.numbers and capabilities.bare_yes != "never")
        """True if a person can answer a list by its numbers."""
        self.can_edit = capabilities is None or capabilities.edit
        """True if a message can be changed after it was sent."""
        self.fits = fits
        self.shows_files = capabilities is None or capabilities.text_files
        cheap = capabilities is not None and not capabilities.accents
        self.letters: Callable[[str], str] = drop_dear_accents if cheap else str
        self.is_paid = cheap
        """True if each message costs its sender. After two further showings an unclear answer gets no reply."""
        self.index, self.drift, self._pseudonyms = index, drift, pseudonyms
        self.by_id: dict[str, PendingAction] = dict(actions)
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
        """The replies that the caller queues with the changes, in order."""
        self.filed: list[tuple[int, PendingAction]] = []
        """The places in `says` of replies whose files are not written yet, with their questions; see `write_files`."""
        self.files: dict[str, Artifact] = {}
        """Action id -> the file of its question. The caller stores the bytes before it queues the question."""
        self.near: str = ""
        """The ids of the actions that an unclear answer was about, joined by spaces. The person was told so."""
        self.refused: bool = False
        """True if a person without the right tried to decide. Then only a line of the audit is written."""

    @property
    def has_buttons(self) -> bool:
        """True if the channel shows buttons."""
        return self.most_buttons > 0

    def get(self, action_id: str) -> PendingAction | None:
        """Return a loaded action, or None."""
        return self.by_id.get(action_id)

    @property
    def open(self) -> list[PendingAction]:
        """The open actions, in the order they were asked."""
        found = [self.by_id.get(entry.action_id) for entry in self.index.open]
        return [action for action in found if action is not None and action.open]

    def open_for(self, person: str) -> list[PendingAction]:
        """Return the open actions that this person may answer."""
        return [action for action in self.open if transitions.may_refuse(action, person)]

    def changed_by(self, person: str) -> PendingAction | None:
        """Return the open action that this person is changing, or None."""
        action = self.by_id.get(self.index.changing.get(person, ""))
        return action if action is not None and action.open else None

    @property
    def language(self) -> str | None:
        """The language of the changed actions and of all sentences about them; else that of the newest question; None
        without one."""
        changed = next((action.language for action in self.changes.actions.values()), None)
        return changed or self.index.last_asked_language()

    # ── changing ──

    def ask(self, action: PendingAction) -> PendingAction:
        """Open a new action, and set the deadline for the delivery of its prompt."""
        self.put(action, "asked", action.requester, self.now)
        self.due_delivery(action)
        return self.by_id[action.pending_action_id]

    def due_delivery(self, action: PendingAction) -> None:
        """Set the deadline for the delivery of a new prompt."""
        self.changes.due("undelivered", action, self.now + _DELIVERED_WITHIN)

    def due_launch(self, action: PendingAction, at: datetime) -> None:
        """Set the deadline for the launch of an approved action."""
        self.changes.no_longer_due(action, "expiry", "undelivered", "remind", "standin")
        self.changes.due("unlaunched", action, at + transitions.APPROVED_FOR + _LAUNCH_GRACE)

    def say(self, text: str, *, tells: tuple[str, ...] = ()) -> None:
        """Queue a text of the gateway's own for the conversation."""
        self.says.append(OutgoingReply(reply=Reply(text=text, exact=True), tells=tells))

    def note_decided(self, person: Person | None, at: datetime) -> None:
        """Note that a person pressed or answered. A later bare reply is not about the other open actions."""
        if self.index.open:
            self.note_acted(person, at)

    def note_acted(self, person: Person | None, at: datetime) -> None:
        """Note that a person wrote or pressed something. A later bare reply is not about an earlier question."""
        if person is not None:
            self.index = self.index.acted_by(str(person), at)

    def put(self, action: PendingAction, what: str, person: str | None, at: datetime) -> None:
        """Change a record, and add a line to its audit chain."""
        self.change(action, at)
        self.changes.audit.append(Noted(action_id=action.pending_action_id, what=what, by=person, at=at))

    def change(self, action: PendingAction, at: datetime) -> None:
        """Change a record, and its entry in the index."""
        self.index = self.index.changed(action, at)
        self.by_id[action.pending_action_id] = self.changes.actions[action.pending_action_id] = action

    async def write(self, transaction: Transaction) -> None:
        """Add all changes to a transaction of this partition. The caller queues `says` itself.

        Raises StoreUnavailable.
        """
        pseudonyms = await self._pseudonyms.name(self.changes.people, transaction)
        self.changes.write(transaction, self.index, self.now, pseudonyms)
        self.by_id |= self.changes.actions


def in_order(actions: Sequence[PendingAction]) -> list[PendingAction]:
    """Return the actions in the order of their questions, which is the same in every showing."""
    return sorted(actions, key=lambda action: (action.requested_at, action.pending_action_id))
