"""The conversion of an answer of the Responses API, whole or in events, to a Response.

Shapes: https://developers.openai.com/api/reference/resources/responses and its streaming events.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from channels import Json
from gateway.providers.base import ProviderError, Response, ToolCall, Usage
from gateway.providers.calling import tool_call
from gateway.providers.prices import priced
from gateway.providers.vendor import Vendor

__all__ = ["ResponsesAnswer"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow")

    type: str
    text: str = ""
    refusal: str = ""


class _Item(BaseModel):
    """One item of an answer, with all its fields, so that it can be sent back unchanged."""

    model_config = ConfigDict(extra="allow")

    type: str
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    content: list[_Part] | None = None
    encrypted_content: str | None = None

    @property
    def said(self) -> str:
        return "".join(part.text for part in self.content or () if part.type == "output_text")

    @property
    def refused(self) -> str:
        return "".join(part.refusal for part in self.content or () if part.type == "refusal")

    def as_sent(self) -> dict[str, Json]:
        """Return the item in the form in which the API takes it back: without empty fields.

        Only an answer has the status of its reasoning (https://github.com/BerriAI/litellm/issues/13420).
        """
        left_out = {"status"} if self.type == "reasoning" else None
        return self.model_dump(mode="json", exclude_unset=True, exclude_none=True, exclude=left_out)


class _Cached(BaseModel):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _ResponseTokens(BaseModel):
    """Token counts. `output_tokens` includes the reasoning, and `input_tokens` all that a cache read or wrote."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Cached | None = None


class _Error(BaseModel):
    code: str | None = None
    message: str | None = None


class _Incomplete(BaseModel):
    reason: str | None = None


class _Whole(BaseModel):
    """The used fields of an answer, validated here because the library passes answers on unchecked."""

    model: str = ""
    status: str
    output: list[_Item]
    usage: _ResponseTokens | None = None
    error: _Error | None = None
    incomplete_details: _Incomplete | None = None
    service_tier: str | None = None

    def counted(self) -> Usage:
        tokens = self.usage or _ResponseTokens()
        cached = tokens.input_tokens_details or _Cached()
        return Usage(
            prompt_tokens=tokens.input_tokens or 0,
            completion_tokens=tokens.output_tokens or 0,
            cached_prompt_tokens=cached.cached_tokens or 0,
            cache_write_tokens=cached.cache_write_tokens or 0,
            model=self.model,
            provider="openai",
        )


class _Typed(BaseModel):
    type: str


class _TextDelta(BaseModel):
    delta: str
    output_index: int | None = None


class _Ended(BaseModel):
    response: _Whole


class ResponsesAnswer:
    """The part of an answer that has arrived so far."""

    def __init__(self, vendor: Vendor) -> None:
        self._vendor = vendor
        self._whole: _Whole | None = None
        self._speaking: int | None = None
        """The index of the message whose words came last."""

    def end(self, answered: Any) -> None:
        """Set the whole answer. Raises pydantic.ValidationError."""
        self._whole = _Whole.model_validate(_plain(answered))

    def add(self, event: Any) -> str:
        """Add an event, and return its piece of the text. Raises pydantic.ValidationError, ProviderError."""
        plain = _plain(event)
        match _Typed.model_validate(plain).type:
            case "response.output_text.delta":
                return self._piece(_TextDelta.model_validate(plain))
            case "response.completed" | "response.incomplete" | "response.failed":
                self._whole = _Ended.model_validate(plain).response
            case "error":
                error = _Error.model_validate(plain)
                raise self._vendor.failed(error.code, error.message)
        return ""

    def _piece(self, delta: _TextDelta) -> str:
        """Return a piece of the text, after an empty line where another message begins."""
        before, self._speaking = self._speaking, delta.output_index if delta.delta else self._speaking
        return delta.delta if before in (None, self._speaking) else f"\n\n{delta.delta}"

    def response(self, model: str, url: str, at: float) -> Response:
        """Return the whole answer of this model, with its price at the server with this URL, at this POSIX time.

        Raises ProviderError when it failed or has no end.
        """
        whole = self._whole
        if whole is None or whole.status in ("queued", "in_progress"):
            raise ProviderError(self._vendor.name, "the answer broke off before its end", retryable=True)
        if whole.status not in ("completed", "incomplete"):
            error = whole.error or _Error()
            raise self._vendor.failed(error.code, error.message)
        calls = tuple(
            tool_call(item.call_id, item.name, item.arguments) for item in whole.output if item.type == "function_call"
        )
        refused = "".join(item.refused for item in whole.output)
        reason = whole.incomplete_details.reason if whole.incomplete_details else None
        finish: Literal["stop", "tools", "length", "refused"] = "tools" if calls else "stop"
        if refused or reason == "content_filter":
            finish, calls = "refused", ()
        elif whole.status == "incomplete":
            finish = "length"
        items = _kept(whole.output, calls) if finish == "tools" else []
        return Response(
            content=refused or "\n\n".join(said for item in whole.output if (said := item.said)),
            tool_calls=calls,
            usage=priced(whole.counted(), url, at, whole.service_tier),
            model=whole.model,
            finish=finish,
            echo={"provider": "openai", "model": model, "items": items} if items else None,
        )


def _kept(output: list[_Item], calls: tuple[ToolCall, ...]) -> list[Json]:
    """Return the items of a reply that calls tools; none without reasoning, or if they cannot be sent back.

    The server stores no reasoning, so that an item without its content cannot be found there
    (https://github.com/vercel/ai/issues/7543).
    """
    reasoning = [item for item in output if item.type == "reasoning"]
    known = {"reasoning", "message", "function_call"}.issuperset(item.type for item in output)
    if not reasoning or not known or not all(item.encrypted_content for item in reasoning):
        return []
    if output[-1].type == "reasoning" or any(call.parse_error for call in calls):
        return []
    return [item.as_sent() for item in output]


def _plain(answered: Any) -> Any:
    """Return the fields that the library received. Raises ValueError for what is no object."""
    if not hasattr(answered, "to_dict"):
        raise ValueError("not an object")
    return answered.to_dict(mode="json", warnings=False)
