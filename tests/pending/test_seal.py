"""The digest freezes what was asked; the seal holds every field of what it has become."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import Address
from gateway.pending.seal import Keyring, compute_digest
from gateway.tools.action import PendingAction, Token, Vote, compute_args_digest
from tests.pending.records import BOB, KEYRING, NOW, record

OTHER: dict[str, Any] = {
    "pending_action_id": "00" * 16,
    "kind": "delete_customer",
    "tool_version": "w",
    "args": {"invoice_id": "INV-43"},
    "precondition": {"etag": "8"},
    "preview": "Delete invoice INV-43?",
    "table": (("Invoice", "INV-43"),),
    "code": "K7PB",
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
    "seal": "0" * 64,
    "schema": 0,
    "fence": 1,
    "attempts": 1,
    "tokens": (Token(sha256="0" * 64, intent="confirm"),),
    "prompts": ("m2",),
    "reshown": 1,
    "parser_version": "2-def",
    "audit": "0" * 64,
    "after": "resume",
    "ttl_seconds": 901.0,
    "answer_window_seconds": 61.0,
    "requested_at": NOW + timedelta(microseconds=1),
    "shown_at": NOW,
    "expires_at": NOW,
    "answer_until": NOW,
    "decided_at": NOW,
    "decided_by": str(BOB),
    "decided_name": "Bob",
    "launched_at": NOW,
    "finished_at": NOW,
    "outcome": "done",
}
WHAT_WAS_ASKED = {
    "pending_action_id",
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
    "schema",
}


def test_a_sealed_record_holds_also_after_it_was_stored() -> None:
    sealed = KEYRING.seal(record())
    assert KEYRING.holds(sealed)
    assert KEYRING.holds(PendingAction.from_json(sealed.to_json()))


@pytest.mark.parametrize("name", [field.name for field in fields(PendingAction)])
def test_whoever_changes_a_field_without_the_key_breaks_the_seal(name: str) -> None:
    sealed = KEYRING.seal(record())
    forged = replace(sealed, **{name: OTHER[name]})
    assert forged != sealed
    assert not KEYRING.holds(forged)
    with_its_digest = replace(forged, digest=compute_digest(forged))
    assert with_its_digest == sealed or not KEYRING.holds(with_its_digest)


@pytest.mark.ledger("PEND-18")
@pytest.mark.parametrize("name", [field.name for field in fields(PendingAction)])
def test_the_digest_is_over_what_was_asked_and_never_changes(name: str) -> None:
    changed = compute_digest(replace(record(), **{name: OTHER[name]})) != compute_digest(record())
    assert changed == (name in WHAT_WAS_ASKED)


def test_a_seal_of_one_record_is_none_of_another() -> None:
    one, other = KEYRING.seal(record()), record(pending_action_id="00" * 16)
    assert not KEYRING.holds(replace(other, seal=one.seal))


@pytest.mark.parametrize("seal", ["", "é", "\ud800", "0" * 10_000])
def test_nonsense_for_a_seal_is_no_seal(seal: str) -> None:
    assert not KEYRING.holds(replace(record(), seal=seal))
    assert not KEYRING.holds(replace(KEYRING.seal(record()), digest=seal))


@pytest.mark.parametrize("value", [float("nan"), 2**53 + 1, "\ud800", {"a": [float("inf")]}])
def test_what_canonical_json_cannot_hold_is_never_held(value: Any) -> None:
    forged = replace(KEYRING.seal(record()), args={"invoice_id": value})
    assert not KEYRING.holds(forged)
    with pytest.raises(ValueError, match="canonical JSON"):
        compute_digest(forged)


def test_keys_rotate() -> None:
    old, new = b"the old key, 16 bytes or more", b"the new key, 16 bytes or more"
    sealed_before = Keyring([old]).seal(record())
    both = Keyring([new, old])
    assert both.holds(sealed_before)
    sealed_since = both.seal(sealed_before)
    assert Keyring([new]).holds(sealed_since)
    assert not Keyring([old]).holds(sealed_since)
    assert not Keyring([new]).holds(sealed_before)


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
def test_the_order_of_keys_makes_no_difference_and_every_value_does(args: dict[str, Any], random: Any) -> None:
    shuffled = list(args.items())
    random.shuffle(shuffled)
    sealed = KEYRING.seal(record(args=args))
    assert KEYRING.holds(replace(sealed, args=dict(shuffled)))
    assert not KEYRING.holds(replace(sealed, args={**args, "one more": None}))
