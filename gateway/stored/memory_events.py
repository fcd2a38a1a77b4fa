"""The events of memory lanes. A memory lane works beside a conversation, or for a person, after the reply of a turn.

The commit of the turn hands over the events. The bodies are sealed like the bodies of `events`.

There is a memory lane beside each conversation, and one for each person. A memory lane is a mailbox of the kind
`memory`, with a name of its own. A lease covers the processing, so two workers never fill the same memory at once. The
turns of the conversation do not wait for the memory lane. A person's lane also stores the questions waiting for the
person in groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, TypeAlias

from channels import Address, Json

_CHANNEL: Final = "memory"


def conversation_lane(conversation: str) -> str:
    """Return the memory lane beside a conversation."""
    bot, _, _ = conversation.partition("/")
    return f"{bot}/{Address(channel=_CHANNEL, account='conversation', place=conversation)}"


def person_lane(bot: str, person: str) -> str:
    """Return the memory lane of a person with this bot."""
    return f"{bot}/{Address(channel=_CHANNEL, account='person', place=person)}"


def forget_lane(bot: str, person: str) -> str:
    """Return the lane for forgetting a person at the person's own request."""
    return f"{bot}/{Address(channel=_CHANNEL, account='forget', place=person)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDue:
    """A turn has ended, and a memory of the conversation has not read the messages. The event contains no messages."""

    event_id: str
    conversation: str
    person: str
    """The written form of the person of the turn. The calls to the model count in the person's budgets."""
    run_id: str
    """The run of the turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsNoted:
    """The model noted facts about a person."""

    event_id: str
    facts: Sequence[Mapping[str, Json]]
    """Each fact has content, category and persistent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetDue:
    """A person has asked twice to be forgotten."""

    event_id: str
    conversation: str
    """The destination of the answer, before the removal of the conversation."""
    person: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionWaits:
    """A person was asked a question in a group: `/pending` in the person's private chat lists the question."""

    event_id: str
    action_id: str
    conversation: str


MemoryEvent: TypeAlias = MemoryDue | FactsNoted | ForgetDue | QuestionWaits


def memory_body_of(event: MemoryEvent) -> dict[str, Json]:
    """Return the stored body of an event, not sealed yet."""
    if isinstance(event, MemoryDue):
        return {"kind": "memory_due", **asdict(event)}
    if isinstance(event, QuestionWaits):
        return {"kind": "question_waits", **asdict(event)}
    if isinstance(event, ForgetDue):
        return {"kind": "forget_due", **asdict(event)}
    facts: list[Json] = [dict(fact) for fact in event.facts]
    return {"kind": "facts_noted", "event_id": event.event_id, "facts": facts}


def memory_event_of(body: Mapping[str, Json]) -> MemoryEvent:
    """Read the body of a stored event of a memory lane. Raises ValueError for any other value."""
    match body:
        case {
            "kind": "memory_due",
            "event_id": str(event_id),
            "conversation": str(conversation),
            "person": str(person),
            "run_id": str(run_id),
        }:
            return MemoryDue(event_id=event_id, conversation=conversation, person=person, run_id=run_id)
        case {
            "kind": "forget_due",
            "event_id": str(event_id),
            "conversation": str(conversation),
            "person": str(person),
        }:
            return ForgetDue(event_id=event_id, conversation=conversation, person=person)
        case {
            "kind": "question_waits",
            "event_id": str(event_id),
            "action_id": str(action_id),
            "conversation": str(conversation),
        }:
            return QuestionWaits(event_id=event_id, action_id=action_id, conversation=conversation)
        case {"kind": "facts_noted", "event_id": str(event_id), "facts": list(facts)}:
            return FactsNoted(event_id=event_id, facts=[fact for fact in facts if isinstance(fact, dict)])
    raise ValueError("not an event of a memory lane")
