"""The settings of an agent's loop, and their limits."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import Field, field_validator, model_validator

from channels import Json
from gateway.cache import Cache, InMemoryCache
from gateway.config.options import Options, WrongOption
from gateway.guards import STAGES, Guardrail
from gateway.memory import EntityMemory, KnowledgeGraphMemory, KnowledgeMemory
from gateway.observe.logging_observer import LoggingObserver
from gateway.observe.observer import AgentObserver
from gateway.providers import Completes
from gateway.providers.base import ModelMessage, Usage


class ToolConfig(Options):
    """The settings for the results of tools, frozen. An unknown name or a wrong value raises WrongOption."""

    compress_results: bool = False
    """True to shorten a long result by a small call to a model, before the agent's model reads the result."""
    compress_threshold: int = Field(default=2000, ge=1)
    """The characters of the longest result left unchanged."""
    compress_provider: str | Completes | None = None
    """The provider for shortening, as for an Agent; None: the agent's own. Needs `compress_model`."""
    compress_model: str | None = Field(default=None, min_length=1)
    """The model for shortening; None: the agent's model."""

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        if self.compress_provider is not None and self.compress_model is None:
            raise ValueError("compress_provider needs compress_model=, the name of its model")
        return self

    @property
    def summary_tokens(self) -> int:
        """The most tokens of one summary."""
        return max(128, min(1000, self.compress_threshold // 4))


class CoherenceConfig(Options):
    """The settings of the check, frozen: a small call to a model before each tool call. A wrong value raises
    WrongOption."""

    provider: str | Completes | None = None
    """The provider, as for an Agent; None: the agent's own."""
    model: str | None = Field(default=None, min_length=1)
    """The model; None: the provider's default."""
    fail_closed: bool = False
    """True to refuse a call if the check fails or is unclear. A call that needs a confirmation is always refused then.
    """


Profile: TypeAlias = Literal["production", "production_cached", "dev", "budget"]
ReasoningStrategy: TypeAlias = Literal["react", "cot", "plan_then_act"]

_PRODUCTION: Final = {
    "max_tokens": 2000,
    "max_iterations": 10,
    "max_retries": 3,
    "retry_backoff_seconds": 2.0,
    "rate_limit_cooldown_seconds": 10.0,
    "request_timeout_seconds": 60.0,
    "tool_timeout_seconds": 30.0,
    "cost_warning_threshold": 0.5,
    "enable_analytics": True,
}
PROFILES: Final[Mapping[Profile, Mapping[str, Any]]] = {
    "production": _PRODUCTION,
    "production_cached": _PRODUCTION,
    "dev": {"max_iterations": 3},
    "budget": {"max_tokens": 500, "max_iterations": 3, "cost_warning_threshold": 0.01},
}
"""The settings of each profile. `AgentConfig.profile` adds the cache of `production_cached`, and the log of `dev`."""

STRATEGIES: Final[Mapping[ReasoningStrategy, str]] = {
    "react": (
        "Work in small steps. Before each tool call, write in one sentence why you make it. After its result, decide "
        "whether you know enough to answer."
    ),
    "cot": (
        "Think the task through step by step before you answer. Give the person the answer and its reasons in short, "
        "not your steps."
    ),
    "plan_then_act": (
        "Before your first tool call, write a short plan of the calls that you need. Then follow it, and change it "
        "when a result speaks against it."
    ),
}
"""The text added behind the instructions of an agent with this strategy."""


StopCondition: TypeAlias = Callable[[str, str], bool]
"""(tool name, its result as text) -> True to end the loop with this result. Pure and fast."""
ConfirmAction: TypeAlias = Callable[[str, Mapping[str, Json], str], bool | Awaitable[bool]]
"""(tool name, arguments, reason) -> True to run the call. Any other value, an error or a timeout denies it."""

ModelSelector: TypeAlias = Callable[[int, Sequence[ModelMessage], Usage], str | None]
"""(iteration, messages, usage so far) -> the model to ask; None: the config's. Pure and fast."""

_Wait: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Positive: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class AgentConfig(Options):
    """The settings of one agent, frozen. An unknown name or a value outside its limits raises WrongOption."""

    @classmethod
    def profile(cls, profile: Profile, /, **changes: Any) -> Self:
        """Return the settings for a common use, with changes.

        ``production``: longer answers, more patience with the vendor, analytics. ``production_cached``: the same with
        an InMemoryCache of 2,000 entries for 10 minutes. ``dev``: at most 3 iterations, and
        each event in the log with its content. ``budget``: short answers, at most 3 iterations, a warning at 1 cent.
        Raises WrongOption for an unknown profile or a wrong change.
        """
        if profile not in PROFILES:
            raise WrongOption(cls.__name__, {"profile": f"should be one of {', '.join(PROFILES)}, not {profile!r}"})
        own: dict[str, Any] = {**PROFILES[profile]}
        if profile == "dev":
            own["observers"] = (LoggingObserver(content=True),)
        if profile == "production_cached":
            own["cache"] = InMemoryCache(max_size=2000, default_ttl_seconds=600.0)
        return cls(**(own | changes))

    name: str = Field(default="agent", min_length=1)
    model: str | None = None
    """The model; None: the provider's default."""
    model_selector: ModelSelector | None = None
    """Chooses the model of each call. An error is logged, and `model` is used. Each provider of a FallbackProvider
    keeps its own model."""
    reasoning_strategy: ReasoningStrategy | None = None
    """Tells the model how to reason: ``react`` with a reason before each call, ``cot`` step by step, ``plan_then_act``
    with a plan first."""
    temperature: float | None = Field(default=0.0, ge=0, le=2)
    """The temperature; None: the provider's default."""
    max_tokens: int | None = Field(default=1000, ge=1)
    """The most tokens of one reply of the model."""
    context_tokens: int | None = Field(default=None, ge=4000)
    """The most tokens of the model's context, the answer included. The oldest messages beyond the limit are left out of
    a call. None: unknown, and learnt when the vendor refuses a call as too long."""
    compress_context: bool = False
    """True to sum up the older messages of a call by a small call to the model when much of the context is full. The
    memory keeps the messages unchanged."""
    compress_context_threshold: float = Field(default=0.75, gt=0, le=1)
    """The largest share of the context for the messages: of `context_tokens`, or of the model's known limit."""
    compress_context_keep_turns: int = Field(default=4, ge=1)
    """The number of the last turns left unchanged, the running turn included."""
    max_iterations: int = Field(default=6, ge=1, le=50)
    """The most calls to the model in one turn."""
    max_total_tokens: int | None = Field(default=None, ge=1)
    """The most tokens of one turn, checked before each call to the model."""
    max_cost_usd: _Positive | None = None
    """The highest cost of one turn, in US dollars, checked before each call to the model. Tokens of unknown price count
    15 US dollars a million."""
    cost_warning_threshold: _Positive | None = None
    """The cost of one turn, in US dollars, at which observers are notified once: `on_cost_warning`. Calls of unknown
    price do not count."""

    observers: tuple[AgentObserver, ...] = ()
    """The observers of every run, in the order of the calls."""
    hooks: Mapping[str, Callable[..., Any]] | None = None
    """Callbacks by name, as a further observer. Deprecated: write an AgentObserver."""
    trace_metadata: Mapping[str, Json] | None = None
    """Values for the metadata of every trace."""

    @field_validator("trace_metadata")
    @classmethod
    def _check_metadata(cls, value: Mapping[str, Json] | None) -> Mapping[str, Json] | None:
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            raise ValueError("should be JSON: no NaN, no dates, nothing that holds itself") from None
        return value

    parent_run_id: str | None = None
    """The parent run of all runs of this agent, unless a run names another."""
    enable_analytics: bool = False
    """True to count each tool's calls, failures and durations: `Agent.get_analytics`."""

    max_retries: int = Field(default=2, ge=0, le=10)
    """The retries after a retryable error of a provider."""
    retry_backoff_seconds: _Wait = 1.0
    """The backoff before a retry, multiplied by the number of the failed attempt."""
    rate_limit_cooldown_seconds: _Wait = 5.0
    """An addition to the backoff after a rate limit, multiplied by the attempt. A Retry-After overrides both."""
    request_timeout_seconds: _Positive = 30.0
    """The timeout of one call to the model, or between two pieces of a stream."""

    structured_retries: int = Field(default=2, ge=0, le=10)
    """The retries after an answer that does not fit the run's `response_format`. These calls do not count in
    `max_iterations`."""

    stream: bool | frozenset[str] = True
    """True to show an answer in the chat while the model writes, on channels with support for previews; or the names of
    the channels. An agent with a `cache` answers whole: a streamed reply is neither read from nor kept in the cache."""
    cache: Cache | None = None
    """The cache of the model's replies, and of the results of `cacheable` tools. None: no cache. A streamed run takes
    no reply from the cache."""
    tool: ToolConfig = ToolConfig()
    """The settings for the results of tools."""
    tool_timeout_seconds: _Positive = 30.0
    """The timeout of a tool without a `timeout_seconds`."""
    parallel_tool_execution: bool = True
    """True to run the calls of one reply concurrently, unless a call asks a person."""
    routing_only: bool = False
    """True to return the model's choice of tools as the result, without running any tool."""
    stop_condition: StopCondition | None = None

    entity_memory: EntityMemory | None = None
    """The memory of the entities named in a conversation. None: no memory."""
    knowledge_graph: KnowledgeGraphMemory | None = None
    """The memory of the relations stated in a conversation. None: no memory."""
    knowledge_memory: KnowledgeMemory | None = None
    """The memory of facts about each person. The agent then has the tool ``remember``. None: no memory."""

    guardrails: tuple[Guardrail, ...] = ()
    """The guards of texts, asked in their order."""
    coherence: CoherenceConfig | None = None
    """The check of each tool call against the person's request. None: no check."""

    @field_validator("guardrails")
    @classmethod
    def _check_guardrails(cls, value: tuple[Guardrail, ...]) -> tuple[Guardrail, ...]:
        for guardrail in value:
            if isinstance(guardrail.stages, str) or not set(guardrail.stages) <= set(STAGES):
                raise ValueError(f"the stages of guard {guardrail.name!r} should be among {', '.join(STAGES)}")
        return value

    def streams_on(self, channel: str) -> bool:
        """Return True if answers appear on this channel while the model writes."""
        chosen = self.stream if isinstance(self.stream, bool) else channel in self.stream
        return chosen and self.cache is None

    confirm_action: ConfirmAction | None = None
    """The callback to decide on calls that need a confirmation, outside of a chat."""
    approval_timeout_seconds: _Positive = 60.0
    """The timeout of `confirm_action`."""
