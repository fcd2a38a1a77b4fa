"""Calls in pieces: the same calls as the model made, or none of them; never other arguments."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st

from gateway.providers.base import ToolCall
from gateway.providers.calls import DOUBTFUL, CallAssembler

Piece = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """The form of the calls of a reply from a server."""

    index: Literal["own", "none", "zero", "drifts", "back"]
    ids: Literal["first", "each", "none", "same"]
    names: Literal["first", "each"]
    order: Literal["in turn", "first pieces first", "mixed"]
    whole: bool
    as_object: bool
    twice: bool
    empty: Literal["", "{}"]

    @property
    def is_ordered(self) -> bool:
        """True if an index or an id gives the place of each piece, or the place is certain."""
        return self.index == "own" or self.ids == "each"


ARGS = st.dictionaries(
    st.sampled_from(["customer", "days"]), st.one_of(st.sampled_from(["Ana", "Bob", '"}{', ""]), st.integers(0, 30))
)
CALLS = st.lists(st.tuples(st.sampled_from(["purge", "purge_all", "export"]), ARGS), min_size=1, max_size=4)
SHAPES = st.builds(
    Shape,
    index=st.sampled_from(["own", "none", "zero", "drifts", "back"]),
    ids=st.sampled_from(["first", "each", "none", "same"]),
    names=st.sampled_from(["first", "each"]),
    order=st.sampled_from(["in turn", "first pieces first", "mixed"]),
    whole=st.booleans(),
    as_object=st.booleans(),
    twice=st.booleans(),
    empty=st.sampled_from(["", "{}"]),
)


def pieces(calls: list[tuple[str, dict[str, Any]]], shape: Shape, data: st.DataObject) -> list[Piece]:
    """Return the pieces of these calls from a server of this shape."""
    rows = []
    for number, (name, args) in enumerate(calls):
        text = json.dumps(args) if args else shape.empty
        if shape.as_object and args:
            texts: list[Any] = [args]
        elif shape.whole:
            texts = [text]
        else:
            cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=3)))
            texts = ["", *(text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True))]
        rows.append([_piece(number, name, place == 0, text, shape) for place, text in enumerate(texts)])
        if shape.twice and len(texts) == 1 and shape.ids in ("first", "each"):
            rows[-1] *= 2
    if shape.order == "first pieces first":
        return [row[0] for row in rows] + [piece for row in rows for piece in row[1:]]
    if shape.order == "mixed":
        mixed = []
        while any(rows):
            mixed.append(data.draw(st.sampled_from([row for row in rows if row])).pop(0))
        return mixed
    return [piece for row in rows for piece in row]


def _piece(number: int, name: str, first: bool, text: object, shape: Shape) -> Piece:
    index = {"own": number, "none": None, "zero": 0, "drifts": 0 if first else number, "back": number if first else 0}
    return {
        "index": index[shape.index],
        "call_id": {"first": f"c{number}" if first else None, "each": f"c{number}", "none": None, "same": "c"}[
            shape.ids
        ]
        if first or shape.ids != "same"
        else None,
        "name": name if first or shape.names == "each" else None,
        "arguments": text,
    }


def assembled(sent: list[Piece], *, ended: bool = True) -> tuple[ToolCall, ...]:
    calls = CallAssembler()
    for piece in sent:
        calls.add(**piece)
    return calls.calls("answer", ended=ended)


def named(calls: list[tuple[str, dict[str, Any]]]) -> Counter[str]:
    return Counter(json.dumps(call) for call in calls)


@given(calls=CALLS, shape=SHAPES, data=st.data())
def test_any_shape_gives_the_same_calls_or_none(
    calls: list[tuple[str, dict[str, Any]]], shape: Shape, data: st.DataObject
) -> None:
    if shape.ids == "same":  # an id owns its pieces, so calls with one id must not be mixed
        shape = replace(shape, order="in turn")
    sent = pieces(calls, shape, data)
    got = assembled(sent)
    usable = [(call.name, dict(call.args)) for call in got if call.parse_error is None]
    assert not named(usable) - named(calls), (sent, got)
    assert len({call.call_id for call in got}) == len(got)
    if usable and shape.ids != "same":  # an id owns its pieces, so a call without arguments may be taken for a begin
        assert {*named(usable)} == {*named(calls)} or any(call.parse_error for call in got), (sent, got)
    full = {name for name, args in calls if args}
    unclear = shape.empty == "" and any(name in full for name, args in calls if not args)
    if shape.index == "own" and shape.ids == "first" and shape.order == "in turn" and not unclear:
        assert usable == calls, (sent, got)


def piece(
    index: int | None = None, call_id: str | None = None, name: str | None = None, arguments: object = None
) -> Piece:
    return {"index": index, "call_id": call_id, "name": name, "arguments": arguments}


ANA, BOB = '{"customer": "Ana"}', '{"customer": "Bob"}'
ALIKE = [("purge", {"customer": "Ana"}), ("purge", {"customer": "Bob"})]
SENT: dict[str, tuple[list[Piece], list[tuple[str, dict[str, Any]]]]] = {
    "the second call begins on the first index": (
        [
            piece(0, "c1", "purge", ""),
            piece(0, None, None, ANA),
            piece(0, "c2", "purge", ""),
            piece(1, None, None, BOB),
        ],
        ALIKE,
    ),
    "no index": (
        [piece(None, "c1", "purge", ""), piece(None, None, None, '{"cus'), piece(None, None, None, 'tomer": "Ana"}')],
        ALIKE[:1],
    ),
    "one index, and no id behind the first call": (
        [piece(0, "c1", "purge", ANA), piece(0, "c2", "purge", '{"cus'), piece(0, None, None, 'tomer": "Bob"}')],
        ALIKE,
    ),
    "id and name in each piece": (
        [piece(0, "c1", "purge", ""), piece(0, "c1", "purge", '{"cus'), piece(0, "c1", "purge", 'tomer": "Ana"}')],
        ALIKE[:1],
    ),
    "the name in each piece, and no id at all": ([piece(0, None, "purge", ANA), piece(0, None, "purge", BOB)], ALIKE),
    "the call twice": ([piece(0, "c1", "purge", ANA), piece(0, "c1", "purge", ANA)], ALIKE[:1]),
    "an object": ([piece(0, "c1", "purge", {"customer": "Ana"})], ALIKE[:1]),
    "the id behind the name": ([piece(0, None, "purge"), piece(0, "c1"), piece(0, None, None, ANA)], ALIKE[:1]),
    "the name behind the id": ([piece(0, "c1"), piece(0, None, "purge"), piece(0, None, None, ANA)], ALIKE[:1]),
    "two calls of one id": ([piece(0, "c", "purge", ANA), piece(1, "c", "purge", BOB)], ALIKE),
    "no arguments": ([piece(0, "c1", "purge", ""), piece(1, "c2", "export", "{}")], [("purge", {}), ("export", {})]),
    "blank pieces": ([piece(0, "c1", "purge", ANA), piece(0, None, None, ""), piece(None)], ALIKE[:1]),
}
IN_DOUBT: dict[str, list[Piece]] = {
    "two calls wait for their arguments, and no index tells": [
        piece(None, "c1", "purge", ""),
        piece(None, "c2", "purge", ""),
        piece(None, None, None, ANA),
        piece(None, None, None, BOB),
    ],
    "the arguments of the second come on the index of the first": [
        piece(0, "c1", "export", ""),
        piece(1, "c2", "purge", ""),
        piece(0, None, None, BOB),
    ],
    "two values in one text": [piece(0, "c1", "purge", ""), piece(0, None, None, ANA), piece(0, None, None, BOB)],
    "arguments before any call": [piece(0, None, None, ANA), piece(0, "c1", "purge", "")],
    "a name in two pieces": [piece(0, None, "purge"), piece(0, None, "_all"), piece(0, None, None, ANA)],
    "another name for a known id": [piece(0, "c1", "purge", '{"cus'), piece(0, "c1", "export", 'tomer": "Ana"}')],
    "an id for one call of two": [piece(0, "c1", "purge", ANA), piece(1, None, "export", BOB)],
    "a new id in each piece": [piece(0, "c1", "purge", '{"cus'), piece(0, "c2", None, 'tomer": "Ana"}')],
}


def test_deviations_with_a_clear_meaning_give_the_calls() -> None:
    wrong = {}
    for what, (sent, calls) in SENT.items():
        got = assembled(sent)
        if [(call.name, call.args, call.parse_error) for call in got] != [(*call, None) for call in calls]:
            wrong[what] = got
    assert not wrong


def test_no_call_of_a_doubtful_reply_is_used() -> None:
    used = {}
    for what, sent in IN_DOUBT.items():
        got = assembled(sent)
        if {call.parse_error for call in got} != {DOUBTFUL}:
            used[what] = got
    assert not used


def test_no_arguments_count_only_behind_a_known_end() -> None:
    sent = [piece(0, "c1", "purge", ""), piece(1, "c2", "export", ANA)]
    first, second = assembled(sent, ended=False)
    assert first.parse_error is not None and "no known end" in first.parse_error
    assert (second.args, second.parse_error) == ({"customer": "Ana"}, None)


def test_no_arguments_do_not_count_beside_broken_ones() -> None:
    first, second = assembled([piece(0, "c1", "purge", ""), piece(1, "c2", "export", '{"cus')])
    assert first.parse_error and second.parse_error


def test_the_call_that_the_limit_cut_off_says_so() -> None:
    calls = CallAssembler()
    calls.add(index=0, call_id="c1", name="purge", arguments=ANA)
    calls.add(index=1, call_id="c2", name="purge", arguments='{"cus')
    whole, cut = calls.calls("answer", ended=False, cut=True)
    assert whole.parse_error is None
    assert cut.parse_error is not None and "cut off at the limit" in cut.parse_error
