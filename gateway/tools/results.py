"""Typed results: what a tool observed, in a form that a model reads well."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar

from pydantic import BaseModel

__all__ = ["Ambiguous", "NotFound", "PendingConfirmation", "RateLimited", "ToolResult", "serialise"]

NO_OUTPUT = "done (no output)"
LONGEST = 100_000
"""Characters of a result. More is no answer that a person or a model could read; a model refuses it."""


@dataclass(frozen=True)
class ToolResult:
    """Base of typed results: a subclass is a frozen dataclass with a `kind` of its own.

    A result is an observation: NotFound says that this tool saw no match now, not that there is none.
    """

    kind: ClassVar[str] = "result"


@dataclass(frozen=True)
class Ambiguous(ToolResult):
    """Several things match the query; the model should ask which one is meant."""

    kind: ClassVar[str] = "ambiguous"
    entity: str
    query: str
    matches: Sequence[Any] = ()


@dataclass(frozen=True)
class NotFound(ToolResult):
    """Nothing matches the query."""

    kind: ClassVar[str] = "not_found"
    entity: str
    query: str


@dataclass(frozen=True)
class RateLimited(ToolResult):
    """Too many calls: try again after so many seconds."""

    kind: ClassVar[str] = "rate_limited"
    retry_after: float = 0


@dataclass(frozen=True)
class PendingConfirmation(ToolResult):
    """The call was not made: a person is asked first."""

    kind: ClassVar[str] = "pending_confirmation"
    action: str
    preview: str
    user_prompt: str
    executed: bool = field(default=False, init=False)


def serialise(result: Any) -> str:
    """A tool's result as the text the model reads.

    Text stays as it is, None becomes a short note, and typed results, pydantic models, dataclasses, dicts and lists
    become JSON; values JSON does not know go through `str`. What is longer than LONGEST is cut and says so. It raises
    nothing, for the tool has run: a value that cannot be written is named by its type.
    """
    try:
        text = _written(result)
    except Exception:  # noqa: BLE001 - an author's object may raise anything here
        return f"done (its result, of type {type(result).__name__}, cannot be written as text)"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… (cut: it has {len(text)} characters)"


def _written(result: Any) -> str:
    if result is None:
        return NO_OUTPUT
    if isinstance(result, str):
        return result
    if isinstance(result, (dict, list, tuple)) or _plain(result) is not result:
        return json.dumps(result if isinstance(result, (dict, list, tuple)) else _plain(result), **_JSON)
    return str(result)


def _plain(value: Any) -> Any:
    """One level of a structured value as a dict; anything else unchanged."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        body = {f.name: getattr(value, f.name) for f in fields(value)}
        return {"kind": value.kind, **body} if isinstance(value, ToolResult) else body
    return value


def _default(value: Any) -> Any:
    plain = _plain(value)
    return str(value) if plain is value else plain


_JSON: dict[str, Any] = {"ensure_ascii": False, "default": _default}
