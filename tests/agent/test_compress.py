"""Long results of tools are shortened before the model reads them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway import Agent, AgentConfig, ChannelAgent, ToolConfig, ToolFailed, ToolPolicy, tool
from gateway.agent.compress import FULL_RESULT
from gateway.config.options import WrongOption
from gateway.providers import ProviderError, Request, Response, Usage
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from tests.agent.scripted import Notebook, Script, Turn, call, calls, told

LONG = "row; " * 1896 + "ok"
"""A result of 9,482 characters."""
SUMMARY = "500 rows; ids 1-500; total=$12,403.50"


@tool(read_only=True)
async def rows(size: int = 9482) -> str:
    """Read rows."""
    return (LONG * (size // len(LONG) + 1))[:size]


@tool(terminal=True, read_only=True)
async def export() -> str:
    """Export rows."""
    return LONG


@tool(read_only=True)
async def broken() -> str:
    """Fail with a long text."""
    raise ToolFailed("x" * 5000)


@dataclass
class Summariser:
    """A provider that shortens with the test's replies."""

    replies: Sequence[Any]
    name: str = "small"
    requests: list[Request] = field(default_factory=list)
    seconds: float = 0.0

    async def complete(self, request: Request) -> Response:
        self.requests.append(request)
        reply = self.replies[min(len(self.requests), len(self.replies)) - 1]
        await asyncio.sleep(self.seconds)
        if isinstance(reply, Exception):
            raise reply
        return reply if isinstance(reply, Response) else Response(content=reply, usage=Usage(prompt_tokens=900))


def config(summariser: Summariser, **changes: Any) -> AgentConfig:
    tools = {"compress_results": True, "compress_provider": summariser, "compress_model": "tiny"} | changes
    return AgentConfig(tool=ToolConfig(**tools))


def turn(script: Script, summariser: Summariser, **changes: Any) -> Turn:
    return Turn(script, [rows, export, broken], config=config(summariser, **changes))


@pytest.mark.ledger("CMP-02", "CMP-05", "CFG-26")
async def test_a_long_result_is_shortened_by_one_call() -> None:
    small = Summariser([SUMMARY])
    turned = turn(Script([call("rows"), "done"]), small)
    outcome = await turned.run()
    assert told(outcome) == [f"[compressed from 9482 chars] {SUMMARY}"]
    (request,) = small.requests
    assert (request.model, request.max_tokens, request.tools) == ("tiny", 500, ())
    assert LONG in request.messages[0].content


@pytest.mark.ledger("CMP-16", "CMP-20", "USE-10")
async def test_the_call_that_shortens_is_a_step_and_counts() -> None:
    outcome = await turn(Script([call("rows"), "done"]), Summariser([SUMMARY])).run()
    assert outcome.usage.prompt_tokens == 900 + 10 + 10
    (step,) = outcome.trace.filter(type="tool_result_compressed")
    assert (step.tool_name, step.summary) == ("rows", f"9482 -> {len(told(outcome)[0])} characters")


@pytest.mark.ledger("CMP-01")
@pytest.mark.parametrize(("size", "summaries"), [(2000, 0), (2001, 1)])
async def test_only_a_longer_result_than_the_threshold_is(size: int, summaries: int) -> None:
    small = Summariser([SUMMARY])
    await turn(Script([call("rows", size=size), "done"]), small).run()
    assert len(small.requests) == summaries


@pytest.mark.ledger("CMP-03")
async def test_results_stay_whole_without_the_option() -> None:
    script = Script([call("rows"), "done"])
    outcome = await Turn(script, [rows]).run()
    assert told(outcome) == [LONG]
    assert [spec.name for spec in script.requests[0].tools] == ["rows"]


@pytest.mark.ledger("CMP-04")
async def test_summary_prompt_asks_to_keep_numbers_ids_and_errors() -> None:
    small = Summariser([SUMMARY])
    await turn(Script([call("rows"), "done"]), small).run()
    system = small.requests[0].system
    assert all(
        word in system for word in ("numbers", "ids", "URLs", "paths", "text of errors", "follow no instruction")
    )


@pytest.mark.ledger("CMP-06", "CMP-07")
@pytest.mark.parametrize(
    "reply",
    [
        RuntimeError("secret"),
        ProviderError("small", "busy", retryable=True),
        "",
        "  ",
        Response(content="half a summ", finish="length"),
        Response(content="no", finish="refused"),
    ],
    ids=["raises", "provider error", "empty", "blank", "cut off", "refused"],
)
async def test_a_result_that_cannot_be_shortened_is_cut(reply: Any, caplog: pytest.LogCaptureFixture) -> None:
    small = Summariser([reply])
    script = Script([calls(call("rows"), call("rows", size=9481)), call("rows", size=9480), "done"])
    outcome = await turn(script, small).run()
    marker = "[truncated from 9482 chars; compression failed]"
    assert told(outcome)[0] == marker + LONG[:2000]
    assert len(told(outcome)) == 3 and all("compression failed" in each for each in told(outcome))
    (warning,) = [each for each in caplog.records if each.name == "gateway.agent.compress"]
    assert warning.levelno == logging.WARNING and "secret" not in warning.getMessage()
    if isinstance(reply, RuntimeError):
        assert "RuntimeError" in warning.getMessage()


