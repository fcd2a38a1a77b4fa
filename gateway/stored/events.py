"""The gateway's own stored events, beside the events of platforms.

Each event is a frozen dataclass. `event_of` reads the body of any stored event. `body_of` makes the body of an event of
the gateway, and the writer seals the body. The stored fields keep their names and their order. A new field comes last
and has a default; any other change needs a new form (see CONTRIBUTING.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from channels import Address, Event, Json, MessageEdited, Reply
from channels.events import event_from_json
from gateway.stored.outbox import address_from_json, address_to_json, reply_from_json, reply_to_json

Deadline: TypeAlias = Literal["expiry", "undelivered", "unlaunched", "remind", "standin", "outcomes"]
"""The deadlines of an action.

In order: to answer, to deliver the prompt, to launch a confirmed action, to remind a silent approver, to ask the
stand-ins, and to report the first ends of a plan.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionDeadline:
    """A deadline of an action has passed. Set as a timer; processed in the decision lane."""

    kind: Deadline
    event_id: str
    action_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRequested:
    """The bot's own code decides for a person (`ChannelAgent.decide`). Processed in the decision lane."""

    event_id: str
    action_id: str
    intent: Literal["confirm", "cancel"]
    person: str
    """The written form of the person."""
    language: str = "en"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """The bot's own code scheduled a reply (`ChannelAgent.notify`). Set as a timer; processed in the decision lane."""

    event_ids: tuple[str, ...]
    address: Address
    reply: Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSettled:
    """An action has ended: a note for the model. With `resume`, the note starts a turn."""

    event_id: str
    action_id: str
    tool: str
    preview: str
    state: str
    reason: str | None
    outcome: str | None
    by: str | None
    """The deciding person, for the model to read."""
    remark: str | None
    resume: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAgain:
    """A person pressed "Ask again" on an ended action. The next turn asks the same call anew."""

    event_id: str
    action_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUp:
    """A tool planned a further turn (`ToolContext.follow_up`): a note for the model, starting the turn."""

    event_id: str
    address: Address
    person: str
    """The written form of the person of the planning turn."""
    language: str
    text: str
    depth: int
    """1 for the follow-up of a person's turn, 2 for the follow-up of a follow-up, and so on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BallotAsked:
    """An approver is asked in a private chat. Handed over to the chat; processed in the decision lane there."""

    event_id: str
    action_id: str
    """The id of the ballot."""
    record: Mapping[str, Json]
    """The ballot as JSON, without the code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BallotNews:
    """A ballot was shown, is lost or held back, or brings a vote.

    Handed over to the conversation of the action; processed in the decision lane there.
    """

    event_id: str
    action_id: str
    """The id of the action."""
    person: str
    """The approver: a person, or a place."""
    name: str | None = None
    what: Literal["shown", "lost", "held_back", "confirm", "cancel"]
    """``held_back``: this approver has refused a call of the same tool and requester within the last hour."""
    digest: str
    """The digest of the question shown by the ballot."""
    parser_version: str = ""
    remark: str | None = None
    voter: str = ""
    """The written form of the voting person: the approver, or a member of the place that approves."""
    address: Address | None = None
    """The next place for a lost question, where the place of the question refused it."""
    only_to: str = ""
    """The platform's id of the only person to see the question there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BallotUpdate:
    """News of an action for the approver of a ballot. Handed over to the approver's chat, for the decision lane."""

    event_id: str
    action_id: str
    """The id of the ballot."""
    what: Literal["ended", "remind", "answer"]
    record: Mapping[str, Json]
    """``ended``: the fields of the action about the end. ``answer``: the `key` and the `values` of a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartMoved:
    """A part refused by its place, to be sent in another place. Handed over to the conversation of the other place."""

    event_id: str
    item: Mapping[str, Json]
    """The part for the other place, as an `OutboxItem`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewsMissed:
    """News with no place to be told, for the person's next message. Handed over to the person's own conversation."""

    event_id: str
    address: Address
    """The place of the action. In groups the news may be told only there."""
    text: str
    at: str
    """The time of the news, in ISO format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonWrote:
    """A person with missed news has written. Handed over to the person's own conversation."""

    event_id: str
    address: Address
    """The place of the message."""


