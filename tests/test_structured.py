"""The schema of an answer, and the JSON found in a text."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from gateway.structured import (
    build_schema_instruction,
    extract_json,
    parse_and_validate,
    schema_from_response_format,
    validation_retry_message,
)


class Label(BaseModel):
    label: Literal["positive", "negative"]
    score: float


WITH_A: dict[str, Any] = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "minimum": 0}}}


@pytest.mark.ledger("OUT-06")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            'Here is the analysis: ```json\n{"label": "positive", "score": 0.95}\n```',
            '{"label": "positive", "score": 0.95}',
        ),
        ("[1, 2]", "[1, 2]"),
        ('first {braces}, then {"a": "} b"} and {"c": 1}', '{"a": "} b"}'),
        ('the example {"a": 1} and the answer\n```\n{"a": 2}\n```', '{"a": 2}'),
        ('```python\nx = {"a": 1}\n```', '{"a": 1}'),
        ('{"a": "```"}', '{"a": "```"}'),
        ("nothing here", None),
        ("", None),
        ('{"items": [{"a": 1}, {"a": 2', None),
        ('{"a": NaN}', None),
        ("[" * 100_000, None),
        ('{"a":' * 100_000, None),
        ("[see " * 100_000, None),
    ],
)
def test_the_first_json_value_of_a_text_is_found(text: str, found: str | None) -> None:
    assert extract_json(text) == found


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(JSON, max_size=4) | st.dictionaries(st.text(), JSON, max_size=4),
    st.sampled_from(["", "So: ", "```json\n", "{see}: "]),
)
def test_a_value_is_found_behind_any_beginning(value: Any, before: str) -> None:
    found = extract_json(f"{before}{json.dumps(value)} That is all.")
    assert found is not None and json.loads(found) == value


@given(st.text(alphabet='{}[]",:`\n0an '))
def test_any_text_gives_json_or_none(text: str) -> None:
    found = extract_json(text)
    assert found is None or isinstance(json.loads(found), dict | list)


@pytest.mark.ledger("OUT-03", "OUT-08", "OUT-11")
def test_a_model_converts_types_as_for_json() -> None:
    read = parse_and_validate('Sure: {"label": "positive", "score": "0.95"}', Label)
    assert read == Label(label="positive", score=0.95)
    for text in ("nothing here", '{"label": "positive"', '{"label": "strange", "score": 1}'):
        with pytest.raises(ValueError, match=r"no JSON|label"):
            parse_and_validate(text, Label)


@pytest.mark.ledger("OUT-10")
def test_a_json_schema_is_really_validated() -> None:
    assert parse_and_validate('{"a": 1}', WITH_A) == {"a": 1}
    assert parse_and_validate('like {"b": 1}, so {"a": 2}', WITH_A) == {"a": 2}, "the first valid one"
    with pytest.raises(ValueError, match="'a' is a required property"):
        parse_and_validate('{"b": 1}', WITH_A)
    with pytest.raises(ValueError, match="a: -1 is less than the minimum of 0"):
        parse_and_validate('{"a": -1}', WITH_A)
    with pytest.raises(ValueError, match="and 3 more"):
        parse_and_validate(json.dumps(["x"] * 8), {"type": "array", "items": {"type": "integer"}})


@pytest.mark.ledger("OUT-01", "OUT-07")
def test_a_response_format_gives_its_schema() -> None:
    assert schema_from_response_format(Label)["required"] == ["label", "score"]
    assert schema_from_response_format(WITH_A) == WITH_A
    for neither in (str, "object", Label(label="positive", score=1.0), 5, None):
        with pytest.raises(TypeError, match="response_format is a pydantic model or a JSON Schema, not"):
            schema_from_response_format(neither)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"type": "strange"}, "no JSON Schema: type: 'strange'"),
        ({"$ref": "#"}, "leads back to itself"),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}}, "leads nowhere"),
        ({"$ref": "http://127.0.0.1:9/schema.json"}, "leads nowhere"),
        ({"minimum": float("nan")}, "NaN|not JSON"),
        ({"enum": {1, 2}}, "no JSON"),
    ],
)
def test_a_wrong_schema_is_refused(schema: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault.replace("$", r"\$")):
        schema_from_response_format(schema)


def test_a_schema_may_contain_itself() -> None:
    tree: dict[str, Any] = {
        "$defs": {
            "node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"type": "integer"}}}
        },
        "$ref": "#/$defs/node",
    }
    assert parse_and_validate('{"n": 1, "next": {"n": 2}}', tree) == {"n": 1, "next": {"n": 2}}
    with pytest.raises(ValueError, match=r"next\.n: 'x' is not of type 'integer'"):
        parse_and_validate('{"next": {"n": "x"}}', tree)


@pytest.mark.ledger("OUT-09")
def test_the_model_is_told_the_schema_and_its_fault() -> None:
    instruction = build_schema_instruction(WITH_A)
    assert json.loads(instruction.partition("\n")[2]) == WITH_A
    assert "a: -1 is less" in validation_retry_message("a: -1 is less than the minimum of 0")