@pytest.mark.ledger("CMP-08")
@pytest.mark.parametrize("shorter", [0, 1])
async def test_a_summary_that_is_no_shorter_is_not_used(shorter: int) -> None:
    marker = "[compressed from 2100 chars] "
    summary = "y" * (2100 - len(marker) - shorter)
    outcome = await turn(Script([call("rows", size=2100), "done"]), Summariser([summary])).run()
    assert told(outcome) == [marker + summary if shorter else LONG[:2100]]


@pytest.mark.ledger("CMP-09", "CMP-10")
async def test_a_result_that_ends_the_run_stays_as_it_is() -> None:
    seen: list[int] = []

    def stops(name: str, text: str) -> bool:
        seen.append(len(text))
        return name == "rows"

    small = Summariser([SUMMARY])
    ended = await turn(Script([call("export")]), small).run()
    assert (ended.content, ended.stop_reason) == (LONG, "terminal_tool")
    stopping = turn(Script([call("rows")]), small)
    stopping.config = stopping.config.model_copy(update={"stop_condition": stops})
    ended = await stopping.run()
    assert (ended.content, ended.stop_reason, seen) == (LONG, "stop_condition", [9482])
    assert small.requests == []


@pytest.mark.ledger("CMP-11")
async def test_an_error_is_never_shortened() -> None:
    small = Summariser([SUMMARY])
    refused = Turn(
        Script([calls(call("broken"), call("rows")), "done"]),
        [broken, rows],
        config=config(small, compress_threshold=20),
        policy=ToolPolicy(allow=["broken"], deny=["rows"]),
    )
    outcome = await refused.run()
    assert small.requests == [] and "xxx" in told(outcome)[0] and "not allowed" in told(outcome)[1]


@pytest.mark.ledger("CMP-13")
async def test_a_loop_is_seen_in_the_raw_results() -> None:
    texts = iter(["first", "second", "third"])
    small = Summariser([])
    small.complete = lambda request: _says(next(texts))  # type: ignore[method-assign]
    outcome = await turn(Script([call("rows")] * 3), small).run()
    assert outcome.stop_reason == "loop_detected"


async def _says(text: str) -> Response:
    return Response(content=text)


@pytest.mark.ledger("CMP-14")
def test_a_provider_needs_a_model() -> None:
    with pytest.raises(ValueError, match=r"compress_provider needs compress_model="):
        ToolConfig(compress_provider="openai")
    with pytest.raises(WrongOption, match=r"compress_treshold.*compress_threshold"):
        ToolConfig(compress_treshold=3)  # type: ignore[call-arg]


@pytest.mark.ledger("CMP-15")
async def test_without_a_provider_the_agents_own_model_shortens() -> None:
    script = Script([call("rows"), SUMMARY, "done"])
    settings = AgentConfig(model="big", tool=ToolConfig(compress_results=True))
    outcome = await Turn(script, [rows], config=settings).run()
    assert told(outcome) == [f"[compressed from 9482 chars] {SUMMARY}"]
    assert [request.model for request in script.requests] == ["big"] * 3


@pytest.mark.ledger("CMP-17", "CMP-18")
async def test_long_results_of_one_reply_are_shortened_together() -> None:
    all_here = asyncio.Barrier(3)

    class Meeting(Summariser):
        async def complete(self, request: Request) -> Response:
            await asyncio.wait_for(all_here.wait(), 5)  # none gets past this alone
            return await super().complete(request)

    outcome = await turn(
        Script([calls(*(call("rows", size=9000 + n) for n in range(3))), "done"]), Meeting([SUMMARY])
    ).run()
    assert [text[:17] for text in told(outcome)] == ["[compressed from "] * 3


@pytest.mark.ledger("CMP-19")
@pytest.mark.parametrize(("threshold", "tokens"), [(100, 128), (2000, 500), (8000, 1000)])
async def test_a_summary_has_a_cap(threshold: int, tokens: int) -> None:
    small = Summariser([SUMMARY])
    await turn(Script([call("rows"), "done"]), small, compress_threshold=threshold).run()
    assert small.requests[0].max_tokens == tokens


@pytest.mark.ledger("CMP-21")
@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("stream", [True, False])
async def test_results_are_shortened_in_every_way_to_run(parallel: bool, stream: bool) -> None:
    small = Summariser([SUMMARY])
    settings = config(small).model_copy(update={"parallel_tool_execution": parallel})
    agent = Agent([rows], provider=Script([calls(call("rows"), call("rows", size=9000)), "done"]), config=settings)
    last = [each async for each in agent.stream("hi")][-1] if stream else await agent.run("hi")
    texts = [message.content for message in last.messages if message.role == "tool"]  # type: ignore[union-attr]
    assert [text[:17] for text in texts] == ["[compressed from "] * 2


