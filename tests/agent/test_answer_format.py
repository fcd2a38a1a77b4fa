"""Runs with a format of the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from channels import Json
from gateway import Agent, AgentConfig, AgentResult, tool
from gateway.providers import Response
from gateway.testing import RecordingObserver
from tests.agent.scripted import Script, call


class Classification(BaseModel):
    intent: Literal["billing", "support", "sales", "cancel"]
    confidence: float
    priority: Literal["low", "medium", "high"]


CANCEL = '{"intent":"cancel","confidence":0.95,"priority":"high"}'
WITH_A: dict[str, Any] = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}


@tool(read_only=True)
async def look_up(name: str) -> str:
    """Look up."""
    return f"{name} is 7"


async def streamed(agent: Agent, message: str, **options: Any) -> AgentResult:
    last = [each async for each in agent.stream(message, **options)][-1]
    assert isinstance(last, AgentResult)
    return last


async def run_in(way: str, agent: Agent, message: str, **options: Any) -> AgentResult:
    match way:
        case "run":
            return await agent.run(message, **options)
        case "run_sync":
            return await asyncio.to_thread(agent.run_sync, message, **options)
        case "stream":
            return await streamed(agent, message, **options)
    [result] = await agent.batch([message], **options)
    return result


@pytest.mark.ledger("OUT-05", "OUT-14")
@pytest.mark.parametrize(
    "way",
    [
        pytest.param("run", marks=pytest.mark.ledger("CFG-25")),
        "run_sync",
        pytest.param("stream", marks=pytest.mark.ledger("RUN-14")),
        pytest.param("batch", marks=pytest.mark.ledger("BATCH-05")),
    ],
)
async def test_an_answer_is_read_in_every_way_of_running(way: str) -> None:
    script = Script([call("look_up", name="a"), CANCEL])
    result = await run_in(way, Agent([look_up], provider=script), "cancel my sub", response_format=Classification)
    assert result.parsed == Classification(intent="cancel", confidence=0.95, priority="high")
    assert (result.content, result.stop_reason, result.iterations) == (CANCEL, "answered", 2)
    assert (result.provider_used, result.reasoning_history) == ("script", ("",))


@pytest.mark.ledger("OUT-02")
async def test_the_instruction_is_for_that_run_only() -> None:
    script = Script([CANCEL, "hello"])
    agent = Agent(provider=script, instructions="Be brief.")
    await agent.run("cancel", response_format=Classification)
    await agent.run("hi")
    first, second = (request.system for request in script.requests)
    assert first.startswith("Be brief.\n\n") and '"intent"' in first
    assert second == "Be brief."


@pytest.mark.ledger("OUT-04", "OUT-12", "TRC-08")
async def test_an_answer_that_does_not_fit_is_asked_for_again() -> None:
    script = Script(["not json", CANCEL])
    result = await Agent(provider=script).run("cancel", response_format=Classification)
    assert isinstance(result.parsed, Classification)
    (retry,) = result.trace.filter(type="structured_retry")
    assert retry.error == "the reply holds no JSON object or array"
    assert [message.role for message in script.requests[1].messages] == ["user", "assistant", "user"]
    assert "no JSON object" in script.requests[1].messages[-1].content


@pytest.mark.ledger("OUT-13", "OBS-18")
async def test_each_check_of_an_answer_is_told() -> None:
    seen = RecordingObserver()
    agent = Agent(provider=Script(["not json", CANCEL]), config=AgentConfig(observers=(seen,)))
    await agent.run("cancel", response_format=Classification)
    told = [fields for name, fields in seen.events if name == "structured_validate"]
    assert [(each["success"], each["attempt"], each["error"]) for each in told] == [
        (False, 1, "the reply holds no JSON object or array"),
        (True, 2, None),
    ]


@pytest.mark.ledger("OUT-10")
async def test_schema_that_no_answer_meets_ends_the_run_with_its_fault() -> None:
    script = Script(['{"b": 1}'] * 3)
    result = await Agent(provider=script).run("a?", response_format=WITH_A)
    assert (result.stop_reason, result.parsed, result.iterations) == ("error", None, 3)
    assert result.error == "the answer does not fit the response_format: 'a' is a required property"


@pytest.mark.ledger("RTY-15")
async def test_retries_for_the_format_do_not_count_as_iterations() -> None:
    script = Script([call("look_up", name="a"), "no", "no", '{"a": 7}'])
    config = AgentConfig(max_iterations=2, max_retries=0, structured_retries=2)
    result = await Agent([look_up], provider=script, config=config).run("a?", response_format=WITH_A)
    assert (result.parsed, result.stop_reason, result.iterations) == ({"a": 7}, "answered", 4)


async def test_a_cut_off_answer_and_a_refusal_are_said() -> None:
    script = Script([Response(content='{"a": 1', finish="length"), '{"a": 1}'])
    result = await Agent(provider=script).run("a?", response_format=WITH_A)
    assert result.parsed == {"a": 1}
    assert "cut off at its length limit" in script.requests[1].messages[-1].content

    script = Script([Response(content="I can't.", finish="refused")])
    result = await Agent(provider=script).run("a?", response_format=WITH_A)
    assert (result.stop_reason, result.iterations) == ("error", 1)
    assert result.error.endswith("the model refused to answer")


async def test_a_wrong_format_is_refused_before_the_model_is_asked() -> None:
    script = Script([])
    with pytest.raises(TypeError, match="response_format"):
        await Agent(provider=script).run("a?", response_format=str)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="response_format"):
        await Agent(provider=script).run("a?", response_format={"type": "strange"})
    assert script.requests == []


class Enforcing(Script):
    def takes_schema(self, schema: Mapping[str, Json], model: str | None) -> bool:
        return schema["type"] == "object"


@pytest.mark.ledger("OUT-02")
async def test_enforcing_provider_gets_the_schema_and_no_instruction() -> None:
    script = Enforcing(['{"a": 1}', "[1]"])
    agent = Agent(provider=script, instructions="Be brief.")
    assert (await agent.run("a?", response_format=WITH_A)).parsed == {"a": 1}
    assert (await agent.run("a?", response_format={"type": "array"})).parsed == [1]
    first, second = script.requests
    assert (first.system, first.schema) == ("Be brief.", WITH_A)
    assert (second.schema, second.system.startswith("Be brief.\n\n")) == (None, True)
