"""Many runs at once: order, failures, progress."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway import Agent, AgentConfig
from gateway.providers import ProviderConfigurationError, ProviderError, Request, Response
from gateway.testing import RecordingObserver


@dataclass
class Echo:
    """A Provider that says the message, ends the runs in the order of `turns`, and fails at the words in `fails`."""

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


ASKED = ["Cancel my sub", "How do I upgrade?", "Payment failed"]


@pytest.mark.ledger("BATCH-02", "BATCH-06")
async def test_results_come_in_the_order_of_the_messages() -> None:
    results = await Agent(provider=Echo()).batch(ASKED, max_concurrency=5)
    assert [result.content for result in results] == [f"You said {each}." for each in ASKED]
    assert len({result.trace.run_id for result in results}) == 3


@pytest.mark.ledger("BATCH-03", "BATCH-04", "BATCH-07")
async def test_one_failure_is_one_failed_result() -> None:
    seen, ended = RecordingObserver(), []
    agent = Agent(
        provider=Echo({ASKED[2]: ProviderError("echo", "down", retryable=False)}),
        config=AgentConfig(observers=(seen,)),
    )
    messages: list[Any] = [ASKED[0], 5, ASKED[2]]
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
async def test_an_error_of_on_progress_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(done: int, total: int) -> None:
        raise KeyError("shown")

    with caplog.at_level(logging.WARNING):
        results = await Agent(provider=Echo()).batch(ASKED, on_progress=broken)
    assert [result.stop_reason for result in results] == ["answered"] * 3
    assert "on_progress raised KeyError" in caplog.text


async def test_a_batch_that_cannot_begin_says_why() -> None:
    with pytest.raises(ValueError, match="max_concurrency should be 1 or more, not 0"):
        await Agent(provider=Echo()).batch(ASKED, max_concurrency=0)
    with pytest.raises(ProviderConfigurationError):
        await Agent(provider="nosuch:model").batch(ASKED)
    assert await Agent(provider=Echo()).batch([]) == []


async def test_a_cancelled_batch_cancels_its_runs() -> None:
    seen = RecordingObserver()
    agent = Agent(provider=Echo(), config=AgentConfig(observers=(seen,)))
    task = asyncio.create_task(agent.batch(ASKED))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sum(name == "cancelled" for name, _ in seen.events) == sum(name == "run_start" for name, _ in seen.events)
