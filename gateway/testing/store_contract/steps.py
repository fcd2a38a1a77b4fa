"""The steps of random histories of a store."""

from __future__ import annotations

from typing import Any, Literal

from hypothesis import strategies as st

from gateway.store.types import Kind
from gateway.testing.store_contract.plain import BURST

KINDS: tuple[Kind, ...] = ("turn", "action", "out")
PASSES = 60.0
"""Seconds of each step of time. Other moments are between two steps."""
SOON, LATER, KEPT = 30.0, 90.0, 100.0

Rest = Literal["due", "collect_until"] | None
Doom = Literal["expect", "not_after", "consume", "drop_pointers", "replace"]
Way = Literal["consume", "drop_pointers", "replace"]
SORTS: dict[str, dict[str, Any]] = {
    "message": {},
    "collects": {"collects": True},
    "decides": {"decides": True},
    "decides, collects": {"decides": True, "collects": True},
    "decides quietly": {"decides": True, "wakes": False},
    "quiet": {"wakes": False},
    "about": {"wakes": False, "about": "this"},
}

ab = st.sampled_from("ab")
few = st.integers(0, 3)
sorts = st.sampled_from(["message", "message", *SORTS])
moments = st.sampled_from([SOON, LATER])


def leases(*kinds: Kind) -> st.SearchStrategy[Any]:
    """Return a strategy for leases of all of these kinds or of one."""
    return st.tuples(
        st.sampled_from([kinds, *((kind,) for kind in kinds)]),
        st.sampled_from([None, None, None, "a", "b"]),
        st.sampled_from("ab"),
        st.sampled_from([False, False, True]),
    )


Rules = dict[str, st.SearchStrategy[Any]]
HOLDING: Rules = {
    "work": st.tuples(few, few, st.booleans()),
    "finish": st.tuples(
        few,
        st.sampled_from(["done", "failed"]),
        st.sampled_from([0, 0, 1, 3]),
        st.sampled_from([None, None, None, "due", "collect_until"]),
        moments,
    ),
    "renew": st.tuples(few),
    "die": st.tuples(few),
    "zombie": st.tuples(few),
    "give_up": st.just(()),
    "pass_time": st.tuples(st.sampled_from([PASSES, PASSES, PASSES, 11 * PASSES])),
}
TURNS: Rules = HOLDING | {
    "accept": st.tuples(ab, sorts, st.integers(0, 5), st.booleans()),
    "decide": st.tuples(ab, few, st.sampled_from(["consume", "drop_pointers", "replace"])),
    "signal": st.tuples(ab, st.integers(1, 2)),
    "lease": leases("turn"),
}
OTHERS: Rules = HOLDING | {
    "queue": st.tuples(ab, few),
    "send": st.tuples(ab, few),
    "launch": st.tuples(ab),
    "lease": leases("out", "action"),
}
KEEPING: Rules = {
    "accept": TURNS["accept"],
    "pass_time": st.tuples(st.sampled_from([PASSES, PASSES, PASSES, 11 * PASSES])),
    "put": st.tuples(ab, st.booleans()),
    "delete": st.tuples(ab),
    "append": st.tuples(ab),
    "cut": st.tuples(ab, st.none() | few, st.integers(0, 2), st.booleans()),
    "read": st.tuples(ab, few, st.sampled_from([None, 0, 1, 3])),
    "take": st.tuples(st.integers(1, BURST)),
    "set_timer": st.tuples(ab, sorts, moments),
    "cancel": st.tuples(ab),
    "bury": st.tuples(ab, st.booleans(), st.integers(0, 5)),
    "replay": st.tuples(ab),
    "drop": st.tuples(ab),
    "doom": st.tuples(st.sampled_from(["expect", "not_after", "consume", "drop_pointers", "replace"])),
    "check": st.just(()),
}
ALL: Rules = TURNS | OTHERS | KEEPING | {"lease": leases(*KINDS)}
Step = tuple[str, tuple[Any, ...]]


def histories(rules: Rules) -> st.SearchStrategy[list[Step]]:
    """Return a strategy for long histories. Hypothesis shrinks a failing one to its relevant steps."""
    often = (
        "accept",
        "accept",
        "queue",
        "launch",
        "lease",
        "lease",
        "lease",
        "lease",
        "append",
    )  # most steps need work
    names = [*rules, *(name for name in often if name in rules)]
    steps = st.one_of([st.tuples(st.just(name), rules[name]) for name in names])
    drawn = st.lists(st.none() | steps, min_size=30, max_size=50)
    return drawn.map(lambda steps: [step for step in steps if step is not None])


COLLECTING: Rules = {
    "accept": st.tuples(ab, st.sampled_from(list(SORTS)), st.integers(0, 99), st.just(False)),
    "decide": st.tuples(ab, few, st.just("drop_pointers")),
    "lease": leases("turn"),
    "finish": st.tuples(few, st.just("done"), st.sampled_from([0, 0, 1]), st.just("collect_until"), moments),
    "pass_time": st.tuples(st.sampled_from([PASSES, PASSES, PASSES, 11 * PASSES])),
}
POOLS: Rules = {name: OTHERS[name] for name in ("queue", "finish", "die")} | {"lease": leases("out")}
HISTORIES = st.one_of([histories(rules) for rules in (TURNS, OTHERS, KEEPING, COLLECTING, POOLS, ALL)])
"""Histories of a few rules, which interact often, and of all rules."""
