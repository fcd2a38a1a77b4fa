"""The record of a tool call that waits for a person: what, who, when, and what became of it.

The rules over it are in `gateway.pending`; here is only its shape.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cache
from typing import Any, Literal, Self, TypeAlias

import rfc8785
from pydantic import TypeAdapter

from channels import Address, Json
from gateway.store.form import check_form

__all__ = ["PendingAction", "Reason", "State", "Token", "Vote", "compute_args_digest"]

State: TypeAlias = Literal["pending", "approved", "running", "done", "failed", "unknown", "closed"]
Reason: TypeAlias = Literal["refused", "withdrawn", "expired", "undelivered", "changed", "drifted"]


SCHEMA = 1


def compute_args_digest(args: Mapping[str, Json] | None) -> str:
    """SHA-256 (64 hex digits) over the arguments alone, in canonical JSON (RFC 8785); None equals no arguments.

    Raises ValueError for what canonical JSON cannot hold: NaN, dates, integers beyond 2**53.
    """
    return hashlib.sha256(canonical_json(dict(args or {}))).hexdigest()


def check_schema(stored: object) -> None:
    """Raises NewerForm for a stored record that is for a newer release to read."""
    check_form(stored, name="schema", known=SCHEMA)


def is_known_schema(stored: object) -> bool:
    """Whether it is a record that this release can read."""
    schema = stored.get("schema") if isinstance(stored, dict) else None
    return isinstance(schema, int) and schema <= SCHEMA


def canonical_json(value: Any) -> bytes:
    """RFC 8785. Raises ValueError for what it cannot hold."""
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, RecursionError, UnicodeEncodeError) as error:
        raise ValueError(f"not a value of canonical JSON: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A button that was shown for an action. Only the SHA-256 of what the button carries is kept."""

    sha256: str
    intent: Literal["confirm", "cancel"]


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
    args: Mapping[str, Json] = field(default_factory=dict)
    precondition: Json = None
    preview: str
    """What would happen, in one line, without any language of the gateway's own."""
    table: tuple[tuple[str, str], ...] = ()
    """More of the preview: name and value, as the tool's preview function gave them."""
    code: str = ""

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
    args_digest: str = ""
    digest: str = ""
    seal: str = ""
    schema: int = SCHEMA
    fence: int = 0
    attempts: int = 0
    tokens: tuple[Token, ...] = ()
    prompts: tuple[str, ...] = ()
    """Message ids of the showings of the prompt, oldest first."""
    reshown: int = 0
    """How many times the prompt was shown again under a reply."""
    parser_version: str = ""
    audit: str = ""
    """The head of this action's audit chain."""
    after: Literal["receipt", "resume"] = "receipt"

    ttl_seconds: float = 900.0
    answer_window_seconds: float = 60.0
    requested_at: datetime
    shown_at: datetime | None = None
    expires_at: datetime | None = None
    answer_until: datetime | None = None
    """Until then a bare word counts."""
    decided_at: datetime | None = None
    decided_by: str | None = None
    decided_name: str | None = None
    launched_at: datetime | None = None
    finished_at: datetime | None = None
    outcome: str | None = None
    """What the tool said, or ``error: TypeName``; never an exception's text."""

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
        """The stored form."""
        stored: dict[str, Json] = _adapter().dump_python(self, mode="json")
        return stored

    @classmethod
    def from_json(cls, stored: Any) -> Self:
        """The record of its stored form; fields that this version does not know are left out.

        Raises ValueError when it is not one.
        """
        known = {f.name for f in fields(cls)}
        action: Self = _adapter().validate_python(
            {name: value for name, value in dict(stored).items() if name in known}
        )
        return action


@cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(PendingAction)
