"""Typed results: the observations of a tool, in a form for the model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar

from pydantic import BaseModel

NO_OUTPUT = "done (no output)"
LONGEST = 100_000
"""The most characters of a result: a model refuses longer results, and no person could read these."""


@dataclass(frozen=True)
class ToolResult:
    """The base of typed results: a subclass is a frozen dataclass with its own `kind`.

    A result is an observation: NotFound says that this tool saw no match now, not that none exists.
    """

    kind: ClassVar[str] = "result"


@dataclass(frozen=True)
class Ambiguous(ToolResult):
    """Several entities match the query. The model should ask for the right one."""

    kind: ClassVar[str] = "ambiguous"
    entity: str
    query: str
    matches: Sequence[Any] = ()


@dataclass(frozen=True)
class NotFound(ToolResult):
    """No entity matches the query."""

    kind: ClassVar[str] = "not_found"
    entity: str
    query: str


@dataclass(frozen=True)
class RateLimited(ToolResult):
    """Too many calls. `retry_after` is the number of seconds to wait."""

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
    """Return a tool's result as text for the model.

    A text stays unchanged, and None becomes a short note. Typed results, pydantic models, dataclasses, dicts and lists
    become JSON; values unknown to JSON go through `str`. A text longer than LONGEST is cut, with a note. Never raises,
    because the tool has run: an unwritable value is named by its type.
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
    """Return one level of a structured value as a dict, and any other value unchanged."""
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
