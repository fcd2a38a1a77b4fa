"""Checks of values by a schema: the same as in the library, and in linear time."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema.validators import Draft202012Validator

from gateway.structured import extract_json
from gateway.structured.json_schema import checked, faults, found_faults

SCALARS = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0, 1.5, "", "a", "1", "xa"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abxy"), inner)
)
SCHEMAS: list[dict[str, Any]] = [
    {"uniqueItems": True},
    {"items": {"uniqueItems": True}, "uniqueItems": False},
    {"pattern": "^x|a$"},
    {"items": {"pattern": "[0-9]+"}},
    {"patternProperties": {"^[ab]": {"type": "integer"}, "x": {"type": "string"}}},
    {"patternProperties": {"^[ab]": {}}, "additionalProperties": False},
    {"properties": {"a": {}}, "additionalProperties": {"type": "integer"}},
    {"properties": {"a": {}, "b": {"uniqueItems": True}}, "additionalProperties": False},
    {"additionalProperties": True},
]


@given(value=VALUES)
def test_a_value_fits_as_in_the_library(value: Any) -> None:
    for schema in SCHEMAS:
        assert bool(faults(checked(schema), value)) == (not Draft202012Validator(schema).is_valid(value)), schema


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"pattern": "^(?=a)b"}, r"pattern that cannot be searched in linear time: '\^\(\?=a\)b'"),
        ({"properties": {"a": {"pattern": r"(a)\1"}}}, "without references to its own groups"),
        ({"patternProperties": {"(?<!a)b": {}}}, "pattern that cannot be searched"),
        ({"patternProperties": {"a": {}}, "unevaluatedProperties": False}, "leave one of them out"),
    ],
)
def test_a_pattern_without_a_linear_search_is_refused(schema: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        checked(schema)


def test_a_pattern_inside_values_is_not_checked() -> None:
    schema: Any = {
        "enum": [{"pattern": "("}],
        "properties": {"pattern": {"type": "string"}},
        "default": {"pattern": "(?=)"},
    }
    assert checked(schema) == schema


KILOBYTES_64 = 65_536
COSTLY: list[tuple[dict[str, Any], Any]] = [
    *(({"pattern": pattern}, "a" * KILOBYTES_64 + "!") for pattern in ("^(a+)+$", "(a|a)*b", "^(a|aa)+$", "(.*)*x")),
    ({"uniqueItems": True}, [{"a": number, "b": [number, 1.5]} for number in range(3000)]),
    ({"patternProperties": {"^(a+)+$": False}}, {"a" * KILOBYTES_64 + "!": 1}),
]
UNITS = ("```\n", "```json\n ", "{", "[", '{"', "[1,", "```\n{", "```\n\n", "```\n[1")


def test_no_text_of_64_kilobytes_takes_long() -> None:
    """The time for a text grows linearly."""
    slow: list[object] = []
    for schema, value in COSTLY:
        began = time.process_time()
        faults(checked(schema), value)
        if time.process_time() - began > 0.25:
            slow.append(schema)
    for unit in UNITS:
        began = time.process_time()
        extract_json((unit * KILOBYTES_64)[:KILOBYTES_64])
        if time.process_time() - began > 0.25:
            slow.append(unit)
    assert slow == []


WORK: list[tuple[Any, Any]] = [
    ({"items": {"enum": list(range(5_000))}}, [6_000] * 10_000),
    ({"items": {"enum": [f"name {number}" for number in range(250)]}}, ["name 3"] * 9_900),
    ({"allOf": [{"uniqueItems": True}] * 250}, list(range(24_000))),
    ({"allOf": [{"required": [f"name {number}" for number in range(2_000)]}] * 500}, {}),
    ({"multipleOf": 0.01}, 10**309),
    ({"const": list(range(20_000))}, list(range(20_000))),
]


@pytest.mark.parametrize(("schema", "value"), WORK, ids=lambda part: str(part)[:30])
def test_work_of_a_schema_is_bounded(schema: Any, value: Any) -> None:
    """The work on the loop is under 100 ms: see docs/threats.md."""
    least = min(timed(schema, value) for _ in range(3))
    assert least < 0.1


def timed(schema: Any, value: Any) -> float:
    began = time.process_time()
    found_faults(schema, value)
    return time.process_time() - began


@pytest.mark.parametrize(
    ("choices", "value", "fits"),
    [
        ([1], True, False),
        ([1], 1.0, True),
        ([{"a": 1}], {"a": 1.0}, True),
        ([0], False, False),
        (["x"], "x", True),
    ],
)
def test_choices_are_compared_as_json(choices: Any, value: Any, fits: bool) -> None:
    assert (found_faults({"enum": choices}, value) == []) is fits


def test_faults_of_a_value_are_few_and_short() -> None:
    found = found_faults({"items": {"enum": list(range(100))}}, ["x"] * 500)
    assert len(found) == 20
    assert found[0].message == "'x' is not one of the 100 choices"
