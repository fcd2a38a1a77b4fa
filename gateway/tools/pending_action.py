"""The record of a tool call for a person's decision: the call, people, times and outcome.

The rules are in `gateway.pending`. This module only has the shape and the JSON form.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cache
from types import NoneType
from typing import Any, Literal, Self, TypeAlias

import orjson
import rfc8785
from pydantic import TypeAdapter

from channels import Address, Json
from gateway.tools.layout import Layout

State: TypeAlias = Literal["pending", "approved", "running", "done", "failed", "unknown", "closed"]
Reason: TypeAlias = Literal["refused", "withdrawn", "expired", "undelivered", "changed", "drifted"]
Detail: TypeAlias = Literal["tampered", "changed", "not_checked", "other_release"]
"""Reasons of a drifted action.

``tampered``: the record was changed without the key. ``changed``: the effect would differ from the preview.
``not_checked``: the preview could not be made again. ``other_release``: no process has the shown version of the tool.
"""
ButtonIntent: TypeAlias = Literal["confirm", "cancel", "again", "change", "standing", "confirm_all", "cancel_all"]


def compute_args_digest(args: Mapping[str, Json] | None) -> str:
    """Return the SHA-256 (64 hex digits) of the arguments in canonical JSON (RFC 8785). None equals no arguments.

    Raises ValueError for a value without canonical JSON: NaN, a date, an integer beyond 2**53.
    """
    return hashlib.sha256(canonical_json(dict(args or {}))).hexdigest()


def canonical_json(value: Any) -> bytes:
    """Return the canonical JSON (RFC 8785) of a value. Raises ValueError for a value without this form."""
    try:
        # The same bytes, where rfc8785 calls Python for each quotation mark of a long text. It fails for a fraction, a
        # large number, a lone surrogate and many levels.
        with suppress(TypeError):
            return orjson.dumps(_plain(value), option=orjson.OPT_SORT_KEYS)
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, RecursionError, UnicodeEncodeError) as error:
        raise ValueError(f"not a value of canonical JSON: {error}") from error


def _plain(value: Any) -> Any:
    """Return a value that orjson writes in canonical form. Raises TypeError for any other value."""
    kind = type(value)
    if kind in (str, bool, NoneType) or (kind is int and abs(value) < 2**53):
        return value
    if kind in (list, tuple):
        return list(map(_plain, value))
    if kind is dict and all(type(name) is str and name.isascii() for name in value):
        return {name: _plain(inner) for name, inner in value.items()}
    if kind is float and value.is_integer() and abs(value) < 2**53:
        return int(value)
    raise TypeError


def json_text(value: Any) -> str:
    """Return the same text for equal JSON values, with sorted keys.

    A value not supported by orjson (lone surrogates, integers of more than 64 bits) is written by the standard library,
    in ASCII.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A button shown for an action. Only the SHA-256 of the secret is stored."""

    sha256: str
    intent: ButtonIntent
    items: tuple[str, ...] = ()
    """The ids of all actions in the message, for a button deciding all together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """The yes of one approver."""

    person: str
    name: str | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Ballot:
    """The question to a single approver, in the approver's own chat."""

    person: str
    conversation: str = ""
    """Empty for a person without any private chat."""
    address: Address | None = None
    state: Literal["named", "asked", "shown", "lost"] = "asked"
    """``named``: a stand-in, not asked yet. ``lost``: the person cannot be reached."""
    instead: bool = False
    """True for the question of the conversation itself, asked in another place because its own place refused it.

    `person` is then only a name of this ballot.
    """
    only_to: str = ""
    """The platform's id of the only person to see the question in a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BallotOf:
    """The action put to the vote by a ballot."""

    conversation: str
    action_id: str
    people: tuple[str, ...]
    need: int
    instead: str = ""
    """The name of a ballot with `Ballot.instead`; empty for the question to an approver."""
    only_to: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingOffer:
    """A standing permission offered in the prompt of an action, and the code for giving the permission.

    Arguments in neither `free` nor `most` must be equal to the action's.
    """

    code: str
    seconds: float
    uses: int
    free: tuple[str, ...] = ()
    """The arguments that may have any value."""
    most: tuple[tuple[str, str], ...] = ()
    """The arguments limited to a number from 0 to a bound, each with the bound."""
    compared: bool = False
    """True if the preview of a call must equal the action's preview: the precondition, else text and table."""

    @property
    def varying(self) -> frozenset[str]:
        """The arguments that may differ."""
        return frozenset((*self.free, *(name for name, _ in self.most)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A call decided by a standing permission."""

    action_id: str
    args_digest: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The standing permission given by an action at the launch: the time, the uses and the end.

    The scope is in the `standing` of the action.
    """

    given: datetime
    until: datetime
    used: tuple[Use, ...] = ()
    ended: Literal["revoked", "stopped", "used_up", "expired", "tampered"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingAction:
    """A tool call before or after a person's decision. Times are the store's clock, in UTC."""

    pending_action_id: str
    """128 random bits in hex; also the idempotency key and the audit's key."""
    salt: str = ""
    """128 more random bits in hex, only in the record. The digest includes the salt, so a guessed name or number cannot
    be checked against the digest in an audit line."""
    kind: str
    """The tool's name."""
    tool_version: str = ""
    layout: Layout | None = None
    """The tool's way of writing the question; None without templates, labels and currencies."""
    args: Mapping[str, Json] = field(default_factory=dict)
    precondition: Json = None
    preview: str
    """The tool's question in a single line."""
    table: tuple[tuple[str, str], ...] = ()
    """The rows of the preview: name and value, from the tool's preview function."""
    code: str = ""
    supersedes: str | None = None
    """The id of the replaced open action: the same call, with another preview."""

    requester: str
    """The requester, like ``telegram:123:456``."""
    requester_name: str | None = None
    """The requester's self-chosen name."""
    requester_handle: str | None = None
    """The platform's own name for the requester, without a sign in front."""
    conversation: str
    address: Address | None = None
    """The address of the conversation; None from `ask_channel`."""
    language: str = "en"
    approvers: tuple[str, ...] = ()
    """Persons, like ``telegram:123:456``. Empty: the requester alone decides."""
    approvers_name: str | None = None
    """The author's name for the approvers, shown to the requester."""
    need: int = 1
    votes: tuple[Vote, ...] = ()

    state: State = "pending"
    reason: Reason | None = None
    """The reason of the state `closed`."""
    detail: Detail | None = None
    """The detail of the reason `drifted`."""
    args_digest: str = ""
    digest: str = ""
    fence: int = 0
    attempts: int = 0
    tokens: tuple[Token, ...] = ()
    prompts: tuple[str, ...] = ()
    """The message ids of the prompt, oldest first."""
    reshown: int = 0
    """Number of times the prompt was shown again under a reply."""
    verb: str | None = None
    """The verb of the question, one of `VERBS`; None: not known. An answer with another verb does not count."""
    parser_version: str = ""
    audit: str = ""
    """The head of this action's audit chain."""
    after: Literal["receipt", "resume"] = "receipt"

    ttl_seconds: float = 900.0
    answer_window_seconds: float = 60.0
    requested_at: datetime
    shown_at: datetime | None = None
    shown_in: str = ""
    """The name of the ballot with the last showing, if asked instead in another place; empty: the own conversation."""
    expires_at: datetime | None = None
    decided_at: datetime | None = None
    decided_by: str | None = None
    decided_name: str | None = None
    remark: str | None = None
    """The person's text beside a no."""
    launched_at: datetime | None = None
    finished_at: datetime | None = None
    outcome: str | None = None
    """The tool's result, or ``error: TypeName``; never the text of an exception."""
    run_id: str = ""
    """The id of the asking run."""
    standins: tuple[str, ...] = ()
    """The people to ask when the approvers are silent. Each may approve once asked."""
    remind_seconds: float | None = None
    """Seconds before a silent approver is reminded; None: half of the time to answer."""
    ballots: tuple[Ballot, ...] = ()
    """The questions to approvers in other chats."""
    again: bool = False
    """True if the requester has pressed to be asked again."""
    ballot_of: BallotOf | None = None
    """The action in another conversation, if this record is a ballot. A ballot is never executed."""
    vote: Literal["confirm", "cancel"] | None = None
    """The last forwarded vote of a ballot."""
    plan: str | None = None
    """The common id of all actions from a reply of the model; None for a single action."""
    place: int = 0
    """The number of the action in the plan, from 1; 0 for a single action."""
    filed: bool = False
    """True if the question is too long for a message of the channel: a file holds it, and only the code confirms."""
    numbered: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Message id of a prompt -> the number of this question in the list, and the number of questions in the list."""
    on_item_failure: Literal["continue", "stop"] = "continue"
    """Whether the later items of the plan still run when this action has not been done."""
    replaces: str | None = None
    """The id of the open action that the person wanted changed, closed once this action is shown."""
    standing: StandingOffer | None = None
    """The permission that the requester may give with a yes."""
    allows: bool = False
    """True if the requester gave this permission with a yes. The launch of the action makes it a `grant`."""
    grant: Grant | None = None
    """The standing permission given by the launch."""
    permission: str | None = None
    """The id of the action with the deciding standing permission."""

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
        """True if the action waits for a person's decision."""
        return self.state == "pending"

    @property
    def is_vote(self) -> bool:
        """True for the question to an approver in the approver's own chat, or in a group that approves."""
        return self.ballot_of is not None and not self.ballot_of.instead

    @property
    def elsewhere(self) -> frozenset[str]:
        """The people with a question in another chat only."""
        return frozenset(ballot.person for ballot in self.ballots if not ballot.instead)

    def button(self, token_sha256: str) -> Token | None:
        """Return the button with this token, or None."""
        return next((token for token in self.tokens if token.sha256 == token_sha256), None)

    @property
    def settled(self) -> bool:
        """True if the action is finished. A late end may still change `unknown`."""
        return self.state in ("done", "failed", "unknown", "closed")

    def to_json(self) -> dict[str, Json]:
        """Return the record as JSON. Fields with the default value are left out."""
        stored: dict[str, Json] = _adapter().dump_python(self, mode="json", exclude_defaults=True)
        return stored

    @classmethod
    def from_json(cls, stored: Mapping[str, Json]) -> Self:
        """Return the record from JSON. Raises ValueError for any other JSON."""
        if unknown := stored.keys() - _names():
            raise ValueError(f"a record of an action has no {', '.join(sorted(unknown))}")
        action: Self = _adapter().validate_python(stored)
        return action

    def to_text(self) -> str:
        """Return the text to store and seal."""
        with suppress(ValueError):  # a lone surrogate in the name of a person
            return _adapter().dump_json(self, exclude_defaults=True).decode()
        return json_text(self.to_json())

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the record from a stored text. Raises ValueError for any other text."""
        stored = json.loads(text)
        if not isinstance(stored, dict):
            raise ValueError("not a record of an action")
        return cls.from_json(stored)


@cache
def _names() -> frozenset[str]:
    return frozenset(each.name for each in fields(PendingAction))


@cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(PendingAction)


def why_closed(reason: Reason, detail: Detail | None) -> str:
    """Return the key of the sentence about a closed action.

    A drift has four details, and only ``changed`` is worded as the drift itself.
    """
    return reason if detail in (None, "changed") else detail
