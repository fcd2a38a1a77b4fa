"""The events of the gateway: a class for each event. Each event is emitted once.

An event of a run begins with `run_id`. All attempts at a turn have the same `run_id`. A method of `AgentObserver` gets
only the fields in the signature. Readers must not change an event or the values inside. Durations are milliseconds and
end in `_ms`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final, Literal, dataclass_transform

from channels import Address, Json, Person
from gateway.observe.results import AgentResult
from gateway.providers.base import ModelMessage, Response, Usage
from gateway.tools.pending_action import PendingAction

EVENTS: Final[dict[str, type[ObservedEvent]]] = {}
"""Every event class, by name."""


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class ObservedEvent:
    """An event: a dataclass. `name` is the name of the observer's method without ``on_``."""

    name: ClassVar[str]

    def __init_subclass__(cls, *, name: str = "") -> None:
        dataclass(kw_only=True)(cls)
        if name:
            if name in EVENTS:
                raise TypeError(f"there is an event {name!r} already")
            cls.name = name
            EVENTS[name] = cls

    def values(self) -> dict[str, Any]:
        """Return the fields by name, in the order of declaration."""
        return {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]


class RunEvent(ObservedEvent):
    """An event of one run."""

    run_id: str = field(kw_only=False)


# ── a run of an agent: the model and its tools ──


class RunStart(RunEvent, name="run_start"):
    """The loop begins."""

    messages: Sequence[ModelMessage]
    system_prompt: str
    model: str
    provider: str
    parent_run_id: str | None = None


class RunEnd(RunEvent, name="run_end"):
    """The loop has ended, for any reason but an error."""

    result: AgentResult


class RunError(RunEvent, name="error"):
    """The loop has ended with an error. `context` has the place, without texts of people."""

    error: BaseException
    context: Mapping[str, Any]


class IterationStart(RunEvent, name="iteration_start"):
    """The loop asks the model, for the `iteration`-th time (from 1) in this run."""

    iteration: int
    messages: Sequence[ModelMessage]


class IterationEnd(RunEvent, name="iteration_end"):
    """The model has replied and all tool calls of the reply have results."""

    iteration: int
    response: Response


class LlmStart(RunEvent, name="llm_start"):
    """A call to the model begins. `attempt` counts from 1."""

    messages: Sequence[ModelMessage]
    model: str
    system_prompt: str
    provider: str
    attempt: int


class LlmEnd(RunEvent, name="llm_end"):
    """A call to the model was answered. The reply names the model that answered."""

    response: Response
    usage: Usage
    provider: str
    duration_ms: float
    requested_model: str = ""
    """The requested model; empty if the provider chooses. `response.model` is the server's name for the model."""
    from_checkpoint: bool = False
    """An earlier attempt at this turn made the call: the duration is unknown and 0."""
    from_cache: bool = False
    """The reply came from the cache without a call. `CacheHit` was emitted before."""


class LlmError(RunEvent, name="llm_error"):
    """A call to the model failed. For a retry, `LlmRetry` follows."""

    attempt: int
    error: BaseException
    model: str
    provider: str
    duration_ms: float
    retry_in_seconds: float | None
    """None: no retry."""


class LlmRetry(RunEvent, name="llm_retry"):
    """A failed call to the model is repeated after `backoff_seconds`. `attempt` is the failed attempt, from 1."""

    attempt: int
    max_retries: int
    error: BaseException
    backoff_seconds: float


class CacheHit(RunEvent, name="cache_hit"):
    """A reply came from the response cache."""

    model: str
    response: Response


class RunUsage(RunEvent, name="usage"):
    """The tokens and the cost of one call to the model."""

    usage: Usage


class ToolStart(RunEvent, name="tool_start"):
    """A tool begins, with validated arguments. The end or error of the call has the same `call_id`."""

    call_id: str
    tool_name: str
    tool_args: Mapping[str, Json]


class ToolEnd(RunEvent, name="tool_end"):
    """A tool has returned. `result` is the text for the model; `artifacts` names the files."""

    call_id: str
    tool_name: str
    result: str
    duration_ms: float
    artifacts: Sequence[str] = ()
    from_checkpoint: bool = False
    """An earlier attempt at this turn made the call: the duration is unknown and 0."""


class ToolErrorRaised(RunEvent, name="tool_error"):
    """A tool raised, or the call was refused before the start. `what` is the reason without texts of people."""

    call_id: str
    tool_name: str
    error: BaseException
    tool_args: Mapping[str, Json]
    duration_ms: float
    what: str
    from_checkpoint: bool = False
    """An earlier attempt at this turn made the call: the duration is unknown and 0."""


class ToolChunk(RunEvent, name="tool_chunk"):
    """A streaming tool has yielded a piece."""

    call_id: str
    tool_name: str
    chunk: str


class ToolLoopDetected(RunEvent, name="tool_loop_detected"):
    """The model repeats equal calls with equal results, so the loop ends."""

    detector_name: str
    details: str


