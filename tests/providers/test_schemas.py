"""Answers with a schema that the vendors' servers enforce."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from gateway import Agent, tool
from gateway.providers.answer_schema import strict_schema
from gateway.providers.anthropic import AnthropicProvider
from gateway.providers.openai import OpenAIProvider
from tests.fakes.model_server import Call, ModelServer, Say
from tests.fakes.schemas import fault_of_schema
from tests.providers.vendors import Vendor


class Line(BaseModel):
    text: str = Field(min_length=1)
    price: float = Field(ge=0, description="In euros.")


class Invoice(BaseModel):
    number: str = Field(pattern=r"^INV-\d+$")
    state: Literal["open", "paid"] = "open"
    note: str | None = None
    lines: list[Line]


@tool(read_only=True)
async def look_up(number: str) -> str:
    """Look up."""
    return f"{number}: one line, a lamp, 7 euros"


ANSWER = '{"number": "INV-7", "state": "paid", "note": null, "lines": [{"text": "Lamp", "price": 7}]}'


async def test_vendors_get_the_schema_and_no_instruction(vendor: Vendor, model: ModelServer) -> None:
    provider = vendor.provider(vendor.model, api_key=model.key, base_url=model.url, whole_api=True)
    agent = Agent([look_up], provider=provider, instructions="Be brief.")
    model.script([Call("look_up", {"number": "INV-7"}), Say(ANSWER)])
    result = await agent.run("INV-7?", response_format=Invoice)
    await provider.close()
    assert result.parsed.lines == [Line(text="Lamp", price=7)]
    for request in model.requests:
        sent = request.get("response_format") or (request.get("output_config") or request["text"])["format"]
        schema = sent.get("json_schema", sent)["schema"]
        assert schema["required"] == ["number", "state", "note", "lines"]
        assert schema["$defs"]["Line"]["properties"]["price"]["description"] == 'In euros. {"minimum": 0}'
        assert "JSON Schema" not in str(request[model.history]) + str(request.get("system"))


@pytest.mark.parametrize("vendor", ["openai", "anthropic"], indirect=True)
async def test_another_server_gets_an_instruction(vendor: Vendor, model: ModelServer) -> None:
    provider = vendor.at(model.url, model.key)
    model.script([Say(ANSWER)])
    result = await Agent(provider=provider).run("INV-7?", response_format=Invoice)
    await provider.close()
    assert result.parsed.number == "INV-7"
    [request] = model.requests
    assert not {"response_format", "output_config"} & request.keys()
    assert "JSON Schema" in str(request)


NAMED: dict[str, Any] = {"a": {"type": "string"}}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "properties": NAMED},
        {"type": "object", "properties": NAMED, "required": ["a"], "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": NAMED, "required": ["a"], "additionalProperties": True},
        {"type": "object"},
        {"type": "object", "properties": {"a": {"not": {"type": "string"}}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {
            "type": "object",
            "$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "required": ["n"]}},
            "properties": {"n": {"$ref": "#/$defs/n"}},
            "required": ["n"],
        },
    ],
)
def test_what_no_vendor_enforces_is_said_by_instruction(schema: dict[str, Any]) -> None:
    assert strict_schema(schema) is None


def test_a_strict_schema_is_one_that_the_vendors_take() -> None:
    strict = strict_schema(Invoice.model_json_schema())
    assert strict is not None
    assert fault_of_schema(strict) is None
    assert fault_of_schema(Invoice.model_json_schema()) is not None


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("openai:gpt-5-mini", True),
        ("openai:gpt-4o-mini", True),
        ("openai:gpt-4.1", True),
        ("openai:gpt-4-turbo", False),
        ("openai:gpt-3.5-turbo", False),
        ("anthropic:claude-sonnet-5", True),
        ("anthropic:claude-sonnet-4-5-20250929", True),
        ("anthropic:claude-opus-4-1-20250805", True),
        ("anthropic:claude-sonnet-4-20250514", False),
        ("anthropic:claude-3-5-haiku-latest", False),
    ],
)
def test_older_models_get_an_instruction(name: str, takes: bool) -> None:
    vendor, _, model = name.partition(":")
    kind = OpenAIProvider if vendor == "openai" else AnthropicProvider
    provider = kind(model, api_key="sk-none")
    schema: dict[str, Any] = {"type": "object", "properties": NAMED, "required": ["a"]}
    assert provider.takes_schema(schema, None) is takes
