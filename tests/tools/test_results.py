"""Typed results and the resulting text."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, dataclass
from datetime import date
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from gateway.tools import Ambiguous, NotFound, PendingConfirmation, RateLimited, ToolResult, serialise
from gateway.tools.results import LONGEST


@pytest.mark.ledger("RES-01", "RES-02", "RES-04")
def test_serialised_result_starts_with_its_kind() -> None:
    assert serialise(NotFound("customer", "acme")) == '{"kind": "not_found", "entity": "customer", "query": "acme"}'
    found = '{"kind": "ambiguous", "entity": "customer", "query": "ac", "matches": ["acme", "acorn"]}'
    assert serialise(Ambiguous("customer", "ac", ["acme", "acorn"])) == found
    assert ToolResult.kind == "result"


@pytest.mark.ledger("RES-03", "RES-05")
def test_kind_is_there_although_it_is_no_field() -> None:
    assert serialise(RateLimited(retry_after=5)) == '{"kind": "rate_limited", "retry_after": 5}'


@pytest.mark.ledger("RES-06")
def test_pending_confirmation_is_marked_as_not_executed() -> None:
    pending = PendingConfirmation(action="a1", preview="Delete INV-1?", user_prompt="Reply OK")
    assert list(json.loads(serialise(pending)).items()) == [
        ("kind", "pending_confirmation"),
        ("action", "a1"),
        ("preview", "Delete INV-1?"),
        ("user_prompt", "Reply OK"),
        ("executed", False),
    ]
    with pytest.raises(FrozenInstanceError):
        pending.action = "a2"  # type: ignore[misc]


class Invoice(BaseModel):
    number: str
    due: date


@dataclass
class Plain:
    at: date
    inner: Any = None


@dataclass(frozen=True)
class Found(ToolResult):
    kind: ClassVar[str] = "found"
    invoice: Invoice
    source: str = "ledger"


DAY = date(2026, 11, 21)


@pytest.mark.ledger("RES-08", "TOOL-50")
@pytest.mark.parametrize(
    ("result", "text"),
    [
        pytest.param(None, "done (no output)", marks=pytest.mark.ledger("TOOL-51")),
        ("as it is", "as it is"),
        ("", ""),
        (5, "5"),
        ({"name": "Zoë", "at": DAY}, '{"name": "Zoë", "at": "2026-11-21"}'),
        ([1, NotFound("a", "b")], '[1, {"kind": "not_found", "entity": "a", "query": "b"}]'),
        ([], "[]"),
        ((1, 2), "[1, 2]"),
        (Invoice(number="1", due=DAY), '{"number": "1", "due": "2026-11-21"}'),
        (Plain(DAY, Plain(DAY)), '{"at": "2026-11-21", "inner": {"at": "2026-11-21", "inner": null}}'),
        pytest.param(
            Found(Invoice(number="1", due=DAY)),
            '{"kind": "found", "invoice": {"number": "1", "due": "2026-11-21"}, "source": "ledger"}',
            marks=pytest.mark.ledger("RES-07"),
        ),
        (DAY, "2026-11-21"),
    ],
)
def test_result_is_serialised_as_text(result: Any, text: str) -> None:
    assert serialise(result) == text


class Sulky:
    def __str__(self) -> str:
        raise ZeroDivisionError


def _nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "result",
    [Sulky(), {"a": Sulky()}, {(1, 2): "b"}, 10**5000, [10**5000], _nested(100_000)],
    ids=["itself", "within", "key", "number", "number within", "deep"],
)
def test_result_that_cannot_be_serialised_is_named_by_its_type(result: Any) -> None:
    assert serialise(result) == f"done (its result, of type {type(result).__name__}, cannot be written as text)"


@pytest.mark.parametrize("result", ["x" * 1_000_000, ["x" * 1_000_000]], ids=["text", "list"])
def test_too_long_result_is_cut_with_a_note(result: Any) -> None:
    text = serialise(result)
    assert len(text) < LONGEST + 100
    assert text.endswith("… (cut: it has 1000000 characters)" if result[0] == "x" else "characters)")
