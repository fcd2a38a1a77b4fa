"""Runs that are cancelled by a token, from any thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from gateway import Agent, AgentConfig, CancellationToken, ToolContext, tool
from gateway.providers import Request, Response
from gateway.testing import RecordingObserver
from tests.agent.scripted import Script, call, calls


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
    """A Provider whose request hangs until it is dropped."""

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