InternalEvent: TypeAlias = (
    ActionDeadline
    | DecisionRequested
    | Notification
    | ActionSettled
    | AskAgain
    | FollowUp
    | BallotAsked
    | BallotNews
    | BallotUpdate
    | PartMoved
    | NewsMissed
    | PersonWrote
)
HandedOver: TypeAlias = BallotAsked | BallotNews | BallotUpdate | PartMoved | NewsMissed | PersonWrote

_INTERNAL: Final = frozenset(
    {
        *(
            "expiry",
            "undelivered",
            "unlaunched",
            "remind",
            "standin",
            "outcomes",
            "decide",
            "notify",
            "settled",
            "again",
        ),
        *("follow_up", "ballot", "ballot_news", "ballot_update", "part_moved", "missed", "wrote"),
    }
)


def is_internal(body: Mapping[str, Json]) -> bool:
    """Return True for the body of an event of the gateway."""
    kind = body.get("kind")
    return isinstance(kind, str) and kind in _INTERNAL


def is_note(body: Mapping[str, Json]) -> bool:
    """Return True for the body of an event without a turn: an edit, or an outcome without `resume`."""
    return body.get("kind") == MessageEdited.__name__ or (body.get("kind") == "settled" and not body.get("resume"))


def action_id_of(body: Mapping[str, Json]) -> str | None:
    """Return the id of the action in an event of the gateway, also in an otherwise unreadable event."""
    action_id = body.get("action_id")
    return str(action_id) if action_id is not None else None


def body_of(event: InternalEvent) -> dict[str, Json]:
    """Return the stored body of an event, not sealed yet."""
    match event:
        case ActionDeadline():
            return {"kind": event.kind, "event_id": event.event_id, "action_id": event.action_id}
        case AskAgain():
            return {"kind": "again", "event_id": event.event_id, "action_id": event.action_id}
        case FollowUp():
            return {
                "kind": "follow_up",
                "event_id": event.event_id,
                "address": address_to_json(event.address),
                "person": event.person,
                "language": event.language,
                "text": event.text,
                "depth": event.depth,
            }
        case DecisionRequested():
            return {
                "kind": "decide",
                "action_id": event.action_id,
                "intent": event.intent,
                "person": event.person,
                "language": event.language,
                "event_id": event.event_id,
            }
        case Notification():
            return {
                "kind": "notify",
                "event_ids": list(event.event_ids),
                "address": address_to_json(event.address),
                "reply": reply_to_json(event.reply),
            }
        case ActionSettled():
            return {
                "kind": "settled",
                "event_id": event.event_id,
                "action_id": event.action_id,
                "tool": event.tool,
                "preview": event.preview,
                "state": event.state,
                "reason": event.reason,
                "outcome": event.outcome,
                "by": event.by,
                "remark": event.remark,
                "resume": event.resume,
            }
        case BallotAsked() | BallotNews() | BallotUpdate():
            return _ballot_body(event)
        case PartMoved():
            return {"kind": "part_moved", "event_id": event.event_id, "item": dict(event.item)}
        case NewsMissed():
            told: dict[str, Json] = {"text": event.text, "at": event.at}
            return {"kind": "missed", "event_id": event.event_id, "address": address_to_json(event.address), **told}
        case PersonWrote():
            return {"kind": "wrote", "event_id": event.event_id, "address": address_to_json(event.address)}


