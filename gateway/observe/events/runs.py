"""The events of a run: the loop of the model and its tools, and batches of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from channels import Json
from gateway.observe.events.base import ObservedEvent, RunEvent
from gateway.observe.results import AgentResult
from gateway.providers.base import ModelMessage, Response, Usage

__all__ = [
    "BatchEnd",
    "BatchStart",
    "BudgetExceeded",
    "CacheHit",
    "Cancelled",
    "CostWarning",
    "EntityExtraction",
    "GuardrailTriggered",
    "IterationEnd",
    "IterationStart",
    "KgExtraction",
    "LlmEnd",
    "LlmError",
    "LlmRetry",
    "LlmStart",
    "MemorySummarize",
    "MemoryTrim",
    "ModelSwitch",
    "PolicyDecision",
    "PromptCompressed",
    "ProviderFallback",
    "RunEnd",
    "RunError",
    "RunStart",
    "RunUsage",
    "SessionLoad",
    "SessionSave",
    "StructuredValidate",
    "ToolChunk",
    "ToolEnd",
    "ToolErrorRaised",
    "ToolLoopDetected",
    "ToolStart",
]


@dataclass(slots=True, kw_only=True)
class RunStart(RunEvent):
    """The loop begins."""

    name: ClassVar[str] = "run_start"
    messages: Sequence[ModelMessage]
    system_prompt: str
    model: str
    provider: str
    parent_run_id: str | None = None


@dataclass(slots=True, kw_only=True)
class RunEnd(RunEvent):
    """The loop has ended, for any reason but an error."""

    name: ClassVar[str] = "run_end"
    result: AgentResult


@dataclass(slots=True, kw_only=True)
class RunError(RunEvent):
    """The loop has ended with an error. `context` says where, without texts of people."""

    name: ClassVar[str] = "error"
    error: BaseException
    context: Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class IterationStart(RunEvent):
    """The loop asks the model, for the `iteration`-th time (from 1) in this run."""

    name: ClassVar[str] = "iteration_start"
    iteration: int
    messages: Sequence[ModelMessage]


@dataclass(slots=True, kw_only=True)
class IterationEnd(RunEvent):
    """The model has replied and all its tool calls have results."""

    name: ClassVar[str] = "iteration_end"
    iteration: int
    response: Response


@dataclass(slots=True, kw_only=True)
class LlmStart(RunEvent):
    """A call to the model begins. `attempt` counts from 1."""

    name: ClassVar[str] = "llm_start"
    messages: Sequence[ModelMessage]
    model: str
    system_prompt: str
    provider: str
    attempt: int


@dataclass(slots=True, kw_only=True)
class LlmEnd(RunEvent):
    """A call to the model was answered. The reply names the model that answered."""

    name: ClassVar[str] = "llm_end"
    response: Response
    usage: Usage
    provider: str
    duration_ms: float
    requested_model: str = ""
    """The model that was asked; empty where the provider chooses it. `response.model` is the name its server gives."""
    from_checkpoint: bool = False
    """An earlier attempt at this turn made the call: its duration is unknown and 0."""
    from_cache: bool = False
    """The reply came from the cache: `CacheHit` has told it, and no call was made."""


@dataclass(slots=True, kw_only=True)
class LlmError(RunEvent):
    """A call to the model failed. A retry is told as `LlmRetry` after it."""

    name: ClassVar[str] = "llm_error"
    attempt: int
    error: BaseException
    model: str
    provider: str
    duration_ms: float
    retry_in_seconds: float | None
    """None: it is not retried."""


@dataclass(slots=True, kw_only=True)
class LlmRetry(RunEvent):
    """A failed call to the model is repeated after `backoff_seconds`. `attempt` is the one that failed, from 1."""

    name: ClassVar[str] = "llm_retry"
    attempt: int
    max_retries: int
    error: BaseException
    backoff_seconds: float


@dataclass(slots=True, kw_only=True)
class CacheHit(RunEvent):
    """A reply came from the response cache."""

    name: ClassVar[str] = "cache_hit"
    model: str
    response: Response


@dataclass(slots=True, kw_only=True)
class RunUsage(RunEvent):
    """The tokens and the cost of one call to the model."""

    name: ClassVar[str] = "usage"
    usage: Usage


@dataclass(slots=True, kw_only=True)
class ToolStart(RunEvent):
    """A tool begins, with validated arguments. `call_id` pairs it with its end or error."""

    name: ClassVar[str] = "tool_start"
    call_id: str
    tool_name: str
    tool_args: Mapping[str, Json]


@dataclass(slots=True, kw_only=True)
class ToolEnd(RunEvent):
    """A tool has returned. `result` is the text that the model reads; `artifacts` names its files."""

    name: ClassVar[str] = "tool_end"
    call_id: str
    tool_name: str
    result: str
    duration_ms: float
    artifacts: Sequence[str] = ()
    from_checkpoint: bool = False
    """An earlier attempt at this turn made the call: its duration is unknown and 0."""


@dataclass(slots=True, kw_only=True)
class ToolErrorRaised(RunEvent):
    """A tool raised, or its call was refused before it ran. `what` says it without texts of people."""

    name: ClassVar[str] = "tool_error"
    call_id: str
    tool_name: str
    error: BaseException
    tool_args: Mapping[str, Json]
    duration_ms: float
    what: str
    from_checkpoint: bool = False
    """An earlier attempt at this turn made the call: its duration is unknown and 0."""


@dataclass(slots=True, kw_only=True)
class ToolChunk(RunEvent):
    """A streaming tool has yielded a piece."""

    name: ClassVar[str] = "tool_chunk"
    call_id: str
    tool_name: str
    chunk: str


@dataclass(slots=True, kw_only=True)
class ToolLoopDetected(RunEvent):
    """The model repeats equal calls with equal results, so the loop ends."""

    name: ClassVar[str] = "tool_loop_detected"
    detector_name: str
    details: str


@dataclass(slots=True, kw_only=True)
class PolicyDecision(RunEvent):
    """The policy decided about a call: allow, review or deny, with the rule as its reason."""

    name: ClassVar[str] = "policy_decision"
    tool_name: str
    decision: str
    reason: str
    tool_args: Mapping[str, Json]


@dataclass(slots=True, kw_only=True)
class StructuredValidate(RunEvent):
    """A structured answer was validated."""

    name: ClassVar[str] = "structured_validate"
    success: bool
    attempt: int
    error: str | None


@dataclass(slots=True, kw_only=True)
class ProviderFallback(RunEvent):
    """A provider failed, and the next one is asked."""

    name: ClassVar[str] = "provider_fallback"
    failed_provider: str
    next_provider: str
    error: BaseException


@dataclass(slots=True, kw_only=True)
class ModelSwitch(RunEvent):
    """From this iteration on another model is asked."""

    name: ClassVar[str] = "model_switch"
    iteration: int
    old_model: str
    new_model: str


@dataclass(slots=True, kw_only=True)
class CostWarning(RunEvent):
    """The cost of the run has crossed `cost_warning_threshold`, both in US dollars. Told once a run.

    Calls of unknown price are not in `cost_used`.
    """

    name: ClassVar[str] = "cost_warning"
    cost_used: float
    threshold: float


@dataclass(slots=True, kw_only=True)
class BudgetExceeded(RunEvent):
    """A budget stops the run before its next call to the model. `cost_used` is None when the price is unknown."""

    name: ClassVar[str] = "budget_exceeded"
    reason: str
    tokens_used: int
    cost_used: float | None


@dataclass(slots=True, kw_only=True)
class Cancelled(RunEvent):
    """The run ends because the person, the deployment or the caller stopped it."""

    name: ClassVar[str] = "cancelled"
    iteration: int
    reason: str


@dataclass(slots=True, kw_only=True)
class GuardrailTriggered(RunEvent):
    """A guard warned, rewrote or blocked a text at this stage: input, output, tool_args or tool_results."""

    name: ClassVar[str] = "guardrail_triggered"
    stage: str
    guardrail_name: str
    action: str
    detail: str


@dataclass(slots=True, kw_only=True)
class PromptCompressed(RunEvent):
    """Older messages were compressed before a call to the model."""

    name: ClassVar[str] = "prompt_compressed"
    before_tokens: int
    after_tokens: int
    messages_compressed: int


@dataclass(slots=True, kw_only=True)
class SessionLoad(RunEvent):
    """The history of a conversation was read."""

    name: ClassVar[str] = "session_load"
    session_id: str
    message_count: int


@dataclass(slots=True, kw_only=True)
class SessionSave(RunEvent):
    """The messages of a turn were stored with its end."""

    name: ClassVar[str] = "session_save"
    session_id: str
    message_count: int


@dataclass(slots=True, kw_only=True)
class MemoryTrim(RunEvent):
    """Messages left the memory of a conversation, or were left out of a call to the model."""

    name: ClassVar[str] = "memory_trim"
    messages_removed: int
    messages_remaining: int
    reason: str


@dataclass(slots=True, kw_only=True)
class MemorySummarize(RunEvent):
    """Messages that left the window were summarised."""

    name: ClassVar[str] = "memory_summarize"
    summary: str
    messages_summarized: int


@dataclass(slots=True, kw_only=True)
class EntityExtraction(RunEvent):
    """Entities were taken out of the conversation."""

    name: ClassVar[str] = "entity_extraction"
    entities_extracted: int
    turn_count: int


@dataclass(slots=True, kw_only=True)
class KgExtraction(RunEvent):
    """Relations were taken out of the conversation."""

    name: ClassVar[str] = "kg_extraction"
    triples_extracted: int


@dataclass(slots=True, kw_only=True)
class BatchStart(ObservedEvent):
    """A batch of runs begins."""

    name: ClassVar[str] = "batch_start"
    batch_id: str
    prompts_count: int


@dataclass(slots=True, kw_only=True)
class BatchEnd(ObservedEvent):
    """All runs of a batch have ended."""

    name: ClassVar[str] = "batch_end"
    batch_id: str
    results_count: int
    errors_count: int
    total_duration_ms: float
