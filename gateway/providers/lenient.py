"""Types for the optional fields of an answer: a value of another shape counts as missing.

Servers with an API of another vendor send token counts as fractions, texts as lists of parts, and ids as numbers. These
deviations must not cost a good answer.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from gateway.providers.base import ProviderError

log = logging.getLogger("askfirst.providers")

T = TypeVar("T")

BROKE_OFF = re.compile(
    r"error|abort|cancel|timeout|fail|insufficient|interrupt|overload|unavailable|disconnect|incomplete|malformed|repetition",
    re.IGNORECASE,
)
"""Reasons of other servers for an incomplete answer (https://github.com/anomalyco/opencode/issues/26170)."""


def _or_none(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    try:
        return read(value)
    except ValidationError:
        return None


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and abs(value) < 1e15 else value


def _written(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _no_null(value: object) -> object:
    return None if isinstance(value, str) and value.strip().lower() in ("", "null", "none") else value


def _said(value: object) -> object:
    """Return the text of a list of parts, without thoughts and other parts."""
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list | tuple):
        return value
    return "".join(text for part in value if isinstance(text := _text_in(part), str))


def _text_in(part: object) -> object:
    if isinstance(part, str):
        return part
    held = part if isinstance(part, dict) else part.model_dump() if isinstance(part, BaseModel) else {}
    if held.get("thought") is True:  # https://ai.google.dev/gemini-api/docs/thinking
        return None
    return held.get("text") if held.get("type") in ("text", "output_text", None) else None


Count: TypeAlias = Annotated[int | None, BeforeValidator(_whole), WrapValidator(_or_none)]
"""A number of tokens, without the fraction."""
Name: TypeAlias = Annotated[str | None, BeforeValidator(_written), WrapValidator(_or_none)]
"""An id or a name."""
Reason: TypeAlias = Annotated[str | None, BeforeValidator(_no_null), BeforeValidator(_written), WrapValidator(_or_none)]
"""The reason for the end of an answer. The word null, written by some servers, is none."""
Said: TypeAlias = Annotated[str | None, BeforeValidator(_said)]
"""A text, or the texts of a list of parts."""
Loose: TypeAlias = Annotated[T | None, WrapValidator(_or_none)]
"""A part; any other shape counts as missing."""


class FailedAnswer(ValueError):
    """A server reports an error within an answer. `body` is the error as written by the server."""

    def __init__(self, body: object) -> None:
        super().__init__("an error within an answer")
        self.body = body


_MOST_CHARACTERS = 1_000_000


def check_length(provider: str, text: str) -> None:
    """Raise ProviderError for an answer without end: a server may repeat itself for ever."""
    if len(text) > _MOST_CHARACTERS:
        raise ProviderError(provider, f"the answer has more than {_MOST_CHARACTERS} characters", retryable=False)


@lru_cache(256)
def told_once(text: str) -> None:
    """Log a warning of a server's deviation, once for each text."""
    log.warning("%s", text)


def broke_off(provider: str, *, as_ended: bool) -> ProviderError:
    """Return the error of an answer without an end.

    `as_ended`: a part arrived, and the server closed the answer as if whole. Some servers always do so.
    """
    fault = "no end" if as_ended else None
    return ProviderError(provider, "the answer broke off before its end", retryable=True, fault=fault)


def where(error: ValidationError) -> str:
    """Return the unreadable field and the type of the value, without the value."""
    first = error.errors(include_input=True, include_url=False)[0]
    path = ".".join(str(step) for step in first["loc"] if isinstance(step, int) or step.isidentifier())
    return f"{path or 'the whole'}: {type(first['input']).__name__}"
