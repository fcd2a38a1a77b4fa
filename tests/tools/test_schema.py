"""From a function's signature to the schema for the model, and the refusals on the way."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import InitVar, dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    RootModel,
    computed_field,
    field_serializer,
    model_serializer,
)
from typing_extensions import TypedDict

from gateway.tools import Confirm, Injected, Tool, ToolContext, ToolRegistry, ToolValidationError, tool


def properties(made: Tool) -> dict[str, Any]:
    found: dict[str, Any] = made.parameters["properties"]
    return found


@tool(param_metadata={"units": {"enum": ["celsius", "fahrenheit"], "description": "Scale"}})
async def get_weather(location: str, units: str = "celsius") -> str:
    """Tell the weather.

    More that the model need not know.
    """
    return ""


@pytest.mark.ledger("TOOL-02", "PYG-03")
def test_options_of_a_tool_have_the_documented_defaults() -> None:
    flags = get_weather.streaming, get_weather.screen_output, get_weather.terminal, get_weather.read_only
    assert (get_weather.name, get_weather.description, flags) == ("get_weather", "Tell the weather.", (False,) * 4)
    assert get_weather.confirm is None is tool(good).confirm


@pytest.mark.ledger("TOOL-05", "TOOL-42")
def test_required_parameters_follow_the_signature() -> None:
    assert (list(properties(get_weather)), get_weather.parameters["required"]) == (["location", "units"], ["location"])


@pytest.mark.ledger("TOOL-08", "TOOL-09")
def test_a_parameter_is_described_by_its_metadata_or_name() -> None:
    assert properties(get_weather)["location"] == {"type": "string", "description": "Parameter 'location'"}
    assert properties(get_weather)["units"]["description"] == "Scale"


@pytest.mark.ledger("TOOL-11", "TOOL-12")
def test_the_schema_of_a_plain_function() -> None:
    assert get_weather.schema() == {
        "name": "get_weather",
        "description": "Tell the weather.",
        "parameters": {
            "type": "object",
            "properties": {
                "location": {"type": "string", "description": "Parameter 'location'"},
                "units": {
                    "type": "string",
                    "enum": ["celsius", "fahrenheit"],
                    "default": "celsius",
                    "description": "Scale",
                },
            },
            "required": ["location"],
            "additionalProperties": False,
        },
    }


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Line(BaseModel):
    sku: str
    count: int


@pytest.mark.ledger("TOOL-10")
@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (list, {"type": "array", "items": {}}),
        (dict, {"type": "object", "additionalProperties": True}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        pytest.param(
            list[int],
            {"type": "array", "items": {"type": "integer"}},
            marks=pytest.mark.ledger("TOOL-17", "TOOL-20"),
        ),
        pytest.param(
            dict[str, str],
            {"type": "object", "additionalProperties": {"type": "string"}},
            marks=pytest.mark.ledger("TOOL-17"),
        ),
        pytest.param(
            list[dict[str, int]],
            {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "integer"}}},
            marks=pytest.mark.ledger("TOOL-19"),
        ),
        pytest.param(
            Literal["fast", "slow", "auto"],
            {"type": "string", "enum": ["fast", "slow", "auto"]},
            marks=pytest.mark.ledger("TOOL-13"),
        ),
        pytest.param(
            int | str,
            {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            marks=pytest.mark.ledger("TOOL-16"),
        ),
        (date, {"type": "string", "format": "date"}),
        (Annotated[int, Field(ge=1, le=9)], {"type": "integer", "minimum": 1, "maximum": 9}),
        (
            Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1)],
            {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}, "minItems": 1},
        ),
    ],
)
def test_type_becomes_its_json_schema(annotation: Any, schema: dict[str, Any]) -> None:
    def function(value: Any) -> None: ...

    function.__annotations__["value"] = annotation
    made = Tool(function, description="Test.")
    assert properties(made)["value"] == {**schema, "description": "Parameter 'value'"}
    assert made.parameters["required"] == ["value"]


@pytest.mark.ledger("TOOL-14", "TOOL-15", "TOOL-18")
def test_optional_parameters_are_never_required() -> None:
    @tool(description="Search.")
    def search(
        query: str,
        filter: Optional[Literal["new"]],  # noqa: UP045
        page: Annotated[int | None, Field(ge=1)],
        tags: list[str] | None = None,
    ) -> None: ...

    assert search.parameters["required"] == ["query"]
    assert properties(search)["page"]["anyOf"][0] == {"type": "integer", "minimum": 1}
    assert properties(search)["tags"]["anyOf"][0] == {"type": "array", "items": {"type": "string"}}


def test_models_and_enums_are_described() -> None:
    @tool(description="Order.")
    def order(line: Line, size: Size) -> None: ...

    assert order.parameters["$defs"]["Line"]["required"] == ["sku", "count"]
    assert order.parameters["$defs"]["Size"]["enum"] == ["s", "l"]


def test_tools_with_equal_types_do_not_share_their_schema() -> None:
    async def turn(degrees: int) -> str:
        """Turn."""
        return ""

    def made(function: Callable[..., Any], **described: str) -> Tool:
        metadata = {name: {"description": text} for name, text in described.items()}
        return Tool(function, name="turn", read_only=True, param_metadata=metadata)

    async def other(degrees: bool) -> str:
        """Turn."""
        return ""

    first, again, left, wrong = made(turn), made(turn), made(turn, degrees="To the left"), made(other)
    properties(first)["degrees"]["description"] = "changed"
    assert properties(again) == {"degrees": {"type": "integer", "description": "Parameter 'degrees'"}}
    assert properties(left)["degrees"]["description"] == "To the left"
    assert properties(wrong)["degrees"]["type"] == "boolean"


def test_a_parameter_may_have_any_name() -> None:
    @tool(description="Copy.")
    def copy(schema: str, json: int, model_config: str, field_0: str) -> tuple[str, int]:
        return schema, json

    assert list(properties(copy)) == ["schema", "json", "model_config", "field_0"]
    args = {"schema": "a", "json": 1, "model_config": "b", "field_0": "c"}
    assert copy.validate(args) == args


@pytest.mark.ledger("TOOL-09")
def test_a_description_may_stand_with_the_type() -> None:
    @tool(description="Pay.")
    def pay(cents: Annotated[int, Field(description="In cents")]) -> None: ...

    assert properties(pay)["cents"]["description"] == "In cents"


@pytest.mark.ledger("TOOL-06", "TOOL-37", "TOOL-39")
def test_injected_parameters_are_not_in_the_schema() -> None:
    @tool(description="Query.", injected_kwargs={"connection": object()}, config_injector=lambda: {"role": "admin"})
    def query(sql: str, connection: object, role: Injected[str], ctx: ToolContext, _cache: int = 0) -> None: ...

    assert list(properties(query)) == ["sql"]


@pytest.mark.ledger("TOOL-04", "TOOL-47", "TOOL-48")
def test_the_decorator_with_and_without_arguments() -> None:
    def search_google(query: str) -> str:
        """Search."""
        return query

    assert tool(search_google).name == "search_google"
    named = tool(name="web_search", description="Look it up.")(search_google)
    assert (named.name, named.description) == ("web_search", "Look it up.")
    assert named("x") == "x"
    assert getattr(named, "__name__", "") == "search_google"


def takes_args(*args: str) -> None:
    """Wrong."""


def takes_positional(a: str, /) -> None:
    """Wrong."""


def untyped(a) -> None:  # type: ignore[no-untyped-def]
    """Wrong."""


def unresolvable(a: Nowhere) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Wrong."""


