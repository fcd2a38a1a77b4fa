"""How an agent behaves: the settings of its loop, and their limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from channels import Json
from gateway.options import WrongOption, wrong_options

__all__ = ["AgentConfig", "ConfirmAction", "StopCondition"]

StopCondition: TypeAlias = Callable[[str, str], bool]
"""(tool name, its result as text) -> whether the loop ends with this result. Pure and cheap."""
ConfirmAction: TypeAlias = Callable[[str, Mapping[str, Json], str], bool | Awaitable[bool]]
"""(tool name, arguments, reason) -> True to run the call. Anything else, an error or no answer in time denies it."""

_Wait: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Limit: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class AgentConfig(BaseModel):
    """Settings of one agent, frozen. An unknown name or a value outside its limits raises WrongOption."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    if not TYPE_CHECKING:  # type checkers know the fields by the class

        def __init__(self, **values: object) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                issues = wrong_options(error, list(type(self).model_fields))
            else:
                return
            raise WrongOption(type(self).__name__, issues)

    name: str = Field(default="agent", min_length=1)
    model: str | None = None
    """None: the one the provider was made with."""
    temperature: float | None = Field(default=0.0, ge=0, le=2)
    """None: the provider's own."""
    max_tokens: int | None = Field(default=1000, ge=1)
    """Of one reply of the model."""
    max_iterations: int = Field(default=6, ge=1, le=50)
    """Calls to the model in one turn."""
    max_total_tokens: int | None = Field(default=None, ge=1)
    """Of one turn; looked at before each call to the model."""

    max_retries: int = Field(default=2, ge=0, le=10)
    """After the first attempt, when an error of the provider may pass."""
    retry_backoff_seconds: _Wait = 1.0
    """Times the number of the failed attempt."""
    rate_limit_cooldown_seconds: _Wait = 5.0
    """Added to the backoff when the provider has had too many calls, times the attempt; its Retry-After wins."""
    request_timeout_seconds: _Limit = 30.0
    """For one call to the model, or between two pieces of a stream."""

    tool_timeout_seconds: _Limit = 30.0
    """For a tool that has no `timeout_seconds` of its own."""
    parallel_tool_execution: bool = True
    """Calls of one reply run at the same time, unless one of them asks a person."""
    routing_only: bool = False
    """The model's choice of tools is the result; none of them runs."""
    stop_condition: StopCondition | None = None

    confirm_action: ConfirmAction | None = None
    """Decides on calls that need confirmation when no chat is there to ask in."""
    approval_timeout_seconds: _Limit = 60.0
    """How long `confirm_action` has."""
