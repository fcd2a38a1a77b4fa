"""The digest freezes the asked call; the seal covers every field of the record."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from channels import Address
from gateway.pending import seal
from gateway.pending.seal import Keyring, compute_digest
from gateway.store.form import FORM
from gateway.tools.layout import Layout
from gateway.tools.pending_action import (
    Ballot,
    BallotOf,
    Grant,
    PendingAction,
    StandingOffer,
    Token,
    Use,
    Vote,
    canonical_json,
    compute_args_digest,
)
from tests.pending.records import BOB, KEYRING, NOW, record

OTHER: dict[str, Any] = {
    "pending_action_id": "00" * 16,
    "salt": "00" * 16,
    "kind": "delete_customer",
    "tool_version": "w",
    "layout": Layout(templates={"": "Delete {invoice_id}?"}),
    "args": {"invoice_id": "INV-43"},
    "precondition": {"etag": "8"},
    "preview": "Delete invoice INV-43?",
    "table": (("Invoice", "INV-43"),),
    "code": "K7PB",
    "supersedes": "00" * 16,
    "requester": str(BOB),
    "requester_name": "Bob",
    "conversation": "bot/test:bot:bob",
    "address": Address(channel="test", account="bot", place="bob"),
    "language": "pt",
    "approvers": (str(BOB),),
    "need": 2,
    "votes": (Vote(person=str(BOB), name=None, at=NOW),),
    "state": "approved",
    "reason": "refused",
    "args_digest": "0" * 64,
    "digest": "0" * 64,
    "fence": 1,
    "attempts": 1,
    "tokens": (Token(sha256="0" * 64, intent="confirm"),),
    "prompts": ("m2",),
    "reshown": 1,
    "verb": "delete",
    "remark": "wrong amount",
    "parser_version": "2-def",
    "audit": "0" * 64,
    "after": "resume",
    "ttl_seconds": 901.0,
    "answer_window_seconds": 61.0,
    "requested_at": NOW + timedelta(microseconds=1),
    "shown_at": NOW,
    "shown_in": "instead:telegram:1:-5",
    "expires_at": NOW,
    "detail": "tampered",
    "decided_at": NOW,
    "decided_by": str(BOB),
    "decided_name": "Bob",
    "launched_at": NOW,
    "finished_at": NOW,
    "outcome": "done",
    "run_id": "0" * 32,
    "standins": (str(BOB),),
    "remind_seconds": 60.0,
    "ballots": (Ballot(person=str(BOB), conversation="bot/test:bot:bob"),),
    "again": True,
    "ballot_of": BallotOf(conversation="bot/test:bot:ana", action_id="00" * 16, people=(str(BOB),), need=1),
    "vote": "confirm",
    "plan": "00" * 16,
    "on_item_failure": "stop",
    "replaces": "00" * 16,
    "standing": StandingOffer(code="M3QX", seconds=60.0, uses=2, free=("note",), most=(("amount", "100"),)),
    "allows": True,
    "grant": Grant(given=NOW, until=NOW, used=(Use(action_id="00" * 16, args_digest="00" * 32, at=NOW),)),
    "permission": "00" * 16,
    "place": 2,
    "filed": True,
    "numbered": {"m1": (2, 3)},
    "requester_handle": "ana",
    "approvers_name": "our finance team",
}
WHAT_WAS_ASKED = {
    "pending_action_id",
    "salt",
    "kind",
    "tool_version",
    "args",
    "precondition",
    "preview",
    "table",
    "code",
    "requester",
    "conversation",
    "approvers",
    "need",
    "ttl_seconds",
    "standins",
    "standing",
    "layout",
}


CHANGED = {name: replace(record(), **{name: value}) for name, value in OTHER.items()}
"""Field -> a record with another value of the field."""


def test_every_field_is_changed() -> None:
    assert CHANGED.keys() == {field.name for field in fields(PendingAction)}
    assert [name for name, changed in CHANGED.items() if changed.to_text() == record().to_text()] == []


def test_field_changed_without_the_key_breaks_the_seal() -> None:
    sealed = KEYRING.seal("n", record().to_text())
    assert KEYRING.open("n", sealed) is not None
    forged = {name: {**sealed, "body": changed.to_text()} for name, changed in CHANGED.items()}
    assert [name for name, stored in forged.items() if KEYRING.open("n", stored) is not None] == []


def test_every_field_is_the_same_after_it_was_stored() -> None:
    wrong = [name for name, changed in CHANGED.items() if PendingAction.from_text(changed.to_text()) != changed]
    assert wrong == []


@pytest.mark.ledger("PEND-18")
def test_digest_covers_the_asked_fields_and_never_changes() -> None:
    digest = compute_digest(record())
    assert {name for name, changed in CHANGED.items() if compute_digest(changed) != digest} == WHAT_WAS_ASKED


def test_digest_is_over_all_that_a_permission_may_cover() -> None:
    offer = StandingOffer(code="M3QX", seconds=60.0, uses=2, free=("note",), most=(("amount", "100"),))
    others: list[dict[str, Any]] = [
        {"code": "M3QY"},
        {"seconds": 61.0},
        {"uses": 3},
        {"free": ()},
        {"free": ("note", "customer")},
        {"most": ()},
        {"most": (("amount", "1000"),)},
        {"compared": True},
    ]
    digests = {compute_digest(record(standing=replace(offer, **other))) for other in [{}, *others]}
    assert len(digests) == len(others) + 1


def test_a_sealed_record_opens_under_its_own_name_only() -> None:
    sealed = KEYRING.seal("action/1", "text")
    opened = KEYRING.open("action/1", sealed)
    assert opened is not None and (opened.text, opened.seal) == ("text", sealed["seal"])
    assert KEYRING.open("action/2", sealed) is None


@pytest.mark.parametrize("field", ["form", "seal", "body"])
def test_seal_with_an_edited_or_missing_field_does_not_open(field: str) -> None:
    sealed: dict[str, Any] = dict(KEYRING.seal("action/1", "text"))
    values: list[Any] = [None, "", "é", "\ud800", "0" * 10_000, 1, 3, [], {}, True]
    edited = [{**sealed, field: value} for value in values]
    del sealed[field]
    stored: list[Any] = [*edited, sealed, None, "text", 1, [], {}]
    assert [each for each in stored if KEYRING.open("action/1", each) is not None] == []


@pytest.mark.parametrize("form", [1, FORM - 1, FORM + 1])
def test_record_of_another_form_does_not_open(monkeypatch: pytest.MonkeyPatch, form: int) -> None:
    monkeypatch.setattr(seal, "FORM", form)
    other = KEYRING.seal("action/1", "text")
    assert KEYRING.open("action/1", other) is not None
    monkeypatch.undo()
    assert KEYRING.open("action/1", other) is None
    assert KEYRING.open("action/1", {**other, "form": FORM}) is None


@pytest.mark.parametrize("purpose", ["event", "part", "step"])
def test_a_stamped_body_is_genuine_in_its_own_context_only(purpose: Any) -> None:
    body: dict[str, Any] = {"kind": "decide", "text": "\ud800 é", "many": [1, 2.5, True, None, {"a": 2**70}]}
    stamped = KEYRING.stamped(purpose, "bot/test:bot:ana", body)
    again = json.loads(json.dumps(dict(reversed(stamped.items()))))
    assert KEYRING.is_genuine(purpose, "bot/test:bot:ana", again)
    assert not KEYRING.is_genuine(purpose, "bot/test:bot:eva", stamped)
    assert not KEYRING.is_genuine("record", "bot/test:bot:ana", stamped)
    assert not KEYRING.is_genuine(purpose, "bot/test:bot:ana", body)
    for name in stamped:
        assert not KEYRING.is_genuine(purpose, "bot/test:bot:ana", {**stamped, name: "other"})


def test_a_shortened_mac_is_none() -> None:
    stamped = KEYRING.stamped("event", "c", {"a": 1})
    assert not any(KEYRING.is_genuine("event", "c", {**stamped, "mac": str(stamped["mac"])[:n]}) for n in range(32))


@pytest.mark.parametrize("value", [float("nan"), 2**53 + 1, "\ud800", {"a": [float("inf")]}])
def test_value_outside_canonical_json_has_no_digest(value: Any) -> None:
    with pytest.raises(ValueError, match="canonical JSON"):
        compute_digest(replace(record(), args={"invoice_id": value}))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-9, 9) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
def test_canonical_json_is_that_of_the_standard(value: Any) -> None:
    """The digests of stored questions are taken over these bytes, for any spelling of the value."""
    assert canonical_json(value) == rfc8785.dumps(value)


def test_keys_rotate() -> None:
    old, new = b"the old key, 16 bytes or more", b"the new key, 16 bytes or more"
    before, both = Keyring([old]).seal("n", "text"), Keyring([new, old])
    assert both.open("n", before) is not None
    since = both.seal("n", "text")
    assert Keyring([new]).open("n", since) is not None
    assert Keyring([old]).open("n", since) is None
    assert Keyring([new]).open("n", before) is None


@pytest.mark.parametrize("keys", [[], [b""], [b"fifteen bytes.."], [b"a key of more than 16 bytes", b"short"]])
def test_a_keyring_needs_keys(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        Keyring(keys)


@pytest.mark.ledger("PEND-72", "PEND-12")
def test_the_seeds_digest_over_arguments_alone() -> None:
    nothing = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert compute_args_digest(None) == compute_args_digest({}) == nothing
    invoice = "30e64fe16d9c35d7dea1689837b3dd7e4c4a95c90b71eefec776582e94f00d95"
    assert compute_args_digest({"invoice_id": "INV-42"}) == invoice
    assert compute_args_digest({"a": 1, "b": 2}) == compute_args_digest({"b": 2, "a": 1})
    assert compute_args_digest({"a": "1"}) != compute_args_digest({"a": 1}) != compute_args_digest({"a": True})


@pytest.mark.ledger("PEND-12")
@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1.0, True),  # JSON has one kind of number; the seed told them apart
        (0, -0.0, True),
        (1, 1.5, False),
        (1, True, False),
        (0, False, False),
        (1, "1", False),
        (None, False, False),
        (None, "", False),
        ((1, (2,)), [1, [2]], True),
        ([1, 2], [2, 1], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ("\u00e9", "e\u0301", False),
    ],
)
def test_only_equal_arguments_share_a_digest(one: Any, other: Any, *, same: bool) -> None:
    digests = {compute_args_digest({"value": each}) for each in (one, other)}
    assert len(digests) == (1 if same else 2)
    assert all(len(each) == 64 and int(each, 16) for each in digests)
    assert compute_args_digest({}) not in digests | {compute_args_digest({"value": None})}


@pytest.mark.ledger("PEND-12")
@pytest.mark.parametrize(
    "args",
    [
        {1: "INV-42"},
        {1: "INV-42", "1": "INV-43"},
        {"lines": {1: "a", "b": 2}},
        {"lines": [{None: 1}]},
        {b"invoice_id": "INV-42"},
        {"value": float("nan")},
        {"value": [float("-inf")]},
        {"value": NOW},
        {"value": 2**53},
        {"value": {1, 2}},
        {"value": object()},
    ],
)
def test_arguments_that_are_no_plain_json_have_no_digest(args: Any) -> None:
    """The seed took a key 1 for a key "1", and a date for the same text: two different calls had one digest."""
    with pytest.raises(ValueError, match="canonical JSON"):
        compute_args_digest(args)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(1 - 2**53, 2**53 - 1)
    | st.floats(-1e6, 1e6)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text("abc", max_size=3), json_values, max_size=4), st.randoms(use_true_random=False))
def test_digest_ignores_key_order_and_covers_every_value(args: dict[str, Any], random: Any) -> None:
    shuffled = list(args.items())
    random.shuffle(shuffled)
    digest = compute_digest(record(args=args))
    assert compute_digest(record(args=dict(shuffled))) == digest
    assert compute_digest(record(args={**args, "one more": None})) != digest


def test_record_with_an_unknown_field_is_none() -> None:
    with pytest.raises(ValueError, match="has no later"):
        PendingAction.from_text('{"later": [1], ' + record().to_text()[1:])