def with_set(a: list[set[str]]) -> None:
    """Wrong."""


def with_function(a: Callable[[], None]) -> None:
    """Wrong."""


def odd_default(a: str = object()) -> None:  # type: ignore[assignment]
    """Wrong."""


def wrong_default(a: int = "one") -> None:  # type: ignore[assignment]
    """Wrong."""


def good(a: str) -> None:
    """Right."""


def with_reason(reason: str) -> None:
    """Right."""


def undescribed(a: str) -> None: ...


async def asks_for(b: str) -> Any:
    return b


@pytest.mark.ledger("TOOL-07", "TOOL-40", "TOOL-41")
@pytest.mark.parametrize(
    ("function", "options", "words"),
    [
        (takes_args, {}, r"no \*args"),
        (takes_positional, {}, "positional-only"),
        (untyped, {}, "a: has no annotation"),
        (unresolvable, {}, "Nowhere"),
        (with_set, {}, "Use a list"),
        (with_function, {}, "cannot be described"),
        (odd_default, {}, "not JSON serializable"),
        (wrong_default, {}, "a: its default is no value of its type"),
        (undescribed, {}, "has no description"),
        (good, {"description": "  "}, "has no description"),
        (good, {"name": ""}, "the name ''"),
        (good, {"name": "two words"}, "letters, digits"),
        (good, {"streaming": True}, "generator"),
        (good, {"timeout_seconds": 0}, "timeout_seconds"),
        (good, {"param_metadata": {"b": {}}}, "b: in param_metadata"),
        (good, {"injected_kwargs": {"b": 1}}, r"\['b'\]"),
        (good, {"confirm": "Delete {b}?"}, "not an argument"),
        (good, {"confirm": Confirm(done="{b}")}, "not an argument"),
        (good, {"confirm": Confirm(failed="{b}")}, "not an argument"),
        (with_reason, {"confirm": Confirm(failed="{reason}")}, "rename the argument"),
        (good, {"lock": "x:{b}"}, "not an argument"),
        (good, {"confirm": asks_for}, r"takes \['b'\]"),
        (good, {"confirm": Confirm(probe=asks_for)}, r"takes \['b'\]"),
    ],
)
def test_a_definition_that_does_not_hold_together_is_refused(
    function: Callable[..., Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ToolValidationError, match=words):
        Tool(function, **options)


def test_hidden_parameter_without_a_value_is_refused() -> None:
    def query(sql: str, db: Injected[str]) -> None:
        """Query."""

    with pytest.raises(ToolValidationError, match=r"nothing fills in \['db'\]"):
        tool(query)


def test_version_hash_covers_the_parts_of_an_open_question() -> None:
    def delete(invoice_id: str, reason: str = "") -> None:
        """Delete."""

    def other_code_and_words(invoice_id: str, reason: str = "none") -> str:
        """Remove for good."""
        return "other"

    def other_type(invoice_id: int, reason: str = "") -> None:
        """Delete."""

    def other_name(invoice: str, reason: str = "") -> None:
        """Delete."""

    def now_required(invoice_id: str, reason: str) -> None:
        """Delete."""

    def version(function: Callable[..., Any], **options: Any) -> str:
        return Tool(function, name="delete", **options).version_hash

    same = version(delete)
    assert len(same) == 64
    assert version(other_code_and_words, param_metadata={"reason": {"description": "Why"}}) == same
    changed = {version(other_type), version(other_name), version(now_required), version(delete, version="2")}
    assert len(changed | {same, Tool(delete, name="wipe").version_hash}) == 6


@pytest.mark.ledger("TOOL-49")
def test_a_registry_knows_its_tools_by_name_once() -> None:
    registry = ToolRegistry()

    @registry.tool(name="web_search", read_only=True)
    def search_google(query: str) -> None:
        """Search."""

    @registry.tool
    def calculate(expression: str) -> None:
        """Compute."""

    assert registry.get("web_search") is search_google
    assert registry.get("search_google") is None
    assert registry.all() == [search_google, calculate]
    assert registry.register(calculate) is calculate
    with pytest.raises(ToolValidationError, match="another tool has this name"):
        registry.register(Tool(good, name="calculate"))
    assert [made.name for made in ToolRegistry([good, calculate]).all()] == ["good", "calculate"]


@pytest.mark.parametrize(
    "section",
    [
        "Args:\n        invoice_id: Which one,\n            such as INV-42.\n        why (str): The reason.",
        "Parameters\n    ----------\n    invoice_id\n        Which one, such as INV-42.\n    why\n        The reason.",
        ":param invoice_id: Which one, such as INV-42.\n    :param why: The reason.",
    ],
    ids=["Google", "NumPy", "Sphinx"],
)
def test_docstring_of_an_argument_reaches_the_model(section: str) -> None:
    async def delete(
        invoice_id: str, why: Annotated[str, Field(description="In a word.")], force: bool = False
    ) -> None: ...

    delete.__doc__ = f"Delete an invoice.\n\n    {section}\n"
    made = tool(delete)
    told = {name: each["description"] for name, each in made.parameters["properties"].items()}
    assert made.description == "Delete an invoice."
    assert told == {"invoice_id": "Which one, such as INV-42.", "why": "In a word.", "force": "Parameter 'force'"}


# ── A tool with a field that its question could not show is refused at its definition ──


class Left(BaseModel):
    cents: int = Field(1, exclude=True)


class LeftAtTimes(BaseModel):
    cents: int = Field(1, exclude_if=lambda cents: cents > 100)


class Renamed(BaseModel):
    cents: int = Field(1, validation_alias="cents", serialization_alias="amount")


class Deep(BaseModel):
    cents: int = Field(1, validation_alias=AliasPath("sum", "cents"), serialization_alias="sum")


class ByNameAlone(BaseModel):
    model_config = ConfigDict(validate_by_name=True, validate_by_alias=False)

    cents: int = Field(1, alias="amount")


class Tree(BaseModel):
    branches: list[Tree] = []
    kind: Literal["tree"] = "tree"
    fruit: Left | None = None


class Flower(BaseModel):
    kind: Literal["flower"] = "flower"


class Lefts(RootModel[list[Left]]):
    pass


@dataclass
class Invoice:
    number: str
    cents: Annotated[int, Field(exclude=True)] = 1


@dataclass
class Cart:
    cents: InitVar[int] = 1


class Slip(TypedDict, total=False):
    cents: Annotated[int, Field(validation_alias="amount")]


class Brief(BaseModel):
    number: str
    cents: int = 1

    @model_serializer
    def briefly(self) -> dict[str, str]:
        return {"number": self.number}


class Book(BaseModel):
    lines: list[Flower]

    @field_serializer("lines")
    def briefly(self, lines: list[Flower]) -> list[dict[str, str]]:
        return [{} for _ in lines]


def taking(annotation: Any) -> Callable[..., None]:
    def pay(order: Any) -> None:
        """Pay."""

    pay.__annotations__["order"] = annotation
    return pay


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Left, r"order\.cents: is left out .*Remove exclude"),
        (LeftAtTimes, r"order\.cents: is left out .*exclude_if"),
        (Renamed, r"order\.cents: is written as 'amount' and read as 'cents'\. Give it one alias"),
        (Deep, r"order\.cents: is written as 'sum' and read as a path"),
        (ByNameAlone, r"order\.cents: is written as 'amount' and read as 'cents'"),
        (list[Left], r"order\.cents"),
        (dict[str, tuple[int, Left]], r"order\.cents"),
        (Left | None, r"order\.cents"),
        (str | Renamed, r"order\.cents"),
        (Annotated[Flower | Tree, Field(discriminator="kind")], r"order\.fruit\.cents"),
        (Tree, r"order\.fruit\.cents"),
        (Lefts, r"order\.cents"),
        (Invoice, r"order\.cents: is left out"),
        (Cart, r"order\.cents: is not kept, .*InitVar"),
        (Slip, r"order\.cents: is written as 'cents' and read as 'amount'"),
        (Brief, r"order\.cents: may be left out by a serializer of its own\. Remove the serializer"),
        (Book, r"order\.lines\.kind: may be left out"),
        (Annotated[list[Flower], PlainSerializer(lambda flowers: [{} for _ in flowers])], r"order\.kind: may be left"),
        (Annotated[int, Field(exclude=True)], r"order: is left out"),
    ],
    ids=lambda value: re.sub(r" at 0x[0-9a-f]+", "", str(value)),
)
def test_a_field_that_no_question_shows_is_refused(annotation: Any, words: str) -> None:
    with pytest.raises(ToolValidationError, match=rf"Tool 'pay': {words}"):
        Tool(taking(annotation), confirm=True)


