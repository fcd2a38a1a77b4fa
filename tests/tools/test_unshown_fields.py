"""A tool with a field that its question could not show is refused at its definition."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import InitVar, dataclass
from typing import Annotated, Any, Literal

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

from gateway.tools import Tool, ToolValidationError


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


def test_each_such_field_is_named_once_under_each_parameter() -> None:
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
