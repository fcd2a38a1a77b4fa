"""The Provider protocol: the agent's calls to the models of any vendor.

ProviderError (AskfirstError)       a call failed; `retryable` says whether a retry can help
├── ProviderConfigurationError      a key or the package is missing
└── ProviderFault                   the provider raised an error of another type
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

from channels import AskfirstError, Json, Media

UNPRICED_USD_PER_MILLION: Final = 15.0
"""The US dollars for a million tokens of unknown price in `Usage.counted_usd`.

The value is high: most calls to most models cost less, so a budget stops too early and not too late.
"""

Refusal: TypeAlias = Literal["too_long", "invalid", "unusable"]


class ProviderError(AskfirstError):
    """A call to a model failed. The text is for operators, never for the person in the chat.

    `rate_limited` is True after too many calls. `retry_after_seconds` is the vendor's requested wait, if any. `refusal`
    is the reason for a permanent failure of this request: ``too_long`` for the model, ``invalid`` by the vendor's
    rules, including the rules for content, or ``unusable`` answers. With ``too_long``, `sent_tokens` is the size of the
    request and `taken_tokens` the model's limit, where reported by the vendor.

    `fault` names the fault of a received answer, for example the unreadable field. The call was paid for, and another
    call may have the same fault.
    """

    def __init__(
        self,
        provider: str,
        code: str,
        *,
        retryable: bool,
        rate_limited: bool = False,
        retry_after_seconds: float | None = None,
        refusal: Refusal | None = None,
        fault: str | None = None,
        sent_tokens: int | None = None,
        taken_tokens: int | None = None,
    ) -> None:
        super().__init__(f"{provider}: {code}")
        self.provider, self.code, self.retryable = provider, code, retryable
        self.rate_limited, self.retry_after_seconds = rate_limited, retry_after_seconds
        self.refusal, self.fault = refusal, fault
        self.sent_tokens, self.taken_tokens = sent_tokens, taken_tokens


class ProviderConfigurationError(ProviderError):
    """A provider cannot be made: `env_var` is missing, or its package is not installed."""

    def __init__(self, provider: str, missing: str, *, env_var: str | None = None) -> None:
        super().__init__(provider, missing, retryable=False)
        self.missing, self.env_var = missing, env_var


class ProviderFault(ProviderError):
    """A provider raised another error than ProviderError, or returned a wrong value: a mistake of its author.

    The error is the `__cause__`. The error's text is left out, because it may be a person's.
    """

    def __init__(self, provider: str, code: str) -> None:
        super().__init__(provider, code, retryable=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call of the model. `call_id` pairs the call with the result."""

    call_id: str
    name: str
    args: Mapping[str, Json] = field(default_factory=dict)
    parse_error: str | None = None
    """The error when the model's arguments were not a JSON object; `args` is then empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMessage:
    """One message of the conversation with the model.

    The roles are ``user``, a person's message; ``assistant``, the model's reply with tool calls; ``tool``, the result
    of one call; ``event``, a message of the gateway to the model (an action was confirmed and done, expired, ...). An
    event is data, not an instruction. A provider renders an event in front of the next user message.
    """

    role: Literal["user", "assistant", "tool", "event"]
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    """The call of a ``tool`` message."""
    tool_name: str | None = None
    speaker: str | None = None
    """The name of the author of a ``user`` message, in groups."""
    files: tuple[Media, ...] = ()
    """The pictures and PDFs of a ``user`` message, by hash. The bytes are in `Request.contents`."""
    echo: Mapping[str, Json] | None = None
    """Data of an ``assistant`` message, to return unchanged to the provider of the model.

    No other part of the program reads this data (`history.echoed`).
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool in the model's form. `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUsage:
    """The calls of one tool. `tokens` is the tool's share of the calling replies."""

    calls: int = 0
    failed: int = 0
    duration_ms: float = field(default=0.0, compare=False)
    tokens: int = 0

    def __add__(self, other: ToolUsage) -> ToolUsage:
        return ToolUsage(
            calls=self.calls + other.calls,
            failed=self.failed + other.failed,
            duration_ms=self.duration_ms + other.duration_ms,
            tokens=self.tokens + other.tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The usage of one call, or the sum of several. ``Usage()`` changes no sum."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_prompt_tokens: int = 0
    """The part of `prompt_tokens` read from the vendor's prompt cache."""
    cache_write_tokens: int = 0
    """The part of `prompt_tokens` written to the vendor's prompt cache, at a separate price."""
    cost_usd: float | None = None
    """The price in US dollars. None: unknown. A sum with an unknown price has no price."""
    known_usd: float = 0.0
    """In a sum without a cost: the price of the calls with a known price."""
    unpriced_calls: int = 0
    """In a sum without a cost: the number of calls with an unknown price."""
    unpriced_tokens: int = 0
    """In a sum without a cost: the tokens of these calls."""
    saved_usd: float | None = None
    """The price of the replies from a cache of the gateway in place of the model. None: no reply from a cache."""
    model: str = ""
    """The model of the reply. A sum over several models has none."""
    provider: str = ""
    """The name of the provider. A sum over several providers has none."""
    by_tool: Mapping[str, ToolUsage] = field(default_factory=dict, hash=False)

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def least_usd(self) -> float:
        """The price of the calls with a known price: a lower bound of the cost."""
        return self.known_usd if self.cost_usd is None else self.cost_usd

    @property
    def counted_usd(self) -> float:
        """The cost for a budget, with each token of unknown price at `UNPRICED_USD_PER_MILLION`."""
        known, _, tokens = self._cost_parts()
        return known + tokens * UNPRICED_USD_PER_MILLION / 1_000_000

    def _cost_parts(self) -> tuple[float, int, int]:
        """Return the known price, the number of calls with an unknown price, and the tokens of these calls."""
        if self.cost_usd is not None:
            return self.cost_usd, 0, 0
        if self.unpriced_calls:
            return self.known_usd, self.unpriced_calls, self.unpriced_tokens
        tokens = self.total_tokens
        return 0.0, int(tokens > 0), tokens

    def __add__(self, other: Usage) -> Usage:
        if other is NO_USAGE:
            return self
        if self is NO_USAGE:
            return other
        used, others_used = self.total_tokens > 0, other.total_tokens > 0
        known, calls, tokens = self._cost_parts()
        others_known, others_calls, others_tokens = other._cost_parts()
        known, calls, tokens = known + others_known, calls + others_calls, tokens + others_tokens
        is_unknown = calls > 0 or (self.cost_usd is None and other.cost_usd is None)
        saved = self.saved_usd
        if other.saved_usd is not None:
            saved = other.saved_usd + (saved or 0.0)
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cached_prompt_tokens=self.cached_prompt_tokens + other.cached_prompt_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            cost_usd=None if is_unknown else known,
            known_usd=known if is_unknown else 0.0,
            unpriced_calls=calls,
            unpriced_tokens=tokens,
            saved_usd=saved,
            model=_common(self.model, used, other.model, others_used),
            provider=_common(self.provider, used, other.provider, others_used),
            by_tool=_by_tool(self.by_tool, other.by_tool),
        )


