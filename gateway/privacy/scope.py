"""The extent of a forgetting: conversations removed as a whole, conversations shared with others, and actions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from channels import AskfirstError, Json, Person
from gateway.access.chats import chats_of
from gateway.pending.seal import is_sealed
from gateway.store.base import Store
from gateway.store.codec import encode
from gateway.stored import keys
from gateway.stored.memory_events import conversation_lane, person_lane
from gateway.stored.people import PeopleOf
from gateway.tools.pending_action import PendingAction

_MOST: Final = 10_000
"""The most inspected waiting events of a conversation."""


class NotForgotten(AskfirstError):
    """A turn or an action of the person or conversation is running. A repeat after the end removes all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The extent of a forgetting."""

    bot: str
    person: str | None
    """The person. None if a conversation is forgotten."""
    own: frozenset[str]
    """The conversations removed as a whole."""
    groups: frozenset[str]
    """The conversations with messages of the person and of others."""
    shared: frozenset[str]
    """The groups, and the other conversations involved in these actions."""
    actions: Mapping[str, PendingAction]
    """The removed actions, with the ballots."""
    decided: Mapping[str, PendingAction]
    """The actions of others decided by the person, or with the person among the approvers, voters or stand-ins."""
    needles: tuple[str, ...] = field(init=False)
    """Texts that identify a removed action: the id, and the question as JSON."""

    def __post_init__(self) -> None:
        asked = [each for each in self.actions.values() if each.ballot_of is None or each.requester == self.person]
        previews = {encode(each.preview)[1:-1] for each in asked if len(each.preview) > 2}
        object.__setattr__(self, "needles", (*self.actions, *sorted(previews)))

    @property
    def lanes(self) -> frozenset[str]:
        """The removed memory lanes: of these conversations and of the person."""
        lanes = {conversation_lane(each) for each in (*self.own, *self.groups)}
        return frozenset(lanes | ({person_lane(self.bot, self.person)} if self.person is not None else set()))

    @property
    def tokens(self) -> frozenset[str]:
        """The hashes of the buttons of these actions."""
        return frozenset(token.sha256 for action in self.actions.values() for token in action.tokens)

    def tells(self, value: Json | Mapping[str, Json]) -> bool:
        """Return True for a value with a text of a removed action."""
        text = encode(value)
        return any(needle in text for needle in self.needles)

    def is_by_person(self, body: Mapping[str, Json]) -> bool:
        """Return True for the body of an event caused by the person."""
        match body.get("person"):
            case str(name):
                return name == self.person
            case {"channel": str(channel), "account": str(account), "user_id": str(user_id)}:
                return str(Person(channel=channel, account=account, user_id=user_id)) == self.person
        return False


async def find_scope(store: Store, bot: str, who: str) -> Extent:
    """Return the extent of forgetting a person like ``telegram:123:456``, or a conversation of this bot."""
    prefix, person = keys.people(""), None if who.startswith(f"{bot}/") else who
    own, groups = {who}, set[str]()
    if person is not None:
        own = {f"{bot}/{person}", *(f"{bot}/{person}/{chat}" for chat in await chats_of(store, person))}
        for key, record in await store.scan(prefix):
            there, name = PeopleOf.from_json(record.value), key.name.removeprefix(prefix)
            if person in there.people:
                (groups if there.group or len(there.people) > 1 else own).add(name)
    read = [_read(record.value) for _, record in await store.scan(keys.action(""))]
    found = {each.pending_action_id: each for each in read if each is not None}
    goes = {name: each for name, each in found.items() if each.conversation in own or each.requester == person}
    goes |= {name: each for name, each in found.items() if each.ballot_of and each.ballot_of.action_id in goes}
    decided = {
        name: each
        for name, each in found.items()
        if person is not None and name not in goes and person in _people_of(each)
    }
    shared = groups | {each.conversation for each in (*goes.values(), *decided.values())}
    asked = [*goes.values(), *decided.values()]
    shared |= {ballot.conversation for each in asked for ballot in each.ballots if ballot.conversation}
    return Extent(
        bot=bot,
        person=person,
        own=frozenset(own - groups),
        groups=frozenset(groups),
        shared=frozenset(shared - (own - groups)),
        actions=goes,
        decided=decided,
    )


async def refuse_what_runs(store: Store, scope: Extent) -> None:
    """Raise NotForgotten during a turn or an action, or while another's question waits for the person."""
    for name, action in scope.actions.items():
        if action.ballot_of is None and action.state in ("approved", "running", "unknown"):
            raise NotForgotten(f"the action {name} is {action.state}: wait for its end, or settle it, and try again")
    for name, action in scope.decided.items():
        if not action.settled:
            raise NotForgotten(
                f"the action {name} of another person needs {scope.person}: wait for its end, or cancel it"
            )
    for conversation in sorted({*scope.own, *scope.shared, *scope.lanes}):
        if await store.is_held(conversation):
            raise NotForgotten(f"a turn of {conversation} runs: try again when it has ended")
    for conversation in sorted(scope.shared):
        for waiting in await store.mailbox(conversation, _MOST):
            if waiting.tries and scope.is_by_person(waiting.body):
                raise NotForgotten(
                    f"a turn of {conversation} has failed and is tried again: try again when it has ended"
                )


def _people_of(action: PendingAction) -> Iterable[str | None]:
    return (
        action.decided_by,
        *action.approvers,
        *action.standins,
        *(vote.person for vote in action.votes),
        *(ballot.person for ballot in action.ballots),
        *(action.ballot_of.people if action.ballot_of is not None else ()),
    )


def _read(stored: Json) -> PendingAction | None:
    """Return the action of a record, with a valid seal or without. None for an unreadable record."""
    try:
        if is_sealed(stored):
            return PendingAction.from_text(str(stored["body"]))
        return PendingAction.from_json(stored) if isinstance(stored, dict) else None
    except (ValueError, TypeError, LookupError):
        return None
