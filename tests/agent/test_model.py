"""Calls to the model: requests, streams, retries, and the end of retries."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway import Agent, CancellationToken, ToolContext
from gateway.agent import AgentConfig, LoopPorts
from gateway.observe.events import LlmError, LlmRetry
from gateway.providers import ProviderError, Request, Response
from gateway.providers.base import Usage
from gateway.testing import RecordingObserver
from gateway.tools import tool
from tests.agent.scripted import Person, Script, Turn, call, calls


def error(
    code: str, *, retryable: bool = True, rate_limited: bool = False, retry_after_seconds: float | None = None
) -> ProviderError:
    return ProviderError(
        "script", code, retryable=retryable, rate_limited=rate_limited, retry_after_seconds=retry_after_seconds
    )


@pytest.mark.ledger("RTY-01", "RTY-04", "CFG-07")
async def test_too_many_calls_wait_for_cooldown_and_backoff() -> None:
    busy = error("too many requests", rate_limited=True)
    turn = Turn(Script([busy, busy, "here"]), [])
    assert (await turn.run()).content == "here"
    assert turn.waits == [6.0, 12.0]
    assert len(turn.provider.requests) == 3


@pytest.mark.ledger("RTY-05", "CFG-06")
async def test_a_share_of_chance_is_added_to_a_wait() -> None:
    """Clients with a common failure do not come back together."""
    turn = Turn(Script([error(f"boom {number}") for number in range(1, 5)]), [], AgentConfig(max_retries=3))
    with pytest.raises(ProviderError, match="boom 4"):
        await turn.run(jitter=lambda: 0.5)
    assert turn.waits == pytest.approx([1.05, 2.1, 3.15])


@pytest.mark.ledger("RTY-05", "RTY-06", "CFG-06")
async def test_other_errors_back_off_and_the_last_one_is_raised() -> None:
    turn = Turn(Script([error("boom 1"), error("boom 2"), error("boom 3")]), [])
    with pytest.raises(ProviderError, match="boom 3"):
        await turn.run()
    assert turn.waits == [1.0, 2.0]
    assert [event.retry_in_seconds for event in turn.told.of_kind(LlmError)] == [1.0, 2.0, None]


@pytest.mark.ledger("RTY-14", "RUN-02")
async def test_a_wait_before_a_retry_holds_back_no_other_run() -> None:
    waits, go_on = asyncio.Event(), asyncio.Event()

    async def sleep(seconds: float) -> None:
        waits.set()
        await go_on.wait()

    agent = Agent(provider=Script([error("boom"), "the other", "the first"]))
    first = asyncio.create_task(
        agent.answer([], context=ToolContext(person="app:-:-"), on_confirm=Person(), ports=LoopPorts(sleep=sleep))
    )
    await waits.wait()
    assert (await agent.run("hello")).content == "the other"
    go_on.set()
    assert (await first).content == "the first"


@pytest.mark.ledger("OBS-10", "RTY-08")
async def test_each_backoff_is_told_before_it_is_waited_for() -> None:
    turn = Turn(Script([error("boom 1"), error("boom 2"), "here"]), [])
    await turn.run()
    retries = turn.told.of_kind(LlmRetry)
    assert [(event.attempt, event.max_retries, event.backoff_seconds) for event in retries] == [
        (1, 2, 1.0),
        (2, 2, 2.0),
    ]
    assert [str(event.error) for event in retries] == ["script: boom 1", "script: boom 2"]
    assert turn.waits == [event.backoff_seconds for event in retries]


@pytest.mark.ledger("RTY-02", "RTY-03")
@pytest.mark.parametrize(
    "last", [error("401", retryable=False), error("429", rate_limited=True, retry_after_seconds=3600)]
)
async def test_an_error_that_does_not_pass_is_raised_at_once(last: ProviderError) -> None:
    turn = Turn(Script([last]), [])
    with pytest.raises(ProviderError):
        await turn.run()
    assert turn.waits == []


@pytest.mark.ledger("CFG-07")
async def test_the_providers_own_wait_wins() -> None:
    turn = Turn(Script([error("429", rate_limited=True, retry_after_seconds=3.5), "here"]), [])
    await turn.run()
    assert turn.waits == [3.5]


@pytest.mark.ledger("RTY-07")
async def test_zero_backoff_never_waits_and_zero_retries_try_once() -> None:
    turn = Turn(Script([error("boom"), "here"]), [], AgentConfig(retry_backoff_seconds=0))
    assert (await turn.run()).content == "here"
    assert turn.waits == []
    with pytest.raises(ProviderError):
        await Turn(Script([error("boom"), "here"]), [], AgentConfig(max_retries=0)).run()


@pytest.mark.ledger("RTY-09", "CFG-02", "CFG-03")
async def test_the_settings_go_with_every_call() -> None:
    turn = Turn(Script(["ok"]), [], AgentConfig(model="m", temperature=None, max_tokens=7, request_timeout_seconds=9))
    await turn.run(system="Be kind.")
    (request,) = turn.provider.requests
    assert (request.model, request.temperature, request.max_tokens, request.timeout_seconds) == ("m", None, 7, 9)
    assert (request.system, request.language) == ("Be kind.", "en")


@pytest.mark.ledger("CFG-08")
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_provider_that_never_answers_is_an_error_that_may_pass(streamed: bool) -> None:
    class Silent(Script):
        async def complete(self, request: Request) -> Response:
            await asyncio.Event().wait()
            raise AssertionError

        async def stream(self, request: Request) -> AsyncIterator[str | Response]:
            yield await self.complete(request)

    turn = Turn(Silent([]), [], AgentConfig(request_timeout_seconds=0.01, max_retries=1))
    with pytest.raises(ProviderError, match=r"no answer within 0.01 s"):
        await turn.run(on_text=(lambda text: None) if streamed else None)
    assert turn.waits == [1.0]


@pytest.mark.ledger("RUN-04", "RUN-12")
async def test_text_is_handed_out_as_it_comes() -> None:
    heard: list[str] = []

    async def on_text(text: str) -> None:
        heard.append(text)

    outcome = await Turn(Script([["He", "llo"]]), []).run(on_text=on_text)
    assert (heard, outcome.content) == (["He", "llo"], "Hello")


async def test_broken_stream_runs_no_call_and_is_not_repeated() -> None:
    ran: list[str] = []

    @tool
    async def wipe() -> None:
        """Wipe."""
        ran.append("wipe")

    heard: list[str] = []
    turn = Turn(Script([["I wi", error("broken")], call("wipe")]), [wipe])
    with pytest.raises(ProviderError, match="broken"):
        await turn.run(on_text=heard.append)
    assert (heard, ran, turn.waits) == (["I wi"], [], [])


async def test_a_stream_that_breaks_off_before_any_text_is_tried_again() -> None:
    heard: list[str] = []
    turn = Turn(Script([[error("broken")], ["ok"]]), [])
    assert (await turn.run(on_text=heard.append)).content == "ok"
    assert (heard, turn.waits) == (["ok"], [1.0])


async def test_slow_listener_does_not_count_as_a_model_timeout() -> None:
    async def on_text(text: str) -> None:
        later = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, later.set)
        await later.wait()

    turn = Turn(Script([["He", "llo"]]), [], AgentConfig(request_timeout_seconds=0.03, max_retries=0))
    assert (await turn.run(on_text=on_text)).content == "Hello"


# ── Runs that are cancelled by a token, from any thread ──


@pytest.mark.ledger("MISC-05", "ERR-06")
async def test_a_token_set_in_a_tool_ends_the_run_after_it() -> None:
    token, seen = CancellationToken(), RecordingObserver()

    @tool(read_only=True)
    async def search(query: str, ctx: ToolContext) -> str:
        """Search."""
        token.cancel("the person went away")
        return "found"

    script = Script([call("search", query="a"), "never asked for"])
    agent = Agent([search], provider=script, config=AgentConfig(observers=(seen,)))
    result = await agent.run("find a", cancellation=token)
    assert (result.stop_reason, result.iterations, len(script.requests)) == ("cancelled", 1, 1)
    assert [message.role for message in result.messages] == ["assistant", "tool"], "the transcript is well-formed"
    assert [fields["reason"] for name, fields in seen.events if name == "cancelled"] == ["the person went away"]
    assert result.trace.stop_reason == "cancelled"


class Hanging:
    """A Provider with a request hanging until the caller drops it."""

    name = "hanging"

    def __init__(self) -> None:
        self.asked, self.dropped = threading.Event(), False

    async def complete(self, request: Request) -> Response:
        self.asked.set()
        try:
            await asyncio.Event().wait()
            raise AssertionError("nobody sets it")
        except asyncio.CancelledError:
            self.dropped = True
            raise

    async def stream(self, request: Request) -> AsyncIterator[str | Response]:
        yield await self.complete(request)

    async def close(self) -> None: ...


def test_another_thread_drops_the_request_to_the_model() -> None:
    token, hanging = CancellationToken(), Hanging()

    def cancel() -> None:
        hanging.asked.wait()
        token.cancel()

    thread = threading.Thread(target=cancel)
    thread.start()
    result = Agent(provider=hanging).run_sync("hello", cancellation=token)
    thread.join()
    assert (result.stop_reason, hanging.dropped, token.cancelled) == ("cancelled", True, True)


async def test_a_cancelled_token_asks_no_model() -> None:
    token, script = CancellationToken(), Script([])
    token.cancel("too late")
    token.cancel("again")
    result = await Agent(provider=script).run("hello", cancellation=token)
    assert (result.stop_reason, result.iterations, token.reason) == ("cancelled", 0, "too late")


async def test_one_token_ends_all_its_runs_and_no_other() -> None:
    token, hanging = CancellationToken(), Hanging()
    agent = Agent(provider=hanging)
    runs = [asyncio.create_task(agent.run("hello", cancellation=token)) for _ in range(3)]
    other = asyncio.create_task(agent.run("hello"))
    await asyncio.sleep(0.01)
    token.cancel()
    assert [result.stop_reason for result in await asyncio.gather(*runs)] == ["cancelled"] * 3
    assert not other.done()
    other.cancel()


async def test_the_end_of_the_outer_turn_ends_a_run_with_a_token() -> None:
    token, context = CancellationToken(), ToolContext(person="app:-:ana")
    run = asyncio.create_task(Agent(provider=Hanging()).run("hello", context=context, cancellation=token))
    await asyncio.sleep(0.01)
    context.stopping.set()
    assert (await run).stop_reason == "cancelled"
    assert not token.cancelled


@pytest.mark.ledger("MISC-05", "OBS-23")
async def test_the_model_of_each_call_is_selected() -> None:
    @tool(read_only=True)
    async def search(query: str) -> str:
        """Search."""
        return "found"

    seen = RecordingObserver()
    script = Script([calls(call("search", query="a")), "Found."])
    config = AgentConfig(
        model="small",
        observers=(seen,),
        model_selector=lambda iteration, messages, usage: "large" if usage.total_tokens else None,
    )
    await Agent([search], provider=script, config=config).run("find a")
    assert [request.model for request in script.requests] == ["small", "large"]
    [switch] = [fields for name, fields in seen.events if name == "model_switch"]
    assert (switch["iteration"], switch["old_model"], switch["new_model"]) == (2, "small", "large")


async def test_a_selector_that_raises_leaves_the_agents_model(caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: object) -> str:
        raise KeyError("shown to nobody")

    script = Script(["hello"])
    config = AgentConfig(model="small", model_selector=broken)
    assert (await Agent(provider=script, config=config).run("hi")).content == "hello"
    assert script.requests[0].model == "small"
    assert "model_selector raised KeyError" in caplog.text


async def test_a_blank_answer_is_paid_for_and_asked_for_once_more(caplog: pytest.LogCaptureFixture) -> None:
    def says(text: str) -> Response:
        return Response(content=text, usage=Usage(prompt_tokens=10, completion_tokens=1))

    agent = Agent(provider=Script([says(" \u200b\u3164"), says("hello")]), config=AgentConfig(retry_backoff_seconds=0))
    result = await agent.run("hi")
    assert (result.content, result.usage.total_tokens, agent.total_tokens) == ("hello", 22, 22)
    assert "blank" not in caplog.text
    agent = Agent(provider=Script([says("\n"), says("\u2800")]), config=AgentConfig(retry_backoff_seconds=0))
    assert (await agent.run("hi")).content == ""
    assert "gave a blank answer" in caplog.text
    for shown in ("\u270c\ufe0f", ".", "\u0e01"):
        agent = Agent(provider=Script([says(shown)]), config=AgentConfig(retry_backoff_seconds=0))
        assert (await agent.run("hi")).content == shown


def nested(deep: int, inside: Any = "x") -> Any:
    for number in range(deep):
        inside = [inside] if number % 2 else {"a": inside}
    return inside


@pytest.mark.parametrize(
    ("args", "fault"),
    [
        ({"text": "x" * 262_144}, None),
        ({"text": "x" * 262_145}, "more than 262144 characters"),
        ({"text": "x" * 200_000, "more": "x" * 100_000}, "more than 262144 characters"),
        ({"rows": ["\u202e" * 1000] * 300}, "more than 262144 characters"),
        ({"tree": nested(98)}, None),
        ({"tree": nested(100)}, "nested more than 100 deep"),
        ({"tree": nested(900)}, "nested more than 100 deep"),
        ({"rows": [{}] * 9_999}, None),
        ({"rows": [{}] * 10_000}, "more than 10000 values"),
        ({"rows": [[1] * 100] * 100}, "more than 10000 values"),
        ({f"field {number}": 1 for number in range(10_001)}, "more than 10000 values"),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_arguments_have_a_bounded_size(args: dict[str, Any], fault: str | None) -> None:
    taken: list[object] = []

    @tool(read_only=True)
    async def take(text: str = "", more: str = "", rows: Any = None, tree: Any = None) -> str:
        """Take."""
        taken.append((text, more, rows, tree))
        return "taken"

    script = Script([call("take", **args), "ok"])
    assert (await Agent([take], provider=script).run("hi")).content == "ok"
    told = script.requests[-1].messages[-1].content
    assert (len(taken), fault is None or fault in told) == (fault is None, True)