def event_of(body: Mapping[str, Json]) -> Event | InternalEvent:
    """Read the body of a stored event. Raises ValueError for any other value."""
    match body.get("kind"):
        case "expiry" | "undelivered" | "unlaunched" | "remind" | "standin" | "outcomes" as kind:
            return ActionDeadline(kind=kind, event_id=str(body.get("event_id", "")), action_id=_text(body, "action_id"))
        case "again":
            return AskAgain(event_id=str(body.get("event_id", "")), action_id=_text(body, "action_id"))
        case "follow_up":
            depth = body.get("depth")
            return FollowUp(
                event_id=str(body.get("event_id", "")),
                address=address_from_json(body.get("address")),
                person=_text(body, "person"),
                language=str(body.get("language", "en")),
                text=_text(body, "text"),
                depth=depth if isinstance(depth, int) else 1,
            )
        case "decide":
            return DecisionRequested(
                event_id=str(body.get("event_id", "")),
                action_id=_text(body, "action_id"),
                intent=_intent(body.get("intent")),
                person=_text(body, "person"),
                language=str(body.get("language", "en")),
            )
        case "notify":
            ids = body.get("event_ids")
            return Notification(
                event_ids=tuple(str(each) for each in ids) if isinstance(ids, list | tuple) else (),
                address=address_from_json(body.get("address")),
                reply=reply_from_json(body.get("reply")),
            )
        case "settled":
            return ActionSettled(
                event_id=str(body.get("event_id", "")),
                action_id=_text(body, "action_id"),
                tool=str(body.get("tool")),
                preview=str(body.get("preview")),
                state=str(body.get("state")),
                reason=_optional(body, "reason"),
                outcome=_optional(body, "outcome"),
                by=_optional(body, "by"),
                remark=_optional(body, "remark"),
                resume=body.get("resume") is True,
            )
        case "ballot" | "ballot_news" | "ballot_update" as kind:
            return _ballot_event(kind, body)
        case "part_moved":
            return PartMoved(event_id=_text(body, "event_id"), item=_object(body, "item"))
        case "missed":
            address = address_from_json(body.get("address"))
            text, at = _text(body, "text"), _text(body, "at")
            return NewsMissed(event_id=_text(body, "event_id"), address=address, text=text, at=at)
        case "wrote":
            address = address_from_json(body.get("address"))
            return PersonWrote(event_id=_text(body, "event_id"), address=address)
        case _:
            return event_from_json(dict(body))


def _ballot_body(event: BallotAsked | BallotNews | BallotUpdate) -> dict[str, Json]:
    ids: dict[str, Json] = {"event_id": event.event_id, "action_id": event.action_id}
    match event:
        case BallotAsked():
            return {"kind": "ballot", **ids, "record": dict(event.record)}
        case BallotUpdate():
            return {"kind": "ballot_update", **ids, "what": event.what, "record": dict(event.record)}
        case BallotNews():
            return {
                "kind": "ballot_news",
                **ids,
                "person": event.person,
                "name": event.name,
                "what": event.what,
                "digest": event.digest,
                "parser_version": event.parser_version,
                "remark": event.remark,
                "voter": event.voter,
                **({"address": address_to_json(event.address)} if event.address is not None else {}),
                **({"only_to": event.only_to} if event.only_to else {}),
            }


def _ballot_event(
    kind: Literal["ballot", "ballot_news", "ballot_update"], body: Mapping[str, Json]
) -> BallotAsked | BallotNews | BallotUpdate:
    event_id, action_id, what = _text(body, "event_id"), _text(body, "action_id"), body.get("what")
    record = _object(body, "record") if kind != "ballot_news" else {}
    place = body.get("address")
    match kind, what:
        case "ballot", _:
            return BallotAsked(event_id=event_id, action_id=action_id, record=record)
        case "ballot_update", ("ended" | "remind" | "answer") as told:
            return BallotUpdate(event_id=event_id, action_id=action_id, what=told, record=record)
        case "ballot_news", ("shown" | "lost" | "held_back" | "confirm" | "cancel") as news:
            return BallotNews(
                event_id=event_id,
                action_id=action_id,
                person=_text(body, "person"),
                name=_optional(body, "name"),
                what=news,
                digest=_text(body, "digest"),
                parser_version=str(body.get("parser_version", "")),
                remark=_optional(body, "remark"),
                voter=str(body.get("voter", "")),
                address=address_from_json(place) if place is not None else None,
                only_to=str(body.get("only_to", "")),
            )
    raise ValueError("not an event of a ballot")


def _text(body: Mapping[str, Json], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise ValueError(f"a stored event without {name}")
    return value


def _object(body: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    value = body.get(name)
    if not isinstance(value, dict):
        raise ValueError(f"a stored event without {name}")
    return value


def _optional(body: Mapping[str, Json], name: str) -> str | None:
    value = body.get(name)
    return str(value) if value else None


def _intent(stored: Json) -> Literal["confirm", "cancel"]:
    if stored == "confirm":
        return "confirm"
    if stored == "cancel":
        return "cancel"
    raise ValueError("not an intent")
