"""The model's arguments: coerced if safe, and refused with every problem named at once."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tools import Tool, ToolValidationError, tool


@tool(param_metadata={"units": {"enum": ["celsius", "fahrenheit"]}})
def get_weather(location: str, units: str = "celsius") -> None:
    """Tell the weather."""


@tool
def everything(
    count: int = 1,
    price: float = 0.0,
    sure: bool = False,
    when: date | None = None,
    mode: Literal["fast", "slow"] = "fast",
    tags: list[str] | None = None,
    scores: list[int] = [],  # noqa: B006
    label: str | int = "",
) -> None:
    """Take everything."""


def refused(made: Tool, **arguments: Any) -> ToolValidationError:
    with pytest.raises(ToolValidationError) as caught:
        made.validate(arguments)
    return caught.value


@pytest.mark.ledger("TOOL-22", "TOOL-25", "ERR-01")
def test_an_error_names_every_problem() -> None:
    error = refused(get_weather, loction="Paris", units="kelvin")
    assert error.tool_name == "get_weather"
    assert {problem.parameter: problem.issue for problem in error.problems} == {
        "loction": "Unexpected parameter(s)",
        "location": "Missing required parameter",
        "units": "'kelvin' is not allowed",
    }


@pytest.mark.ledger("TOOL-23", "TOOL-28", "ERR-10")
def test_every_problem_is_in_one_line() -> None:
    text = str(refused(get_weather, loction="Paris", units="kelvin"))
    assert "\n" not in text
    assert "Did you mean 'location'?" in text
    assert "'celsius' or 'fahrenheit'" in text
    assert text.endswith("(expected: location (required), units)")


@pytest.mark.ledger("TOOL-24")
def test_name_without_a_near_parameter_is_called_invalid() -> None:
    assert "'zzz' is not a valid parameter" in str(refused(get_weather, location="x", zzz=1))


@pytest.mark.ledger("TOOL-26")
def test_a_wrong_type_comes_with_a_way_out() -> None:
    assert "Try: location=str(5)" in str(refused(get_weather, location=5))
    assert "Expected type: integer" in str(refused(everything, count="abc"))
    assert "Expected type: array of string or null" in str(refused(everything, tags="abc"))


@pytest.mark.ledger("TOOL-27")
def test_choices_are_checked() -> None:
    assert "Did you mean 'celsius'?" in str(refused(get_weather, location="Paris", units="Celsius"))
    assert "'fast' or 'slow'" in str(refused(everything, mode="x"))


@pytest.mark.ledger("TOOL-29", "TOOL-31")
@pytest.mark.parametrize(
    ("name", "value", "checked"),
    [
        ("count", "42", 42),
        ("count", 42.0, 42),
        ("price", "1.5", 1.5),
        ("price", 3, 3.0),
        ("sure", "yes", True),
        ("sure", " On ", True),
        ("sure", "1", True),
        ("sure", "TRUE", True),
        ("sure", "off", False),
        ("sure", "no", False),
        ("when", "2026-11-21", "2026-11-21"),
        ("label", "42", "42"),
        ("label", 42, 42),
        ("scores", ["1", 2], [1, 2]),
        ("count", None, 1),
        ("tags", None, None),
    ],
)
def test_safe_values_are_coerced(name: str, value: Any, checked: Any) -> None:
    result = everything.validate({name: value})[name]
    assert (result, type(result)) == (checked, type(checked))


@pytest.mark.ledger("TOOL-30", "TOOL-31")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("count", True),
        ("count", "4.5"),
        ("count", 4.5),
        ("price", False),
        ("price", "x"),
        ("price", float("nan")),
        ("price", float("inf")),
        ("sure", "maybe"),
        ("sure", 2),
        ("when", "tomorrow"),
        ("scores", [1, True]),
        ("tags", [1]),
        ("label", {"a": 1}),
    ],
)
def test_value_that_cannot_be_coerced_is_refused(name: str, value: Any) -> None:
    error = refused(everything, **{name: value})
    (problem,) = error.problems
    assert problem.parameter.startswith(name)


def test_a_problem_inside_a_value_is_named_by_its_place() -> None:
    assert [problem.parameter for problem in refused(everything, scores=[1, "x"]).problems] == ["scores[1]"]


def test_none_for_a_required_parameter_is_refused() -> None:
    (problem,) = refused(get_weather, location=None).problems
    assert problem.parameter == "location"


@pytest.mark.ledger("TOOL-32")
def test_validation_fills_in_defaults_and_keeps_the_input() -> None:
    given_arguments = {"location": "Paris"}
    assert get_weather.validate(given_arguments) == {"location": "Paris", "units": "celsius"}
    assert given_arguments == {"location": "Paris"}


@pytest.mark.ledger("TOOL-37", "TOOL-54")
def test_model_cannot_give_an_injected_parameter() -> None:
    @tool(injected_kwargs={"db_connection": object()})
    def query_db(sql: str, db_connection: object) -> None:
        """Query."""

    assert "Unexpected parameter(s)" in str(refused(query_db, sql="x", db_connection="mine"))


@given(
    st.dictionaries(
        st.sampled_from([*everything.parameters["properties"], "other"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
            max_leaves=5,
        ),
    )
)
def test_checking_is_total_and_settles(arguments: dict[str, Any]) -> None:
    try:
        checked = everything.validate(arguments)
    except ToolValidationError as error:
        assert error.problems
    else:
        assert everything.validate(checked) == checked