NO_USAGE: Final = Usage()
"""The usage without any tokens, neutral in sums."""


def _common(name: str, used: bool, other: str, others_used: bool) -> str:
    """Return the common name of both summands. A summand without a name and without tokens takes the other name."""
    if name == other or not (other or others_used):
        return name
    return "" if name or used else other


def _by_tool(first: Mapping[str, ToolUsage], second: Mapping[str, ToolUsage]) -> Mapping[str, ToolUsage]:
    if not (first and second):
        return first or second
    added = {name: first[name] + used if name in first else used for name, used in second.items()}
    return {**first, **added}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call to a model. None leaves a setting to the provider."""

    system: str = ""
    messages: Sequence[ModelMessage] = ()
    tools: Sequence[ToolSpec] = ()
    model: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    timeout_seconds: float | None = None
    schema: Mapping[str, Json] | None = None
    """The JSON Schema of the answer, for a provider with support for this schema (`TakesSchemas`)."""
    contents: Mapping[str, bytes] = field(default_factory=dict, repr=False, compare=False)
    """The bytes of the files of these messages, by SHA-256. A file without bytes is named to the model, not shown."""
    language: str = "en"
    """The language of the conversation, a BCP 47 tag. Only the offline demo provider uses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A reply of the model.

    A reply with the finish ``length`` was cut off, so the tool calls may be incomplete and are not run.
    """

    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = NO_USAGE
    model: str = ""
    finish: Literal["stop", "tools", "length", "refused"] = "stop"
    echo: Mapping[str, Json] | None = None
    """Data for the provider; see ModelMessage."""

    @property
    def message(self) -> ModelMessage:
        """The reply as a message of the conversation."""
        return ModelMessage(role="assistant", content=self.content, tool_calls=self.tool_calls, echo=self.echo)


@runtime_checkable
class Provider(Protocol):
    """A protocol for calls to one vendor's models."""

    name: str

    async def complete(self, request: Request) -> Response:
        """Return the whole reply. Raises ProviderError."""
        ...

    def stream(self, request: Request) -> AsyncIterator[str | Response]:
        """Yield pieces of the text on arrival, and last, always, the whole Response.

        An interrupted stream raises ProviderError. No tool call of an interrupted stream is ever run.
        """
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Completes(Protocol):
    """A protocol for a provider without `stream`, `close` or both; see `as_provider`."""

    name: str

    def complete(self, request: Request) -> Response | Awaitable[Response]:
        """Return the whole reply. A sync method runs in a thread. Raises ProviderError."""
        ...


@runtime_checkable
class TakesSchemas(Protocol):
    """A protocol for a provider of a vendor with enforcement of an answer's JSON Schema."""

    def takes_schema(self, schema: Mapping[str, Json], model: str | None) -> bool:
        """Return True if the vendor enforces this schema. None: the provider's own model."""
        ...


@runtime_checkable
class KnowsModels(Protocol):
    """A protocol for a provider with a server that lists models free of charge."""

    async def knows(self, model: str | None = None, *, timeout_seconds: float) -> bool:
        """Return True if the server has the model, and False if the server does not say.

        None: the provider's own model. Raises ProviderError when the server does not have the model, refuses the key,
        or is unreachable.
        """
        ...


class TranscriptionFailed(AskfirstError):
    """A voice message could not be transcribed. `code` holds no text of a person and no secret."""

    def __init__(self, code: str) -> None:
        super().__init__(f"not transcribed: {code}")
        self.code = code


@runtime_checkable
class Transcriber(Protocol):
    """A protocol for transcription of voice messages."""

    async def transcribe(self, content: bytes, *, filename: str, mime_type: str, language: str | None) -> str:
        """Return the words of a recording, an empty text without any words. Raises TranscriptionFailed.

        `language`: the BCP 47 tag of the person's language, if named by the platform.
        """
        ...