def test_hidden_field_is_named_once_under_each_parameter() -> None:
    def pay(first: list[Left], second: Renamed, third: Left) -> None:
        """Pay."""

    with pytest.raises(ToolValidationError) as caught:
        Tool(pay)
    assert [each.parameter for each in caught.value.problems] == ["first.cents", "second.cents", "third.cents"]


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=lambda name: name.title(), extra="allow")

    cents: int = 1

    @computed_field  # type: ignore[prop-decorator]
    @property
    def euros(self) -> float:
        return self.cents / 100


class Chosen(BaseModel):
    cents: int = Field(1, validation_alias=AliasChoices("amount", "cents", AliasPath("sum", 0)))


class Named(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    cents: int = Field(1, validation_alias="amount")


class Sum(BaseModel):
    cents: int
    currency: str

    @model_serializer
    def written(self) -> dict[str, Any]:
        return {"cents": self.cents, "currency": self.currency}


@pytest.mark.parametrize(
    ("annotation", "given"),
    [
        (Camel, {"Cents": 5}),
        (Chosen, {"amount": 5}),
        (Named, {"amount": 5}),
        (Sum, {"cents": 5, "currency": "EUR"}),
        (Flower, {}),
    ],
    ids=str,
)
def test_a_field_that_is_shown_is_not_refused(annotation: Any, given: dict[str, Any]) -> None:
    made = Tool(taking(annotation), confirm=True)
    written = made.validate({"order": given})
    assert made.validate(written) == written
