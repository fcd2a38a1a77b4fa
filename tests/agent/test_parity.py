"""Each scenario runs in every way: run, run_sync, stream, batch and a chat. The results are equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gateway import Agent, AgentConfig, AgentObserver, AgentResult, FallbackProvider, tool
from gateway.providers import Completes, ProviderError, Request, Response, ToolCall
from gateway.providers.text_calls import TextCallsProvider
from gateway.testing import ChatDriver
from gateway.tools import Tool
from gateway.wording import say
from tests.agent.scripted import Script, call, calls
from tests.agent.test_answer_format import CANCEL, Classification, run_in

ALONE = ("run", "run_sync", "stream", "batch")
WAYS = (*ALONE, "chat")
NOT_NOW = ProviderError("script", "busy", retryable=True)
TOO_LONG = ProviderError(
    "script", "too long", retryable=False, refusal="too_long", sent_tokens=9_000, taken_tokens=4_000
)
"""A refusal of a conversation, with the vendor's numbers."""


@tool(read_only=True)
async def look_up(name: str) -> str:
    """Look up."""
    return f"{name} is 7"


@tool(terminal=True, read_only=True)
async def finish() -> str:
    """Finish."""
    return "finished"


@tool(confirm="Delete {name}?")
async def delete(name: str) -> str:
    """Delete."""
    raise AssertionError("it runs before anyone confirmed it")