class PolicyDecision(RunEvent, name="policy_decision"):
    """The policy decided about a call: allow, review or deny, with the rule as its reason."""

    tool_name: str
    decision: str
    reason: str
    tool_args: Mapping[str, Json]


class StructuredValidate(RunEvent, name="structured_validate"):
    """A structured answer was validated."""

    success: bool
    attempt: int
    error: str | None


class ProviderFallback(RunEvent, name="provider_fallback"):
    """A provider failed, and the next provider is asked."""

    failed_provider: str
    next_provider: str
    error: BaseException


class ModelSwitch(RunEvent, name="model_switch"):
    """Another model is asked from this iteration on."""

    iteration: int
    old_model: str
    new_model: str


class CostWarning(RunEvent, name="cost_warning"):
    """The cost of the run has crossed `cost_warning_threshold`, both in US dollars. Emitted once a run.

    `cost_used` does not include calls of unknown price.
    """

    cost_used: float
    threshold: float


class BudgetExceeded(RunEvent, name="budget_exceeded"):
    """A budget stops the run before its next call to the model. `cost_used` is None when the price is unknown."""

    reason: str
    tokens_used: int
    cost_used: float | None


class Cancelled(RunEvent, name="cancelled"):
    """The run ends because the person, the deployment or the caller stopped it."""

    iteration: int
    reason: str


class GuardrailTriggered(RunEvent, name="guardrail_triggered"):
    """A guard warned, rewrote or blocked a text at this stage: input, output, tool_args or tool_results."""

    stage: str
    guardrail_name: str
    action: str
    detail: str


class PromptCompressed(RunEvent, name="prompt_compressed"):
    """Older messages were compressed before a call to the model."""

    before_tokens: int
    after_tokens: int
    messages_compressed: int


class SessionLoad(RunEvent, name="session_load"):
    """The history of a conversation was read."""

    session_id: str
    message_count: int


class SessionSave(RunEvent, name="session_save"):
    """The messages of a turn were stored in the final commit of the turn."""

    session_id: str
    message_count: int


class MemoryTrim(RunEvent, name="memory_trim"):
    """Messages left the memory of a conversation, or were left out of a call to the model."""

    messages_removed: int
    messages_remaining: int
    reason: str


class MemorySummarize(RunEvent, name="memory_summarize"):
    """Messages outside of the window were summarised."""

    summary: str
    messages_summarized: int


class EntityExtraction(RunEvent, name="entity_extraction"):
    """Entities were taken out of the conversation."""

    entities_extracted: int
    turn_count: int


class KgExtraction(RunEvent, name="kg_extraction"):
    """Relations were taken out of the conversation."""

    triples_extracted: int


class BatchStart(ObservedEvent, name="batch_start"):
    """A batch of runs begins."""

    batch_id: str
    prompts_count: int


class BatchEnd(ObservedEvent, name="batch_end"):
    """All runs of a batch have ended."""

    batch_id: str
    results_count: int
    errors_count: int
    total_duration_ms: float


# ── the gateway: from the webhook to the delivery of a reply ──


class WebhookHandled(ObservedEvent, name="webhook_handled"):
    """A request of a platform was answered, with any status."""

    channel: str
    status: int
    duration_ms: float


class WebhookRejected(ObservedEvent, name="webhook_rejected"):
    """A request was refused: forged, stale, unreadable, or not stored. `reason` is the name of the error's class.

    `why` is the gateway's own text, if present.
    """

    channel: str
    status: int
    reason: str
    why: str = ""
    error: BaseException | None = None
    """An error of the channel or of the store, outside of every contract."""
    signed: bool = False
    """The request was signed, but not vouched for by the platform."""


class RequestUnstored(ObservedEvent, name="not_stored"):
    """A request could not be stored. The person or platform was asked for a retry."""

    channel: str


class PollFailed(ObservedEvent, name="poll_failed"):
    """A call to poll a platform failed. `error` is the name of the error's class."""

    channel: str
    error: str


class MessageReceived(ObservedEvent, name="message_received"):
    """A platform's event of this id and class (`kind`) was stored. `said`: a message's words, `files`: the names."""

    event_id: str
    address: Address
    person: Person | None
    conversation: str
    kind: str = "Message"
    said: str = ""
    files: Sequence[str] = ()


class DuplicateDropped(ObservedEvent, name="duplicate_dropped"):
    """An event of a platform was stored before."""

    event_id: str
    address: Address
    conversation: str


class RateExceeded(ObservedEvent, name="rate_exceeded"):
    """A message or press above a rate of ASKFIRST_LIMITS was not stored. `share` names the owner of the rate."""

    address: Address
    conversation: str
    share: Literal["person", "place", "all"]


class TurnStart(RunEvent, name="turn_start"):
    """A turn begins. `attempt` counts from 1. `cause` is the id of the event that began the turn, one of `event_ids`.

    `received`: the cause came from a platform, so `MessageReceived` was emitted.
    """

    conversation: str
    event_ids: Sequence[str]
    attempt: int
    cause: str
    received: bool = True


