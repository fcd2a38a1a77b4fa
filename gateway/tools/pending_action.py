"""The record of a tool call that waits for a person: what, who, when, and what became of it.

The rules over it are in `gateway.pending`; here is only its shape.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cache
from typing import Any, Literal, Self, TypeAlias, cast

import orjson
import rfc8785
from pydantic import TypeAdapter

from channels import Address, Json

__all__ = [
    "ButtonIntent",
    "Detail",
    "PendingAction",
    "Reason",
    "State",
    "Token",
    "Vote",
    "canonical_json",
    "compute_args_digest",
    "json_text",
    "why_closed",
]

State: TypeAlias = Literal["pending", "approved", "running", "done", "failed", "unknown", "closed"]
Reason: TypeAlias = Literal["refused", "withdrawn", "expired", "undelivered", "changed", "drifted"]
Detail: TypeAlias = Literal["tampered", "changed", "not_checked", "other_release"]
"""Why an action drifted.

``tampered``: somebody without the key changed it. ``changed``: it would act on something else than was shown.
``not_checked``: the preview could not be made again. ``other_release``: no process has the tool as it was shown.
"""
ButtonIntent: TypeAlias = Literal["confirm", "cancel", "again"]


def compute_args_digest(args: Mapping[str, Json] | None) -> str:
    """SHA-256 (64 hex digits) over the arguments alone, in canonical JSON (RFC 8785); None equals no arguments.

    Raises ValueError for what canonical JSON cannot hold: NaN, dates, integers beyond 2**53.
    """
    return hashlib.sha256(canonical_json(dict(args or {}))).hexdigest()


def canonical_json(value: Any) -> bytes:
    """RFC 8785. Raises ValueError for what it cannot hold."""
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, RecursionError, UnicodeEncodeError) as error:
        raise ValueError(f"not a value of canonical JSON: {error}") from error


def json_text(value: Any) -> str:
    """Return one text for one JSON value: orjson's, keys in order.

    What orjson cannot write (lone surrogates, integers of more than 64 bits) the standard library writes, in ASCII.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A button that was shown for an action. Only the SHA-256 of what the button carries is kept."""

    sha256: str
    intent: ButtonIntent


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """An approver's yes."""

    person: str
    name: str | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingAction:
    """One tool call that was asked for and not (or not yet) done. Times are the store's clock, in UTC."""

    pending_action_id: str
    """128 random bits in hex; also the idempotency key and the audit's key."""
    kind: str
    """The tool's name."""
    tool_version: str = ""
    template: str | None = None
    """SHA-256 of the tool's confirm template; empty when it has none, None in a record of an older release."""
    args: Mapping[str, Json] = field(default_factory=dict)
    precondition: Json = None
    preview: str
    """The question in one line, as the tool asks it."""
    table: tuple[tuple[str, str], ...] = ()
    """More of the preview: name and value, as the tool's preview function gave them."""
    code: str = ""
    supersedes: str | None = None
    """The id of the open action that this one takes the place of: the same call, shown with another preview."""

    requester: str
    """The person as written: ``telegram:123:456``."""
    requester_name: str | None = None
    conversation: str
    address: Address | None = None
    """Where it was asked; None from `ask_channel`."""
    language: str = "en"
    approvers: tuple[str, ...] = ()
    """Persons as written; empty: the requester alone decides."""
    need: int = 1
    votes: tuple[Vote, ...] = ()

    state: State = "pending"
    reason: Reason | None = None
    """Of closed."""
    detail: Detail | None = None
    """Of drifted."""
    args_digest: str = ""
    digest: str = ""
    fence: int = 0
    attempts: int = 0
    tokens: tuple[Token, ...] = ()
    prompts: tuple[str, ...] = ()
    """Message ids of the showings of the prompt, oldest first."""
    reshown: int = 0
    """How many times the prompt was shown again under a reply."""
    verb: str | None = None
    """Of the question, one of `VERBS`: an answer with another verb does not count. None: not known."""
    parser_version: str = ""
    audit: str = ""
    """The head of this action's audit chain."""
    after: Literal["receipt", "resume"] = "receipt"

    ttl_seconds: float = 900.0
    answer_window_seconds: float = 60.0
    requested_at: datetime
    shown_at: datetime | None = None
    expires_at: datetime | None = None
    decided_at: datetime | None = None
    decided_by: str | None = None
    decided_name: str | None = None
    remark: str | None = None
    """What the person said beside a no."""
    launched_at: datetime | None = None
    finished_at: datetime | None = None
    outcome: str | None = None
    """What the tool said, or ``error: TypeName``; never an exception's text."""
    unknown: Mapping[str, Json] = field(default_factory=dict)
    """Fields that a newer release wrote; they stay in the record."""

    @property
    def status(self) -> Literal["pending", "confirmed", "cancelled", "expired", "consumed"]:
        """The seed library's word for `state`."""
        if self.state == "pending":
            return "pending"
        if self.state in ("approved", "running"):
            return "confirmed"
        if self.state == "closed":
            return "expired" if self.reason == "expired" else "cancelled"
        return "consumed"

    @property
    def open(self) -> bool:
        """Still waiting for a person's decision."""
        return self.state == "pending"

    @property
    def settled(self) -> bool:
        """Nothing more will happen to it (but a late finish may still settle `unknown`)."""
        return self.state in ("done", "failed", "unknown", "closed")

    def to_json(self) -> dict[str, Json]:
        """Return the record as JSON; a field that has its default is left out."""
        stored: dict[str, Json] = _adapter().dump_python(self, mode="json", exclude_defaults=True)
        unknown = cast("dict[str, Json]", stored.pop("unknown", {}))
        return {**unknown, **stored}

    @classmethod
    def from_json(cls, stored: Mapping[str, Json]) -> Self:
        """Return the record of its JSON form; what this release does not know stays in `unknown`.

        Raises ValueError when it is not one.
        """
        known = {name: value for name, value in stored.items() if name in _names()}
        unknown = {name: value for name, value in stored.items() if name not in _names() | _FIRST_FORM}
        action: Self = _adapter().validate_python({**known, "unknown": unknown})
        return action

    def to_text(self) -> str:
        """Return the text that is stored and sealed."""
        if not self.unknown:
            with suppress(ValueError):  # half a character in the name of a person
                return _adapter().dump_json(self, exclude_defaults=True).decode()
        return json_text(self.to_json())

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the record of its stored text. Raises ValueError when it is not one."""
        stored = json.loads(text)
        if not isinstance(stored, dict):
            raise ValueError("not a record of an action")
        return cls.from_json(stored)


_FIRST_FORM = frozenset({"schema", "seal", "answer_until"})
"""Fields of the records before the sealed form that are not in this one."""


@cache
def _names() -> frozenset[str]:
    return frozenset(each.name for each in fields(PendingAction)) - {"unknown"}


@cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(PendingAction)


def why_closed(reason: Reason, detail: Detail | None) -> str:
    """Return the key of the sentence that says why: four things make an action drift, and only one is a change."""
    return reason if detail in (None, "changed") else detail