class Whole:
    """A provider without `stream` and without `close`."""

    name = "script"

    def __init__(self, steps: Sequence[Any]) -> None:
        self._script = Script(list(steps))

    async def complete(self, request: Request) -> Response:
        return await self._script.complete(request)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A script of the model, and the result of the run."""

    name: str
    message: str = "hello"
    steps: Sequence[Any] = ()
    content: str = ""
    stop_reason: str = "answered"
    calls: Sequence[str] = ()
    parsed: Any = None
    config: Any = field(default_factory=dict)
    options: Any = field(default_factory=dict)
    provider: Callable[[Sequence[Any]], Completes] = lambda steps: Script(list(steps))
    provider_used: str = "script"
    in_chat: str | None = None
    """The text of the chat, if different from the content."""
    chat_reason: str | None = None
    """The stop reason in the chat, if different."""

    def __str__(self) -> str:
        return self.name


def refused(content: str) -> Response:
    return Response(content=content, finish="refused")


def cut_off() -> Response:
    return replace(calls(call("look_up", name="a")), finish="length")


SCENARIOS = [
    Scenario(name="an answer", steps=["hello"], content="hello"),
    Scenario(name="an empty answer", steps=["", " "], in_chat=say("empty_answer", "en")),
    Scenario(name="a refusal", steps=[refused("I cannot help.")], content="I cannot help."),
    Scenario(name="a call", steps=[call("look_up", name="a"), "7"], content="7", calls=["look_up"]),
    Scenario(
        name="two calls at once",
        steps=[calls(call("look_up", name="a"), call("look_up", name="b")), "7 and 7"],
        content="7 and 7",
        calls=["look_up", "look_up"],
    ),
    Scenario(
        name="two calls of one id",
        steps=[
            Response(tool_calls=(call("look_up", "1", name="a"), call("look_up", "1", name="b")), finish="tools"),
            "7 and 7",
        ],
        content="7 and 7",
        calls=["look_up", "look_up"],
    ),
    Scenario(
        name="fifty calls at once",
        steps=[calls(*(call("look_up", name=str(n)) for n in range(50))), "many"],
        content="many",
        calls=["look_up"] * 50,
    ),
    Scenario(name="an unknown tool", steps=[call("nosuch"), "sorry"], content="sorry", calls=["nosuch"]),
    Scenario(
        name="malformed arguments",
        steps=[ToolCall(call_id="1", name="look_up", parse_error="Expecting value at 7"), "sorry"],
        content="sorry",
        calls=["look_up"],
    ),
    Scenario(
        name="arguments with NaN",
        steps=[call("look_up", name=float("nan")), "sorry"],
        content="sorry",
        calls=["look_up"],
    ),
    Scenario(name="a call that was cut off", steps=[cut_off(), "7"], content="7", calls=["look_up"]),
    Scenario(name="megabytes", steps=["x" * 3_000_000], content="x" * 3_000_000, in_chat="x"),
    Scenario(
        name="a terminal tool",
        steps=[call("finish")],
        content="finished",
        stop_reason="terminal_tool",
        calls=["finish"],
    ),
    Scenario(
        name="a stop condition",
        steps=[call("look_up", name="a")],
        config={"stop_condition": lambda name, result: "7" in result},
        content="a is 7",
        stop_reason="stop_condition",
        calls=["look_up"],
    ),
    Scenario(
        name="too many iterations",
        steps=[calls(call("look_up", name=str(n)), content="hm") for n in range(2)],
        config={"max_iterations": 2},
        content="hm",
        stop_reason="max_iterations",
        calls=["look_up"] * 2,
        in_chat="hm\n\n" + say("max_iterations", "en"),
    ),
    Scenario(
        name="a loop",
        steps=[calls(call("look_up", name="a"), content="hm") for _ in range(3)],
        content="hm",
        stop_reason="loop_detected",
        calls=["look_up"] * 3,
        in_chat="hm\n\n" + say("max_iterations", "en"),
    ),
    Scenario(
        name="a routed call",
        steps=[calls(call("look_up", name="a"), content="look_up")],
        config={"routing_only": True},
        content="look_up",
        stop_reason="routed",
        calls=["look_up"],
    ),
    Scenario(name="an error that passes", steps=[NOT_NOW, "hello"], content="hello"),
    Scenario(
        name="a conversation that is too long", message="long " * 5_000, steps=[TOO_LONG, "hello"], content="hello"
    ),
    Scenario(
        name="a provider that cannot stream", steps=["hello"], provider=lambda steps: Whole(steps), content="hello"
    ),
    Scenario(
        name="a chain whose first provider fails",
        steps=["hello"],
        provider=lambda steps: FallbackProvider([Script([NOT_NOW]), Script(list(steps), name="second")]),
        content="hello",
        provider_used="second",
    ),
    Scenario(
        name="calls in text form",
        steps=['TOOL_CALL {"tool_name": "look_up", "parameters": {"name": "a"}}', "7"],
        provider=lambda steps: TextCallsProvider(Script(list(steps))),
        content="7",
        calls=["look_up"],
    ),
    Scenario(
        name="an answer that quotes a call",
        steps=['Send {"tool_name": "look_up"} to the server.'],
        provider=lambda steps: TextCallsProvider(Script(list(steps))),
        content='Send {"tool_name": "look_up"} to the server.',
    ),
    Scenario(
        name="a call that asks",
        steps=[calls(call("delete", name="a"), content="Sure?")],
        content="Sure?",
        stop_reason="needs_confirmation",
        chat_reason="asked",
        calls=["delete"],
        in_chat="Delete “a”?",
    ),
]
STRUCTURED = [
    Scenario(name="a value", steps=[CANCEL], content=CANCEL),
    Scenario(name="a value after a call", steps=[call("look_up", name="a"), CANCEL], content=CANCEL, calls=["look_up"]),
    Scenario(name="a value after a correction", steps=['{"intent": "none"}', CANCEL], content=CANCEL),
    Scenario(name="a value in prose", steps=[f"Here it is:\n```json\n{CANCEL}\n```"]),
    Scenario(name="no value", steps=["no"] * 3, content="no", stop_reason="error"),
    Scenario(name="a refusal", steps=[refused("no")], content="no", stop_reason="error"),
]


class Ends(AgentObserver):
    def __init__(self) -> None:
        self.results: list[AgentResult] = []

    def on_run_end(self, run_id: str, result: AgentResult) -> None:
        self.results.append(result)


async def ran(scenario: Scenario, way: str) -> tuple[AgentResult, str]:
    """Return the result of a scenario, and the text for the person in the end."""
    ends = Ends()
    config = AgentConfig(observers=(ends,), retry_backoff_seconds=0.0, **scenario.config)
    tools: list[Tool] = [look_up, finish, delete]
    agent = Agent(tools, provider=scenario.provider(scenario.steps), config=config)
    if way != "chat":
        result = await run_in(way, agent, scenario.message, **scenario.options)
        (told,) = ends.results
        assert (told.content, told.parsed, told.stop_reason) == (result.content, result.parsed, result.stop_reason)
        return result, result.content
    async with ChatDriver(agent) as chat:
        await chat.says("ana", scenario.message)
        await agent.drain()
        return ends.results[0], "\n".join(message.text for message in chat.messages)


@pytest.mark.ledger("LOOP-11", "RUN-03")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
async def test_every_way_to_run_gives_the_same_result(scenario: Scenario) -> None:
    results = {way: await ran(scenario, way) for way in WAYS}
    for way, (result, read) in results.items():
        assert result.content == scenario.content, way
        assert result.stop_reason == (
            scenario.stop_reason if way != "chat" else scenario.chat_reason or scenario.stop_reason
        )
        assert [each.name for each in result.tool_calls] == list(scenario.calls), way
        assert result.provider_used == scenario.provider_used, way
        assert result.parsed is None, way
        assert result.usage == results["run"][0].usage, way
        assert result.iterations == results["run"][0].iterations, way
        if way == "chat":
            assert (scenario.in_chat or scenario.content) in read


@pytest.mark.parametrize("scenario", STRUCTURED, ids=str)
async def test_every_way_reads_the_same_value(scenario: Scenario) -> None:
    scenario = replace(scenario, options={"response_format": Classification})
    for way in ALONE:
        result, _ = await ran(scenario, way)
        assert result.content == (scenario.content or scenario.steps[-1])
        assert result.stop_reason == scenario.stop_reason
        assert (result.parsed is None) == (scenario.stop_reason == "error")
        assert bool(result.error) == (scenario.stop_reason == "error")
        assert result.parsed is None or result.parsed.intent == "cancel"