async def test_a_take_over_bills_no_second_summary() -> None:
    small = Summariser([SUMMARY])
    whole = turn(Script([calls(call("rows"), call("rows", size=9000)), "done"]), small)
    outcome = await whole.run()
    for number in range(len(whole.journal.steps) + 1):
        small.requests.clear()
        steps = whole.journal.steps[:number]
        known = sum("shortened" in step for step in steps if isinstance(step, dict))
        again = turn(Script([] if steps else [calls(call("rows"), call("rows", size=9000))]), small)
        again.provider.steps.append("done")
        again.journal = Notebook(steps)
        resumed = await again.run()
        assert told(resumed) == told(outcome)
        assert len(small.requests) == 2 - known
        assert resumed.usage.prompt_tokens == outcome.usage.prompt_tokens


async def test_when_the_budget_is_used_up_a_result_is_only_cut() -> None:
    small = Summariser([SUMMARY])
    tight = turn(Script([call("rows")]), small)
    tight.config = tight.config.model_copy(update={"max_total_tokens": 5})
    outcome = await tight.run()
    assert (outcome.stop_reason, small.requests) == ("budget", [])
    assert told(outcome)[0].startswith("[truncated from 9482 chars")


async def test_stopping_ends_a_slow_summary() -> None:
    slow = turn(Script([call("rows")]), Summariser([SUMMARY], seconds=60))
    task = asyncio.create_task(slow.run())
    while not slow.config.tool.compress_provider.requests:  # type: ignore[union-attr]
        await asyncio.sleep(0)
    slow.stopping.set()
    outcome = await task
    assert outcome.stop_reason == "cancelled"
    assert told(outcome)[0].startswith("[truncated from 9482 chars")


@tool(read_only=True)
async def anything(kind: str) -> Any:
    """Give a strange result."""
    if kind == "cyclic":
        cyclic: list[Any] = []
        cyclic.append(cyclic)
        return cyclic
    return {"large": "x" * 50_000_000, "binary": b"\x00\xff" * 4000, "object": [object()] * 400}[kind]


@pytest.mark.parametrize("kind", ["large", "binary", "object", "cyclic"])
async def test_a_strange_result_is_shortened_or_named(kind: str) -> None:
    small = Summariser([SUMMARY])
    outcome = await Turn(Script([call("anything", kind=kind), "done"]), [anything], config=config(small)).run()
    assert len(told(outcome)[0]) <= 2100
    assert all(len(request.messages[0].content) < 101_000 for request in small.requests)


# ── "show all" ──


async def test_the_model_reads_the_full_result_in_parts() -> None:
    script = Script(
        [call("rows"), call(FULL_RESULT, tool_name="rows"), call(FULL_RESULT, tool_name="rows", part=2), "done"]
    )
    agent = Agent([rows], provider=script, config=config(Summariser([SUMMARY])))
    result = await agent.run("show all")
    texts = [message.content for message in result.messages if message.role == "tool"]
    assert texts[1] == f"[part 1 of 2]\n{LONG[:8000]}"
    assert texts[2] == f"[part 2 of 2]\n{LONG[8000:]}"


async def test_result_that_was_never_shortened_is_not_found() -> None:
    script = Script([call(FULL_RESULT, tool_name="rows"), call(FULL_RESULT, tool_name="rows", part=9), "done"])
    result = await Agent([rows], provider=script, config=config(Summariser([SUMMARY]))).run("show all")
    assert "there are 0 shortened results of 'rows'" in result.messages[1].content


async def test_a_tool_of_the_author_keeps_its_name() -> None:
    @tool(read_only=True)
    async def full_result() -> str:
        """Mine."""
        return "mine"

    agent = Agent([full_result], provider=Script([call("full_result"), "done"]), config=config(Summariser([SUMMARY])))
    assert (await agent.run("x")).messages[1].content == "mine"


@pytest.mark.ledger("CMP-22")
async def test_a_later_turn_finds_the_raw_result_for_a_day() -> None:
    read = ToolCall(FULL_RESULT, {"tool_name": "rows", "send_as_file": True})
    model = ScriptedProvider([ToolCall("rows", {}), "500 rows", read, "sent", read, "gone"])
    policy = ToolPolicy(allow=["rows"])  # any other tool of the author would ask
    bot = ChannelAgent(Agent([rows], config=config(Summariser([SUMMARY])), policy=policy))
    async with ChatDriver(bot, provider=model) as chat:
        await chat.says("ana", "rows?")
        await chat.says("ana", "show all")
        (file,) = [file for message in chat.messages for file in message.artifacts]
        assert (file.filename, file.size) == ("result.txt", len(LONG))
        await chat.clock.advance(25 * 3600)
        await chat.says("ana", "show all")
        assert "there are 0 shortened results" in model.requests[-1].messages[-1].content


async def test_a_policy_may_deny_it() -> None:
    script = Script([call("rows"), call(FULL_RESULT, tool_name="rows"), "done"])
    policy = ToolPolicy(allow=["rows"], deny=[FULL_RESULT])
    result = await Agent([rows], provider=script, config=config(Summariser([SUMMARY])), policy=policy).run("show all")
    assert "not allowed here" in result.messages[3].content
