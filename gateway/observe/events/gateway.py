"""The events of the gateway: from the webhook to the delivery of a reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from channels import Address, Person
from gateway.observe.events.base import ObservedEvent, RunEvent
from gateway.tools.pending_action import PendingAction

__all__ = [
    "ActionAudited",
    "ArtifactDelivered",
    "BudgetWarning",
    "DecisionJudged",
    "DeliveryFailed",
    "DeliveryRetried",
    "DoubtRaised",
    "DuplicateDropped",
    "EffectEnd",
    "EventSettled",
    "InterceptorVetoed",
    "LeaseLost",
    "LeaseTakenOver",
    "MessageReceived",
    "MessageSent",
    "PendingDecided",
    "PendingLaunched",
    "PendingResolved",
    "PendingStashed",
    "PollFailed",
    "RateExceeded",
    "RequestUnstored",
    "ToolListed",
    "TurnEnd",
    "TurnFailed",
    "TurnStart",
    "WebhookHandled",
    "WebhookRejected",
]


@dataclass(slots=True, kw_only=True)
class WebhookHandled(ObservedEvent):
    """A request of a platform was answered, with any status."""

    name: ClassVar[str] = "webhook_handled"
    channel: str
    status: int
    duration_ms: float


@dataclass(slots=True, kw_only=True)
class WebhookRejected(ObservedEvent):
    """A request was refused: forged, stale, unreadable, or not stored. `reason` names the error's class.

    `why` is the gateway's own text, if there is one.
    """

    name: ClassVar[str] = "webhook_rejected"
    channel: str
    status: int
    reason: str
    why: str = ""
    error: BaseException | None = None
    """An error that no contract allows: of the channel, or of the store."""
    signed: bool = False
    """True if it was signed, but its platform did not vouch for it."""


@dataclass(slots=True, kw_only=True)
class RequestUnstored(ObservedEvent):
    """A request could not be stored, and its person or platform was asked to send it again."""

    name: ClassVar[str] = "not_stored"
    channel: str


@dataclass(slots=True, kw_only=True)
class PollFailed(ObservedEvent):
    """A call that polls a platform failed. `error` is the name of its class."""

    name: ClassVar[str] = "poll_failed"
    channel: str
    error: str


@dataclass(slots=True, kw_only=True)
class MessageReceived(ObservedEvent):
    """An event of a platform was stored. `event_id` is the platform's. `kind` names its class in `channels`."""

    name: ClassVar[str] = "message_received"
    event_id: str
    address: Address
    person: Person | None
    conversation: str
    kind: str = "Message"


@dataclass(slots=True, kw_only=True)
class DuplicateDropped(ObservedEvent):
    """An event of a platform was stored before."""

    name: ClassVar[str] = "duplicate_dropped"
    event_id: str
    address: Address
    conversation: str


@dataclass(slots=True, kw_only=True)
class RateExceeded(ObservedEvent):
    """A message or press above a rate of ASKFIRST_LIMITS was not stored. `share` says whose rate it is."""

    name: ClassVar[str] = "rate_exceeded"
    address: Address
    conversation: str
    share: Literal["person", "place", "all"]


@dataclass(slots=True, kw_only=True)
class TurnStart(RunEvent):
    """A turn begins. `attempt` counts from 1. `cause` is the id of the event that began it, one of `event_ids`.

    `received`: that event came from a platform, so its `MessageReceived` was told.
    """

    name: ClassVar[str] = "turn_start"
    conversation: str
    event_ids: Sequence[str]
    attempt: int
    cause: str
    received: bool = True


@dataclass(slots=True, kw_only=True)
class TurnEnd(RunEvent):
    """A turn has ended, and its end is stored."""

    name: ClassVar[str] = "turn_end"
    conversation: str
    stop_reason: str
    duration_ms: float


@dataclass(slots=True, kw_only=True)
class TurnFailed(RunEvent):
    """An attempt at a turn has failed. `why` says it without texts of people."""

    name: ClassVar[str] = "turn_failed"
    conversation: str
    error: BaseException
    why: str


@dataclass(slots=True, kw_only=True)
class InterceptorVetoed(RunEvent):
    """An interceptor stopped a message, a call of the model, or a confirmed action before its launch.

    `interceptor` is the name of its function. `tool_name` is empty for a message.
    """

    name: ClassVar[str] = "vetoed"
    conversation: str
    stage: Literal["message", "tool_call", "launch"]
    interceptor: str
    tool_name: str = ""
    call_id: str = ""
    event_id: str = ""
    """The id of the message, or of the action."""


@dataclass(slots=True, kw_only=True)
class EventSettled(RunEvent):
    """Stored events left their mailbox, in one commit with what is listed. `how` is a stop reason or a sentence.

    `received`: the first of them came from a platform.
    """

    name: ClassVar[str] = "event_settled"
    conversation: str
    event_ids: Sequence[str]
    how: str
    parts: Sequence[str]
    actions: Sequence[str]
    received: bool = True


