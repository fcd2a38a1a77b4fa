"""The Provider protocol: how the agent speaks to a model, whoever makes it.

ProviderError (AskfirstError)              a call failed; `retryable` says whether trying again can help
└── ProviderConfigurationError             a key or the package is missing
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from channels import AskfirstError, Json

__all__ = [
    "KnowsModels",
    "ModelMessage",
    "Provider",
    "ProviderConfigurationError",
    "ProviderError",
    "Request",
    "Response",
    "ToolCall",
    "ToolSpec",
    "Usage",
]


Refusal: TypeAlias = Literal["too_long", "invalid"]


class ProviderError(AskfirstError):
    """A call to a model failed. The text is for operators, never for the person in the chat.

    `rate_limited`: it had too many calls; `retry_after_seconds`: how long it wants to be left alone, if it said so.
    `refusal`: why this very request can never succeed: it is ``too_long`` for the model, or ``invalid`` by the vendor's
    rules, those for its content included.
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
    ) -> None:
        super().__init__(f"{provider}: {code}")
        self.provider, self.code, self.retryable = provider, code, retryable
        self.rate_limited, self.retry_after_seconds = rate_limited, retry_after_seconds
        self.refusal = refusal


class ProviderConfigurationError(ProviderError):
    """A provider cannot be made: `env_var` is missing, or its package is not installed."""

    def __init__(self, provider: str, missing: str, *, env_var: str | None = None) -> None:
        super().__init__(provider, missing, retryable=False)
        self.missing, self.env_var = missing, env_var


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """The model wants a tool run. `call_id` pairs it with its result."""

    call_id: str
    name: str
    args: Mapping[str, Json] = field(default_factory=dict)
    parse_error: str | None = None
    """Set when the model's arguments were not a JSON object; `args` is then empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMessage:
    """One message of the conversation with the model.

    `user`: what a person wrote. `assistant`: what the model said, with its tool calls. `tool`: the result of one call.
    `event`: something the gateway tells the model (an action was confirmed and done, expired, ...): data, not
    instructions; a provider renders it in front of the next user message.
    """

    role: Literal["user", "assistant", "tool", "event"]
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    """tool: which call this is the result of."""
    tool_name: str | None = None
    speaker: str | None = None
    """user, in groups: the name of who wrote it."""
    echo: Mapping[str, Json] | None = None
    """assistant: what the model's provider wants back with it, unchanged; nobody else reads it (`history.echoed`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as the model sees it; `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one call, or summed over several."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
        )


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
    language: str = "en"
    """BCP 47: the conversation's; only the offline demo provider speaks by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What the model said. `length`: it was cut off, so its tool calls may be incomplete and are not run."""

    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    model: str = ""
    finish: Literal["stop", "tools", "length", "refused"] = "stop"
    echo: Mapping[str, Json] | None = None
    """See ModelMessage."""

    @property
    def message(self) -> ModelMessage:
        """As the conversation remembers it."""
        return ModelMessage(role="assistant", content=self.content, tool_calls=self.tool_calls, echo=self.echo)


@runtime_checkable
class Provider(Protocol):
    """Speaks to one vendor's models."""

    name: str

    async def complete(self, request: Request) -> Response:
        """Raises ProviderError."""
        ...

    def stream(self, request: Request) -> AsyncIterator[str | Response]:
        """Pieces of the text as they come, then, last and always, the whole Response.

        A stream that breaks off raises ProviderError: no tool call of it is ever run.
        """
        ...

    async def close(self) -> None: ...


@runtime_checkable
class KnowsModels(Protocol):
    """A provider whose server says for nothing which models it has."""

    async def knows(self, model: str | None = None, *, timeout_seconds: float) -> bool:
        """Whether it has the model; False: this server does not say. None: the model the provider was made with.

        Raises ProviderError when it has not, or refuses the key, or is out of reach.
        """
        ...
