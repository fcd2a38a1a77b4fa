"""What a random history of a store is made of."""

from __future__ import annotations

from typing import Any, Literal

from hypothesis import strategies as st

from gateway.store.base import FORM, Kind
from gateway.testing.store_contract.plain import BURST

__all__ = ["KEPT", "KINDS", "PASSES", "SORTS", "Doom", "Rest", "Step", "Way", "histories"]

KINDS: tuple[Kind, ...] = ("turn", "action", "out")
PASSES = 60.0
"""Seconds of each step of time; what is set for a moment is set for one between two of them."""
SOON, LATER, KEPT = 30.0, 90.0, 100.0

Rest = Literal["due", "collect_until"] | None
Doom = Literal["expect", "not_after", "consume", "unpoint", "leave", "replace"]
Way = Literal["consume", "unpoint", "leave", "replace"]
SORTS: dict[str, dict[str, bool]] = {
    "message": {},
    "collects": {"collects": True},
    "decides": {"decides": True},
    "decides, collects": {"decides": True, "collects": True},
    "decides quietly": {"decides": True, "wakes": False},
    "quiet": {"wakes": False},
}

ab = st.sampled_from("ab")
few = st.integers(0, 3)
sorts = st.sampled_from(list(SORTS))
moments = st.sampled_from([SOON, LATER])
RULES: dict[str, st.SearchStrategy[Any]] = {
    # what comes in
    "accept": st.tuples(ab, sorts, st.integers(0, 5), st.booleans()),
    "queue": st.tuples(ab, few),
    "launch": st.tuples(ab),
    "signal": st.tuples(ab),
    # leases
    "lease": st.tuples(
        st.sampled_from([KINDS, *((kind,) for kind in KINDS)]),
        st.sampled_from([None, None, "a", "b"]),
        st.sampled_from("ab"),
        st.sampled_from([FORM, FORM, FORM + 1]),
        st.booleans(),
    ),
    "work": st.tuples(few, few, st.booleans()),
    "finish": st.tuples(
        few, st.sampled_from(["done", "failed"]), few, st.sampled_from([None, None, "due", "collect_until"]), moments
    ),
    "leave": st.tuples(few),
    "renew": st.tuples(few),
    "die": st.tuples(few),
    "zombie": st.tuples(few),
    "give_up": st.just(()),
    # decisions and what is sent without a lease
    "decide": st.tuples(ab, few, st.sampled_from(["consume", "unpoint", "leave", "replace"])),
    "send": st.tuples(ab, few),
    # time
    "pass_time": st.just(()),
    "set_timer": st.tuples(ab, sorts, moments),
    "cancel": st.tuples(ab),
    # what is kept
    "put": st.tuples(ab, st.booleans()),
    "delete": st.tuples(ab),
    "append": st.tuples(ab),
    "read": st.tuples(ab, few, st.sampled_from([None, 0, 1, 3])),
    "take": st.tuples(st.integers(1, BURST)),
    "bury": st.tuples(ab, st.booleans(), st.integers(0, 5)),
    "replay": st.tuples(ab),
    "drop": st.tuples(ab),
    "check": st.just(()),
    # what comes to nothing
    "doom": st.tuples(st.sampled_from(["expect", "not_after", "consume", "unpoint", "leave", "replace"])),
}
Step = tuple[str, tuple[Any, ...]]


def histories(*often: str) -> st.SearchStrategy[list[Step]]:
    """Long ones, of all rules; a failing one is shrunk to the steps that matter."""
    rules = [st.tuples(st.just(name), RULES[name]) for name in (*RULES, *often)]
    drawn = st.lists(st.none() | st.one_of(rules), min_size=30, max_size=50)
    return drawn.map(lambda steps: [step for step in steps if step is not None])