@dataclass(slots=True, kw_only=True)
class PendingStashed(RunEvent):
    """A person is to be asked about an action."""

    name: ClassVar[str] = "pending_stashed"
    action: PendingAction
    call_id: str = ""
    from_checkpoint: bool = False
    """An earlier attempt at this turn decided it."""


@dataclass(slots=True, kw_only=True)
class PendingDecided(ObservedEvent):
    """A person has decided an action. `intent`: confirm or cancel."""

    name: ClassVar[str] = "pending_decided"
    action: PendingAction
    person: str
    intent: str


@dataclass(slots=True, kw_only=True)
class PendingLaunched(ObservedEvent):
    """The effect of a confirmed action begins."""

    name: ClassVar[str] = "pending_launched"
    action: PendingAction


@dataclass(slots=True, kw_only=True)
class ActionAudited(ObservedEvent):
    """A line of the audit of an action was stored. `what`: asked, shown, decided, launched, ..."""

    name: ClassVar[str] = "action_audited"
    action_id: str
    what: str
    person: str | None


@dataclass(slots=True, kw_only=True)
class EffectEnd(ObservedEvent):
    """The tool of a confirmed action has ended, as far as its process knows. It is not stored yet."""

    name: ClassVar[str] = "effect_end"
    action: PendingAction
    state: Literal["done", "failed", "unknown"]
    duration_ms: float
    error: BaseException | None = None


@dataclass(slots=True, kw_only=True)
class PendingResolved(ObservedEvent):
    """An action has ended. `status`: its state, or the reason of a closed one."""

    name: ClassVar[str] = "pending_resolved"
    action: PendingAction
    status: str


@dataclass(slots=True, kw_only=True)
class LeaseLost(ObservedEvent):
    """This process lost the lease of a lane, so its work there ended without a commit. `kind`: turn, action or out."""

    name: ClassVar[str] = "lease_lost"
    kind: str
    conversation: str


@dataclass(slots=True, kw_only=True)
class LeaseTakenOver(ObservedEvent):
    """This process leased a lane whose worker died. `kind`: turn, action or out."""

    name: ClassVar[str] = "lease_taken_over"
    kind: str
    conversation: str


@dataclass(slots=True, kw_only=True)
class DecisionJudged(ObservedEvent):
    """An event of the decision lane was judged. `kind` is the kind of the stored event."""

    name: ClassVar[str] = "decision_judged"
    conversation: str
    kind: str


@dataclass(slots=True, kw_only=True)
class DoubtRaised(ObservedEvent):
    """An outcome is in doubt. `why`: unknown, forged or undeliverable."""

    name: ClassVar[str] = "doubt_raised"
    conversation: str
    why: str
    action_id: str = ""
    kind: str = ""


@dataclass(slots=True, kw_only=True)
class MessageSent(RunEvent):
    """A platform took one call of a reply. `cause` is the id of the event that it answers.

    `duration_ms`: of the call; None if an earlier call turned out to have arrived.
    """

    name: ClassVar[str] = "message_sent"
    address: Address
    message_id: str | None
    conversation: str
    part_id: str
    call: str
    cause: str
    duration_ms: float | None = None


@dataclass(slots=True, kw_only=True)
class DeliveryRetried(RunEvent):
    """A platform did not take a call, or it is not known. It is tried again. `duration_ms`: of the call."""

    name: ClassVar[str] = "delivery_retried"
    conversation: str
    channel: str
    part_id: str
    call: str
    cause: str
    why: str
    wait_seconds: float
    duration_ms: float = 0.0


@dataclass(slots=True, kw_only=True)
class DeliveryFailed(RunEvent):
    """A part of a reply is a dead letter. `suppressed`: its person has opted out or left, so it is no error."""

    name: ClassVar[str] = "delivery_failed"
    address: Address
    reason: str
    conversation: str
    part_id: str
    cause: str
    suppressed: bool = False


@dataclass(slots=True, kw_only=True)
class ArtifactDelivered(RunEvent):
    """A platform took a file."""

    name: ClassVar[str] = "artifact_delivered"
    address: Address
    sha256: str


@dataclass(slots=True, kw_only=True)
class BudgetWarning(RunEvent):
    """A budget of `ASKFIRST_BUDGETS` is used to four fifths, or used up. Told once a window and holder, for each."""

    name: ClassVar[str] = "budget_warning"
    budget: str
    """The entry of the setting: ``person=1 USD/day``."""
    holder: str
    """The person, or the bot's name."""
    used: float
    """In the unit of the budget."""
    used_up: bool


@dataclass(slots=True, kw_only=True)
class ToolListed(ObservedEvent):
    """A tool of the bot, told at the start of a console: whether it runs, asks or never runs, and why."""

    name: ClassVar[str] = "tool_listed"
    tool: str
    how: str
    why: str
    unasked: bool
    """The tool may have effects, and no option allows it to run without a yes."""
