"""Tools described by a JSON Schema: checked, shown, hashed and judged as tools described by a signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

import gateway.structured.json_schema  # noqa: F401 - its library reads files when it is loaded, which no event loop waits for
from gateway import ToolParameter
from gateway.testing import run_tool
from gateway.tools import Confirm, Preview, Tool, ToolContext, ToolPolicy, ToolValidationError, permission, tool

ORDER: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "sku": {"type": "string"},
        "count": {"type": "integer", "minimum": 1, "default": 1},
        "speed": {"enum": ["fast", "slow"]},
        "to": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["sku"],
    "additionalProperties": False,
}


async def echo(**arguments: Any) -> dict[str, Any]:
    return arguments


def made(parameters: Mapping[str, Any] | Sequence[ToolParameter] = ORDER, **options: Any) -> Tool:
    return Tool.from_schema("order", "Order a thing.", parameters, options.pop("function", echo), **options)


def refused(arguments: Mapping[str, Any]) -> Mapping[str, str]:
    with pytest.raises(ToolValidationError) as caught:
        made().validate(arguments)
    return {problem.parameter: f"{problem.issue} {problem.suggestion}".strip() for problem in caught.value.problems}


@pytest.mark.ledger("TOOL-01", "TOOL-21")
async def test_parameters_by_hand_make_the_schema_of_a_signature() -> None:
    @tool
    async def order(sku: str, count: int, tags: list[str]) -> str:
        """Order a thing."""
        return f"{count} {sku} {tags}"

    by_hand = Tool.from_schema(
        "order",
        "Order a thing.",
        [
            ToolParameter("sku", str, "Parameter 'sku'"),
            ToolParameter("count", int, "Parameter 'count'"),
            ToolParameter("tags", "array", "Parameter 'tags'", element_type=str),
        ],
        order,
    )
    assert by_hand.schema() == order.schema() and by_hand.version_hash == order.version_hash
    assert (await run_tool(by_hand, {"sku": "A", "count": "2", "tags": []})).value == "2 A []"


@pytest.mark.ledger("TOOL-10")
def test_each_type_has_its_name_in_json_schema() -> None:
    kinds = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}
    by_hand = made([ToolParameter(kind.__name__, kind, "x") for kind in kinds])
    assert [each["type"] for each in by_hand.parameters["properties"].values()] == [*kinds.values()]


@pytest.mark.ledger("TOOL-01")
def test_parameter_may_be_optional_and_have_choices() -> None:
    sized = made([ToolParameter("size", str, "How big", required=False, enum=["s", "l"])])
    assert sized.validate({}) == {} and sized.validate({"size": None}) == {}
    with pytest.raises(ToolValidationError, match=r"'m' is not allowed.*must be 's' or 'l'"):
        sized.validate({"size": "m"})


@pytest.mark.parametrize(
    ("parameter", "says"),
    [
        (lambda: ToolParameter("", str, "x"), "needs a name"),
        (lambda: ToolParameter("a", set, "x"), "the type is one of str, int"),
        (lambda: ToolParameter("a", "text", "x"), "not 'text'"),
        (lambda: ToolParameter("a", str, "x", enum=[]), "list of the allowed values"),
        (lambda: ToolParameter("a", str, "x", element_type=str), "only a list"),
    ],
)
def test_wrong_parameter_is_refused(parameter: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parameter()


@pytest.mark.ledger("TOOL-40")
def test_two_parameters_of_one_name_are_refused() -> None:
    with pytest.raises(ToolValidationError, match="two parameters have the name 'a'"):
        made([ToolParameter("a", str, "x"), ToolParameter("a", int, "y")])


@pytest.mark.ledger("TOOL-01")
async def test_arguments_are_coerced_and_defaults_filled_in() -> None:
    assert made().validate({"sku": "A"}) == {"sku": "A", "count": 1}
    assert made().validate({"sku": "A", "count": "3", "speed": None}) == {"sku": "A", "count": 3}
    assert (await run_tool(made(), {"sku": "A", "count": 2.0})).value == {"sku": "A", "count": 2}


@pytest.mark.ledger("TOOL-01")
def test_every_fault_names_its_field() -> None:
    assert refused({"skuu": "A", "count": 0, "speed": "Fast", "to": {}, "tags": ["a", 5]}) == {
        "skuu": "Unexpected parameter(s) Did you mean 'sku'?",
        "sku": "Missing required parameter",
        "count": "Wrong type or value 0 (0 is less than the minimum of 1) Expected type: integer",
        "speed": "'Fast' is not allowed Did you mean 'fast'?",
        "to.city": "Missing required parameter",
        "tags[1]": "Wrong type or value 5 (5 is not of type 'string')",
    }
    assert refused({"sku": 5})["sku"].endswith("Try: sku=str(5)")
    assert "no JSON" in refused({"sku": "A", "count": float("nan")})[""]


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "array"}, "that of an object"),
        ({"type": "object", "properties": {"a": {"type": "strin"}}}, "no JSON Schema"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "leads nowhere"),
        ({"properties": {"a": {"type": "integer", "default": "x"}}}, "its default is no value"),
        ({"$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)} | {}}, "nowhere"),
        (
            {
                "$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)} | {"d40": {}},
                "$ref": "#/$defs/d0",
            },
            "takes too long",
        ),
        ({"properties": {"a": {"const": 2**70}}}, "no canonical form"),
    ],
)
def test_schema_that_cannot_be_checked_is_refused(schema: Any, says: str) -> None:
    with pytest.raises(ToolValidationError, match=says):
        made(schema)


def test_function_must_take_the_parameters_of_the_schema() -> None:
    async def short(sku: str) -> None: ...

    async def long(sku: str, color: str) -> None: ...

    with pytest.raises(ToolValidationError, match=r"does not take \['count', 'speed', 'tags', 'to'\]"):
        made(function=short)
    with pytest.raises(ToolValidationError, match=r"needs \['color'\]"):
        made([ToolParameter("sku", str, "x")], function=long)
    with pytest.raises(ToolValidationError, match=r"needs \['sku'\], which a call may leave out"):
        made([ToolParameter("sku", str, "x", required=False)], function=short)
    with pytest.raises(ToolValidationError, match="without a name in the schema"):
        made({"properties": {"sku": {}}, "required": ["sku"], "additionalProperties": True}, function=short)


async def test_context_and_injected_values_reach_the_function() -> None:
    async def order(ctx: ToolContext, key: str, **arguments: Any) -> str:
        return f"{ctx.person} {key} {arguments['sku']}"

    done = await run_tool(made(function=order, injected_kwargs={"key": "K"}), {"sku": "A"})
    assert done.value == "app:-:ana K A"


@pytest.mark.ledger("TOOL-01")
async def test_templates_previews_hashes_and_policy_work_alike() -> None:
    async def ask(sku: str, count: int) -> Preview:
        return Preview(text=f"Order {count} of {sku}?", precondition=count)

    ctx = ToolContext(person="app:-:ana")
    shown = await made(confirm="Order {count} of {sku}?").preview({"sku": "A", "count": 1}, ctx)
    assert shown.text == "Order 1 of “A”?"
    by_function = made({**ORDER, "properties": {k: ORDER["properties"][k] for k in ("sku", "count")}}, confirm=ask)
    assert (await by_function.preview({"sku": "A", "count": 1}, ctx)).precondition == 1
    with pytest.raises(ToolValidationError, match="color"):
        made(confirm="Order {color}?")
    other = {**ORDER, "properties": {**ORDER["properties"], "count": {"type": "number"}}}
    assert made(other).version_hash != made().version_hash == made({**ORDER, "title": "T"}).version_hash
    assert permission(made(confirm=Confirm()), None).how == "asks"
    assert permission(made(), ToolPolicy(deny=["order"])).how == "never"
