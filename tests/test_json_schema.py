"""Checks of values by a schema: the same as in the library, and in linear time."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema.validators import Draft202012Validator

from gateway.structured import extract_json
from gateway.structured.json_schema import checked, faults

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
