"""The agent alone: run, stream, batch, and the settings."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any

import pytest
from pydantic import ValidationError

from gateway import Agent, AgentConfig, AgentResult, LoggingObserver, StreamChunk
from gateway.agent.aside import SideProviders
from gateway.agent.calls import CallRunner
from gateway.agent.checking import CallChecker
from gateway.agent.compress import Compressor
from gateway.agent.executing import CallExecutor
from gateway.agent.journal import Progress
from gateway.agent.model import ModelCaller
from gateway.agent.replies import Replies
from gateway.artifacts import emit_artifact
from gateway.config.options import WrongOption
from gateway.observe.usage import UsageMeter
from gateway.providers import (
    FallbackProvider,
    ModelMessage,
    ProviderConfigurationError,
    ProviderError,
    Request,
    Response,
    Usage,
)
from gateway.providers.aside import Aside
from gateway.testing import ChatDriver, RecordingObserver
from gateway.tools import Tool, ToolContext, ToolValidationError, tool
from gateway.wording import say
from tests.agent.scripted import Script, call, calls


@tool(read_only=True)
async def chart(name: str) -> str:
    """Draw a chart."""
    emit_artifact(f"https://example.org/{name}.png", mime_type="image/png", filename=f"{name}.png", role="primary")
    return f"chart of {name}"


def script() -> Script:
    return Script([call("chart", name="Q2"), "Here it is"])


@pytest.mark.ledger("RUN-03", "LOOP-04", "LOOP-20")
async def test_every_way_in_gives_the_same_result() -> None:
    scripts = [script() for _ in range(5)]
    agents = [Agent([chart], provider=each) for each in scripts]
    ran = await agents[0].run("chart Q2")
    *chunks, streamed = [piece async for piece in agents[1].stream("chart Q2")]
    (batched,) = await agents[2].batch(["chart Q2"])
    synchronous = await asyncio.to_thread(agents[3].run_sync, "chart Q2")
    called = await agents[4]("chart Q2")
    assert ran.content == "Here it is"
    for each in scripts:
        assert [(message.role, message.content) for message in each.requests[0].messages] == [("user", "chart Q2")]
    assert ran == streamed == batched == synchronous == called
    assert all(isinstance(chunk, StreamChunk) for chunk in chunks)


async def test_message_of_another_kind_is_refused_with_the_mend() -> None:
    hi: Any = {"role": "user", "content": "Hi"}
    with pytest.raises(TypeError, match=r'not dict: ModelMessage\(role="user", content="Hi"\)'):
        await Agent(provider=script()).run([hi])
    message = ModelMessage(role="user", content="Hi")
    assert (await Agent([chart], provider=script()).run([message])).content == "Here it is"


@pytest.mark.ledger("STOP-06")
@pytest.mark.parametrize("reason", ["terminal_tool", "stop_condition"])
async def test_terminal_tool_beside_another_call_ends_every_way_to_run(reason: str) -> None:
    @tool(terminal=reason == "terminal_tool")
    def finish() -> str:
        """Finish."""
        return "finished"

    def ending() -> Agent:
        ends = None if reason == "terminal_tool" else lambda name, _: name == "finish"
        provider = Script([calls(call("chart", name="Q2"), call("finish"))])
        return Agent([chart, finish], provider=provider, config=AgentConfig(stop_condition=ends))

    ran = await ending().run("go")
    *_, streamed = [piece async for piece in ending().stream("go")]
    synchronous = await asyncio.to_thread(ending().run_sync, "go")
    assert (ran.stop_reason, ran.content) == (reason, "finished")
    assert [ran] == await ending().batch(["go"])
    assert ran == streamed == synchronous


@pytest.mark.ledger("RUN-08", "RUN-09")
async def test_a_stream_gives_chunks_and_the_result_last() -> None:
    pieces = [piece async for piece in Agent(provider=Script([["He", "llo"]])).stream("hi")]
    assert pieces[:2] == [StreamChunk("He"), StreamChunk("llo")]
    assert isinstance(pieces[2], AgentResult)
    assert pieces[2].content == "Hello"


async def test_leaving_a_stream_ends_its_run() -> None:
    ended = asyncio.Event()

    class Slow(Script):
        async def stream(self, request: Request) -> Any:
            try:
                yield "one"
                await asyncio.Event().wait()
            finally:
                ended.set()

    stream: Any = Agent(provider=Slow([])).stream("hi")
    async for piece in stream:
        assert piece == StreamChunk("one")
        break
    await stream.aclose()
    assert ended.is_set()


@pytest.mark.ledger("RES-10", "RES-12", "RES-16")
async def test_artifacts_belong_to_their_own_run() -> None:
    agent_q1 = Agent([chart], provider=Script([call("chart", name="Q1"), "a"]))
    agent_q2 = Agent([chart], provider=Script([call("chart", name="Q2"), "b"]))
    one, two = await asyncio.gather(agent_q1.run("x"), agent_q2.run("x"))
    assert [a.filename for a in one.artifacts] == ["Q1.png"]
    assert [a.filename for a in two.artifacts] == ["Q2.png"]
    said = [one.content, *(message.content for message in one.messages)]
    assert not any("http" in text or "Q1.png" in text for text in said), "neither the model nor the answer names it"


@pytest.mark.ledger("LOOP-22", "ERR-11")
@pytest.mark.parametrize(("retryable", "times"), [(True, 3), (False, 1)])
async def test_model_that_stays_down_is_a_result_without_words(retryable: bool, times: int) -> None:
    script = Script([ProviderError("script", "500 password=hunter2", retryable=retryable) for _ in range(4)])
    result = await Agent(provider=script, config=AgentConfig(max_retries=2, retry_backoff_seconds=0.0)).run("hi")
    assert (result.stop_reason, result.content, len(script.requests)) == ("provider_error", "", times)
    assert result.error == "script: 500 password=hunter2"
    assert [step.error for step in result.trace.filter(type="error")] == [result.error] * times


@pytest.mark.ledger("LOOP-22")
async def test_person_reads_no_detail_of_a_model_that_is_down() -> None:
    script = Script([ProviderError("script", "500 password=hunter2", retryable=False)])
    async with ChatDriver(Agent(provider=script)) as chat:
        await chat.says("ana", "hi")
        assert [each.text for each in chat.messages] == [say("model_down", "en")]


@pytest.mark.ledger("LOOP-06")
async def test_a_conversation_is_a_message_too() -> None:
    provider = Script(["ok"])
    said = [ModelMessage(role="user", content="a"), ModelMessage(role="assistant", content="b")]
    await Agent(provider=provider).run([*said, ModelMessage(role="user", content="c")])
    assert [m.content for m in provider.requests[0].messages] == ["a", "b", "c"]


@pytest.mark.ledger("LOOP-24", "RUN-15")
async def test_runs_of_one_agent_share_no_messages() -> None:
    class Echo(Script):
        async def complete(self, request: Request) -> Response:
            return Response(content=" ".join(m.content for m in request.messages))

    results = await Agent(provider=Echo([])).batch(["a", "b", "c"], max_concurrency=2)
    assert [result.content for result in results] == ["a", "b", "c"]


@pytest.mark.ledger("LOOP-02", "LOOP-03")
async def test_agent_takes_its_name_from_the_config() -> None:
    assert Agent().name == "agent"
    assert Agent(config=AgentConfig(name="researcher")).name == "researcher"


async def test_instructions_may_depend_on_the_context() -> None:
    provider = Script(["ok"])
    agent = Agent(provider=provider, instructions=lambda ctx: f"You speak {ctx.language}.")
    await agent.run("hi", context=ToolContext(person="app:-:ana", language="pt"))
    assert provider.requests[0].system == "You speak pt."


async def test_agent_answers_with_another_provider() -> None:
    agent = Agent([chart], provider="openai:none")
    assert (await agent.using(Script(["ok"])).run("hi")).content == "ok"


@pytest.mark.ledger("CFG-32")
async def test_provider_that_cannot_be_made_gives_the_reason() -> None:
    with pytest.raises(ProviderConfigurationError, match="no such provider"):
        await Agent(provider="nobody:x").run("hi")


@pytest.mark.ledger("RUN-06", "RUN-07")
async def test_sync_and_async_tools_run_in_one_run() -> None:
    @tool(read_only=True)
    def slow() -> str:
        """Sync."""
        return "sync"

    assert (chart.is_async, slow.is_async) == (True, False)
    provider = Script([call("slow"), call("chart", name="a"), "ok"])
    result = await Agent([slow, chart], provider=provider).run("x")
    assert [m.content for m in result.messages if m.role == "tool"] == ["sync", "chart of a"]


@pytest.mark.ledger("PYG-22")
async def test_two_tools_of_one_name_are_refused() -> None:
    def other() -> Sequence[Tool]:
        return [tool(name="chart", description="Another.")(lambda: None)]

    with pytest.raises(ToolValidationError, match="another tool has this name"):
        Agent([chart, *other()])


@pytest.mark.parametrize(
    "defaults",
    [
        pytest.param(
            {"model": None, "temperature": 0.0, "max_tokens": 1000}, marks=pytest.mark.ledger("CFG-02", "CFG-03")
        ),
        pytest.param(
            {"max_retries": 2, "retry_backoff_seconds": 1.0, "rate_limit_cooldown_seconds": 5.0},
            marks=pytest.mark.ledger("CFG-05", "CFG-06", "CFG-07"),
        ),
        pytest.param(
            {"request_timeout_seconds": 30.0, "tool_timeout_seconds": 30.0},
            marks=pytest.mark.ledger("CFG-08", "CFG-09", "RTY-13"),
        ),
        pytest.param({"confirm_action": None, "approval_timeout_seconds": 60.0}, marks=pytest.mark.ledger("CFG-19")),
        pytest.param({"stream": True, "cost_warning_threshold": None}, marks=pytest.mark.ledger("CFG-10", "CFG-17")),
        pytest.param(
            {"parallel_tool_execution": True, "max_iterations": 6, "cache": None},
            marks=pytest.mark.ledger("CFG-04", "CFG-16", "CFG-18"),
        ),
        {"routing_only": False, "max_total_tokens": None},
    ],
    ids=str,
)
def test_config_without_arguments_has_the_documented_defaults(defaults: dict[str, Any]) -> None:
    config = AgentConfig()
    assert {name: getattr(config, name) for name in defaults} == defaults
    assert Agent().policy is None


@pytest.mark.ledger("LOOP-01")
async def test_agent_is_made_once_and_counts_its_tools_if_asked() -> None:
    plain, counting = Agent([chart], provider=script()), Agent([chart], config=AgentConfig(enable_analytics=True))
    assert list(plain.tools) == ["chart"] and plain.get_analytics() is None is not counting.get_analytics()
    provider = Script([call("chart", name="Q2"), "a", "b"])
    for message in ("chart Q2", "again"):
        await plain.using(provider).run(message)
    first, *others = (request.tools for request in provider.requests)
    assert all(specs[0] is first[0] for specs in others)
    assert [len(request.messages) for request in provider.requests] == [1, 3, 1], "each run begins with no history"


@pytest.mark.ledger("CFG-31")
@pytest.mark.parametrize(
    "wrong",
    [
        {"max_iterations": 0},
        {"max_iterations": 51},
        {"request_timeout_seconds": float("inf")},
        {"tool_timeout_seconds": 0},
        {"retry_backoff_seconds": -1},
        {"temprature": 0.0},
    ],
)
def test_settings_outside_their_limits_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(WrongOption, match=next(iter(wrong))):
        AgentConfig(**wrong)


def test_the_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        AgentConfig().name = "other"  # type: ignore[misc]


@pytest.mark.ledger("PYG-08")
def test_objects_shared_by_runs_cannot_be_changed() -> None:
    agent = Agent([chart], provider=script())
    with pytest.raises(ValidationError, match="frozen"):
        agent.config.max_iterations = 3  # type: ignore[misc]
    with pytest.raises(AttributeError):
        agent.tools = {}  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        ToolContext(person="app:-:ana").person = "app:-:ben"  # type: ignore[misc]


@pytest.mark.ledger("PYG-18")
async def test_two_agents_may_have_a_tool_of_one_name() -> None:
    def named(result: str) -> Tool:
        async def look() -> str:
            """Look."""
            return result

        return Tool(look, name="look")

    one, two = (Agent([named(text)], provider=Script([call("look"), "ok"])) for text in ("first", "second"))
    assert [(await agent.run("x")).messages[1].content for agent in (one, two)] == ["first", "second"]


@pytest.mark.ledger("LOOP-21")
@pytest.mark.parametrize(
    "part", [Agent, CallChecker, CallExecutor, CallRunner, Compressor, ModelCaller, Progress, Replies]
)
def test_an_agent_is_made_of_parts_and_of_no_mixins(part: type) -> None:
    assert part.__mro__ == (part, object)
    assert sum(callable(each) for name, each in vars(part).items() if not name.startswith("_")) <= 20


# ── Many runs at once: order, failures, progress ──


@dataclass
class Echo:
    """A Provider echoing the message, ending the runs in the order of `turns`, and failing at the words in `fails`."""

    fails: dict[str, Exception] = field(default_factory=dict)
    name: str = "echo"
    running: int = 0
    most: int = 0

    async def complete(self, request: Request) -> Response:
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(3):
            await asyncio.sleep(0)
        self.running -= 1
        said = request.messages[-1].content
        if said in self.fails:
            raise self.fails[said]
        return Response(content=f"You said {said}.")

    async def stream(self, request: Request) -> AsyncIterator[str | Response]:
        yield await self.complete(request)

    async def close(self) -> None: ...


PROMPTS = ["Cancel my sub", "How do I upgrade?", "Payment failed"]


@pytest.mark.ledger("BATCH-02", "BATCH-06")
async def test_results_come_in_the_order_of_the_messages() -> None:
    results = await Agent(provider=Echo()).batch(PROMPTS, max_concurrency=5)
    assert [result.content for result in results] == [f"You said {each}." for each in PROMPTS]
    assert len({result.trace.run_id for result in results}) == 3


@pytest.mark.ledger("BATCH-03", "BATCH-04", "BATCH-07")
async def test_one_failure_is_one_failed_result() -> None:
    seen, ended = RecordingObserver(), []
    agent = Agent(
        provider=Echo({PROMPTS[2]: ProviderError("echo", "down", retryable=False)}),
        config=AgentConfig(observers=(seen,)),
    )
    messages: list[Any] = [PROMPTS[0], 5, PROMPTS[2]]
    first, second, third = await agent.batch(messages, on_progress=lambda done, total: ended.append((done, total)))
    assert (first.stop_reason, first.content) == ("answered", "You said Cancel my sub.")
    assert (second.stop_reason, second.content) == ("error", "")
    assert second.error == 'TypeError: a message is a ModelMessage, not int: ModelMessage(role="user", content="Hi")'
    assert (third.stop_reason, third.error) == ("provider_error", "echo: down")
    assert ended == [(1, 3), (2, 3), (3, 3)]
    told = {name: fields for name, fields in seen.events if name.startswith("batch_")}
    assert told["batch_start"]["prompts_count"] == 3
    assert (told["batch_end"]["results_count"], told["batch_end"]["errors_count"]) == (3, 2)
    assert told["batch_end"]["batch_id"] == told["batch_start"]["batch_id"]
    assert told["batch_end"]["total_duration_ms"] >= 0


@pytest.mark.ledger("BATCH-01")
@pytest.mark.parametrize("most", [1, 5])
async def test_so_many_runs_are_active_at_once(most: int) -> None:
    echo = Echo()
    results = await Agent(provider=echo).batch([str(n) for n in range(20)], max_concurrency=most)
    assert (len(results), echo.most) == (20, most)


@pytest.mark.ledger("BATCH-04")
async def test_error_of_on_progress_is_logged_and_changes_no_result(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(done: int, total: int) -> None:
        raise KeyError("shown")

    with caplog.at_level(logging.WARNING):
        results = await Agent(provider=Echo()).batch(PROMPTS, on_progress=broken)
    assert [result.stop_reason for result in results] == ["answered"] * 3
    assert "on_progress raised KeyError" in caplog.text


async def test_a_batch_that_cannot_begin_says_why() -> None:
    with pytest.raises(ValueError, match="max_concurrency should be 1 or more, not 0"):
        await Agent(provider=Echo()).batch(PROMPTS, max_concurrency=0)
    with pytest.raises(ProviderConfigurationError):
        await Agent(provider="nosuch:model").batch(PROMPTS)
    assert await Agent(provider=Echo()).batch([]) == []


async def test_a_cancelled_batch_cancels_its_runs() -> None:
    seen = RecordingObserver()
    agent = Agent(provider=Echo(), config=AgentConfig(observers=(seen,)))
    task = asyncio.create_task(agent.batch(PROMPTS))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sum(name == "cancelled" for name, _ in seen.events) == sum(name == "run_start" for name, _ in seen.events)


# ── The settings for common uses ──


@pytest.mark.ledger("CFG-27")
def test_production_has_more_room_and_patience() -> None:
    config = AgentConfig.profile("production")
    assert (config.max_tokens, config.max_iterations, config.max_retries) == (2000, 10, 3)
    assert (config.retry_backoff_seconds, config.rate_limit_cooldown_seconds) == (2.0, 10.0)
    assert (config.request_timeout_seconds, config.tool_timeout_seconds) == (60.0, 30.0)
    assert (config.cost_warning_threshold, config.enable_analytics) == (0.5, True)


@pytest.mark.ledger("CFG-29", "CFG-30")
def test_dev_logs_everything_and_budget_spends_little() -> None:
    dev, budget = AgentConfig.profile("dev"), AgentConfig.profile("budget")
    assert dev.max_iterations == 3
    assert [type(observer) for observer in dev.observers] == [LoggingObserver]
    assert (budget.max_tokens, budget.max_iterations, budget.cost_warning_threshold) == (500, 3, 0.01)


def test_changes_win_and_mistakes_are_named() -> None:
    assert AgentConfig.profile("budget", max_tokens=9, name="ana").max_tokens == 9
    with pytest.raises(WrongOption, match="profile should be one of production, production_cached, dev, budget"):
        AgentConfig.profile("cheap")  # type: ignore[arg-type]
    with pytest.raises(WrongOption, match=r"max_token .*max_tokens"):
        AgentConfig.profile("budget", max_token=9)


@pytest.mark.ledger("MISC-13")
@pytest.mark.parametrize(
    ("strategy", "word"), [("react", "Before each tool call"), ("cot", "step by step"), ("plan_then_act", "plan")]
)
async def test_a_strategy_stands_behind_the_instructions(strategy: Any, word: str) -> None:
    script = Script(["yes", "yes"])
    config = AgentConfig(reasoning_strategy=strategy)
    await Agent(provider=script, instructions="Be brief.", config=config).run("hello")
    await Agent(provider=script, config=config).run("hello")
    first, second = (request.system for request in script.requests)
    assert first == f"Be brief.\n\n{second}"
    assert word in second
    with pytest.raises(WrongOption, match="reasoning_strategy should be 'react', 'cot' or 'plan_then_act'"):
        AgentConfig(reasoning_strategy="guess")


# ── Small calls to a model beside the conversation ──


async def test_a_side_call_is_one_message_without_tools_and_is_booked() -> None:
    script, booked = Script(["short"]), list[Usage]()
    aside = Aside(provider=script, model="small", timeout_seconds=5, book=booked.append)
    response = await aside.ask("long", system="Shorten it.", max_tokens=20)
    assert response.content == "short" and booked == [response.usage]
    (request,) = script.requests
    assert (request.system, request.model, request.max_tokens, request.tools) == ("Shorten it.", "small", 20, ())
    assert [message.content for message in request.messages] == ["long"]


async def test_a_failed_side_call_is_not_booked_and_not_retried() -> None:
    script, booked = Script([ProviderError("script", "down", retryable=True), "never"]), list[Usage]()
    with pytest.raises(ProviderError):
        await Aside(provider=script, model=None, timeout_seconds=5, book=booked.append).ask("long", max_tokens=20)
    assert booked == [] and len(script.requests) == 1


async def test_a_chain_answers_a_side_call() -> None:
    first, second = Script([ProviderError("first", "down", retryable=True)]), Script(["short"])
    agent = Agent(provider=Script([]))
    provider = await SideProviders(agent._made, UsageMeter()).get(FallbackProvider([first, second]))
    response = await Aside(provider=provider, model=None, timeout_seconds=5, book=lambda _: None).ask("x", max_tokens=9)
    assert response.content == "short"


async def test_each_side_provider_is_made_once() -> None:
    agent = Agent(provider=Script([]))
    sides = SideProviders(agent._made, UsageMeter())
    assert await sides.get(None) is agent.provider and sides.made() == []
    assert await sides.get("demo") is await sides.get("demo")
    assert [provider.name for provider in sides.made()] == ["demo"]