class TurnEnd(RunEvent, name="turn_end"):
    """A turn has ended, and the end is stored."""

    conversation: str
    stop_reason: str
    duration_ms: float


class TurnFailed(RunEvent, name="turn_failed"):
    """An attempt at a turn has failed. `why` is the reason without texts of people."""

    conversation: str
    error: BaseException
    why: str


class InterceptorVetoed(RunEvent, name="vetoed"):
    """An interceptor stopped a message, a call of the model, or a confirmed action before the launch.

    `interceptor` is the name of the interceptor's function. `tool_name` is empty for a message.
    """

    conversation: str
    stage: Literal["message", "tool_call", "launch"]
    interceptor: str
    tool_name: str = ""
    call_id: str = ""
    event_id: str = ""
    """The id of the message, or of the action."""


class EventSettled(RunEvent, name="event_settled"):
    """Stored events left the mailbox, in one commit with `parts` and `actions`. `how` is a stop reason or a sentence.

    `received`: the first of the events came from a platform.
    """

    conversation: str
    event_ids: Sequence[str]
    how: str
    parts: Sequence[str]
    actions: Sequence[str]
    received: bool = True


class PendingStashed(RunEvent, name="pending_stashed"):
    """A person is to be asked about an action."""

    action: PendingAction
    call_id: str = ""
    from_checkpoint: bool = False
    """An earlier attempt at this turn decided to ask."""


class PendingDecided(ObservedEvent, name="pending_decided"):
    """A person has decided an action. `intent`: confirm or cancel."""

    action: PendingAction
    person: str
    intent: str


class PendingLaunched(ObservedEvent, name="pending_launched"):
    """The effect of a confirmed action begins."""

    action: PendingAction


class ActionAudited(ObservedEvent, name="action_audited"):
    """A line of the audit of an action was stored. `what`: asked, shown, decided, launched, ..."""

    action_id: str
    what: str
    person: str | None


class EffectEnd(ObservedEvent, name="effect_end"):
    """The tool of a confirmed action has ended, as far as the process knows. The end is not stored yet."""

    action: PendingAction
    state: Literal["done", "failed", "unknown"]
    duration_ms: float
    error: BaseException | None = None


class PendingResolved(ObservedEvent, name="pending_resolved"):
    """An action has ended. `status`: the state, or the reason of a closed action."""

    action: PendingAction
    status: str


class LeaseLost(ObservedEvent, name="lease_lost"):
    """This process lost the lease of a lane. The work there ended without a commit. `kind`: turn, action or out."""

    kind: str
    conversation: str


class LeaseTakenOver(ObservedEvent, name="lease_taken_over"):
    """This process leased a lane of a dead worker. `kind`: turn, action or out."""

    kind: str
    conversation: str


class DecisionJudged(ObservedEvent, name="decision_judged"):
    """An event of the decision lane was judged. `kind` is the kind of the stored event."""

    conversation: str
    kind: str


class DoubtRaised(ObservedEvent, name="doubt_raised"):
    """An outcome is in doubt. `why`: unknown, forged or undeliverable."""

    conversation: str
    why: str
    action_id: str = ""
    kind: str = ""


class MessageSent(RunEvent, name="message_sent"):
    """A platform accepted a call of a reply to the event `cause`. `duration_ms` is None if an earlier call arrived."""

    address: Address
    message_id: str | None
    conversation: str
    part_id: str
    call: str
    cause: str
    duration_ms: float | None = None


class FeedbackGiven(RunEvent, name="feedback"):
    """A person rates a message of the bot: up, down, or None to take a rating back. Emitted at least once."""

    conversation: str
    message_id: str
    value: Literal["up", "down"] | None


class DeliveryRetried(RunEvent, name="delivery_retried"):
    """A platform did not accept a call, or the outcome is unknown. A retry follows. `duration_ms` is of the call."""

    conversation: str
    channel: str
    part_id: str
    call: str
    cause: str
    why: str
    wait_seconds: float
    duration_ms: float = 0.0


class DeliveryFailed(RunEvent, name="delivery_failed"):
    """A part of a reply is a dead letter. `suppressed`: the person has opted out or left, so this is no error."""

    address: Address
    reason: str
    conversation: str
    part_id: str
    cause: str
    suppressed: bool = False


class ArtifactDelivered(RunEvent, name="artifact_delivered"):
    """A platform took a file."""

    address: Address
    sha256: str


class BudgetWarning(RunEvent, name="budget_warning"):
    """Four fifths or all of a budget of `ASKFIRST_BUDGETS` are used. Emitted once a window and holder, for each."""

    budget: str
    """The entry of the setting: ``person=1 USD/day``."""
    holder: str
    used: float
    """The used amount, in the unit of the budget."""
    used_up: bool


class ToolListed(ObservedEvent, name="tool_listed"):
    """A tool of the bot, emitted at the start of a console. `how`: runs, asks or never runs; `why`: the reason."""

    tool: str
    how: str
    why: str
    unasked: bool
    """The tool may have effects, and no option allows calls without a yes."""
