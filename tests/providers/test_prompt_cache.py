"""What all calls of a bot have in common stands first and stays the same, so that the vendors' caches know it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from pydantic import BaseModel

from gateway import Agent, ToolContext, tool
from gateway.providers import ModelMessage, Request
from gateway.providers.anthropic import AnthropicProvider
from tests.fakes.anthropic import FakeAnthropic
from tests.fakes.model_server import Call, ModelServer, Say
from tests.providers.vendors import ANTHROPIC, ASKED, LIGHTS, Vendor, user

LONG = "You switch lamps. " + "Never in the attic. " * 300
EPHEMERAL = {"type": "ephemeral"}


class Lamp(BaseModel):
    name: str
    is_on: bool


@tool
async def switch(lamp: str, bright: bool = False) -> str:
    """Switch a lamp."""
    return f"{lamp} is off"


@tool(read_only=True)
async def lamps(room: str) -> list[str]:
    """List the lamps of a room."""
    return [f"{room} left", f"{room} right"]


def rendered(body: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The common part of a request, in the order in which the vendor reads it, and its messages one by one."""
    first = body.get("messages", [{}])[0]
    in_messages = [first] if first.get("role") == "system" else []
    system = body.get("system") or body.get("instructions") or in_messages
    history: Sequence[Any] = body.get("input") or body["messages"][len(in_messages) :]
    form = body.get("response_format") or body.get("text") or body.get("output_config")
    return json.dumps([body["tools"], form, system]), [json.dumps(message) for message in history]


@pytest.mark.ledger("CALL-12")
@pytest.mark.parametrize("answer_format", [None, Lamp, {"type": "object"}])
async def test_common_part_is_the_same_in_every_call(vendor: Vendor, model: ModelServer, answer_format: Any) -> None:
    """Over turns with calls, events, languages and an answer's format: enforced by the vendor, or by instruction."""
    provider = vendor.provider(vendor.model, api_key=model.key, base_url=model.url, whole_api=True)
    agent = Agent([switch, lamps], provider=provider, instructions=LONG)
    heard: list[ModelMessage] = []
    answer = '{"name": "hall", "is_on": false}'
    for number, language in enumerate(("en", "de", "ar")):
        model.script([Say(calls=[Call("lamps", {"room": "hall"})], thinks="Which?"), Say(answer)])
        heard += [ModelMessage(role="event", content=f"Bill {number} was paid."), user(f"question {number}")]
        context = ToolContext(person="app:-:ana", idempotency_key=f"t{number}", language=language)
        heard += (await agent.run(heard, context=context, response_format=answer_format)).messages
    await provider.close()
    assert model.refused == []
    commons, histories = zip(*map(rendered, model.requests), strict=True)
    assert len(model.requests) == 6
    assert set(commons) == {commons[0]}
    for earlier, later in pairwise(histories):
        assert later[: len(earlier)] == earlier, "and what was said stays as it was said"


# ── Anthropic caches what it is told to ──


async def asked(*requests: Request, whole_api: bool | None = True) -> list[dict[str, Any]]:
    async with FakeAnthropic() as model:
        provider = AnthropicProvider(ANTHROPIC.model, api_key=model.key, base_url=model.url, whole_api=whole_api)
        model.script(["ok"] * len(requests))
        for request in requests:
            await provider.complete(request)
        await provider.close()
        assert model.refused == []
        return model.requests


GOES_ON = [user("hello"), ModelMessage(role="assistant", content="Hello."), user("and?")]


async def test_instructions_and_tools_of_some_length_are_cached() -> None:
    wordy = replace(LIGHTS, description="Switch a lamp. " * 300)
    long, tools_alone = await asked(replace(ASKED, system=LONG), replace(ASKED, system="", tools=[LIGHTS, wordy]))
    assert long["system"] == [{"type": "text", "text": LONG, "cache_control": EPHEMERAL}]
    assert [tool.get("cache_control") for tool in long["tools"]] == [None]
    assert [tool.get("cache_control") for tool in tools_alone["tools"]] == [None, EPHEMERAL]
    assert "cache_control" not in long.keys() | tools_alone.keys(), "a single question is not"


async def test_conversation_that_goes_on_is_cached_to_its_end() -> None:
    (short,) = await asked(replace(ASKED, messages=GOES_ON))
    assert short["cache_control"] == EPHEMERAL
    assert short["system"] == "Be brief."


async def test_single_short_call_costs_no_more() -> None:
    (short,) = await asked(ASKED)
    assert "cache_control" not in json.dumps(short)


async def test_other_servers_are_told_nothing_of_caches() -> None:
    (other,) = await asked(replace(ASKED, system=LONG, messages=GOES_ON), whole_api=None)
    assert "cache_control" not in json.dumps(other)
