"""The actions of a conversation: read once, changed by the rules, written back in a single transaction.

The rules are functions over a `ConversationActions`: `prompting` shows questions, `deciding` applies answers,
`settling` launches and ends actions. The rules do no I/O. After a Conflict the caller applies the rules again to newly
loaded actions.
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
"""Return True if a reply fits into a single message of the platform, with all buttons."""
Drift: TypeAlias = Callable[[PendingAction], Detail | None]
"""Return the reason why an action may no longer run as shown; None if the action may run.

Its tool is missing or changed, or the policy denies the action now.
"""

_LAUNCH_GRACE = timedelta(seconds=5)
"""The time for a launch under way to commit before the approval is closed as stale."""
_DELIVERED_WITHIN = timedelta(minutes=10)
"""The time to deliver a prompt. After this time the action is closed as undelivered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingReply:
    """A reply to send, with the ids of its actions."""

    reply: Reply
    shows: tuple[str, ...] = ()
    """The ids of the actions asked in the reply."""
    asks: tuple[str, ...] = ()
    """The ids of the actions not asked if the reply does not arrive; empty: the same as `shows`."""
    tells: tuple[str, ...] = ()
    """The ids of the actions reported as ended in the reply. A late bare reply still belongs to these actions."""
    alone: bool = False
    """True if the reply holds only the gateway's questions, or its list of questions: words may answer the reply."""
    listed: tuple[str, ...] = ()
    """The ids of all actions of the numbered list, also if the list spans several messages."""
    intent: Intent | None = None
    """The meaning of a number in answer to a list about an ambiguous yes or no."""
    only_to: str = ""
    """The platform's id of the only person to see the reply in a group."""
    news_of: Address | None = None
    """The place of the missed news in this reply."""
    news_at: str = ""
    """The time of the missed news, as stored."""


def codes_of(actions: Iterable[PendingAction]) -> set[str]:
    """Return the codes of these actions and of the permissions offered with the actions."""
    codes: set[str] = set()
    for action in actions:
        codes.add(action.code)
        if action.standing is not None:
            codes.add(action.standing.code)
    return codes


class ConversationActions:
    """The open and recently settled actions of a conversation, with the changes and the replies to send."""

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
        """`capabilities`: the channel's, for prompts; None means buttons and files. `fits`: the channel's size rule.

        `rewrites`: write all records in any case, because the index is broken.
        """
        self.conversation, self.partition, self.now = conversation, partition, now
        self.most_buttons = capabilities.buttons if capabilities is not None else 100
        """The most buttons under a message."""
        self.has_numbers = capabilities is None or (capabilities.numbers and capabilities.bare_yes != "never")
        """True if a person can answer a list by its numbers."""
        self.can_edit = capabilities is None or capabilities.edit
        """True if the channel can edit sent messages."""
        self.local_times = capabilities is not None and capabilities.local_times
        """True if the channel shows times in the time zone of the reader."""
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
        """The replies to queue with the changes, in order. The caller queues them."""
        self.filed: list[tuple[int, PendingAction]] = []
        """The places in `says` of replies without their files yet, and the questions; see `write_files`."""
        self.files: dict[str, Artifact] = {}
        """Action id -> the file of the question. The caller stores the bytes before queueing the question."""
        self.near: str = ""
        """The ids of the actions of an unclear answer, joined by spaces. The person was asked for a clear answer."""
        self.refused: bool = False
        """True if a person without the right tried to decide. Only an audit line is written then."""

    @property
    def has_buttons(self) -> bool:
        """True if the channel shows buttons."""
        return self.most_buttons > 0

    def reader(self, person: Person | None) -> str:
        """Return the person who may read the replies in private: the requester of what they tell, else this person.

        Empty without either, and for votes: only the approvers' own chat reads about a vote.
        """
        about = {*self.changes.actions, *(each for said in self.says for each in (*said.tells, *said.shows))}
        found = [action for each in about if (action := self.by_id.get(each)) is not None]
        if any(action.is_vote for action in found):
            return ""
        requesters = {action.requester for action in found}
        if len(requesters) > 1:
            return ""
        return requesters.pop() if requesters else str(person) if person is not None else ""

    def get(self, action_id: str) -> PendingAction | None:
        """Return a loaded action, or None."""
        return self.by_id.get(action_id)

    @property
    def open(self) -> list[PendingAction]:
        """The open actions, in the order of asking."""
        found = [self.by_id.get(entry.action_id) for entry in self.index.open]
        return [action for action in found if action is not None and action.open]

    def open_for(self, person: str) -> list[PendingAction]:
        """Return the open actions within this person's rights."""
        return [action for action in self.open if transitions.may_refuse(action, person)]

    def changed_by(self, person: str) -> PendingAction | None:
        """Return the open action being changed by this person, or None."""
        action = self.by_id.get(self.index.changing.get(person, ""))
        return action if action is not None and action.open else None

    @property
    def language(self) -> str | None:
        """The language of the changed actions and of all sentences about the changes.

        Without changes: the language of the newest question; None without any.
        """
        changed = next((action.language for action in self.changes.actions.values()), None)
        return changed or self.index.last_asked_language()

    # ── changing ──

    def ask(self, action: PendingAction) -> PendingAction:
        """Open a new action, and set the deadline for the delivery of the prompt."""
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
        """Note a press or an answer of a person. A later bare reply is not about the other open actions."""
        if self.index.open:
            self.note_acted(person, at)

    def note_acted(self, person: Person | None, at: datetime) -> None:
        """Note a message or a press of a person. A later bare reply is not about an earlier question."""
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
    """Return the actions in the order of their questions, the same in every showing."""
    return sorted(actions, key=lambda action: (action.requested_at, action.pending_action_id))
