"""A server's answer of any form never becomes another action, and each fault is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway import Agent, AgentConfig, ChannelAgent, Confirm, Tool, tool
from gateway.engine.turns import live
from gateway.providers.anthropic import AnthropicProvider
from gateway.providers.openai import OpenAIProvider
from gateway.wording import say
from tests.engine.rig import rig
from tests.engine.streaming import Board
from tests.fakes.anthropic import FakeAnthropic
from tests.fakes.model_server import Answer, Fail
from tests.fakes.openai import FakeOpenAI
from tests.fakes.shapes import ANTHROPIC_SHAPES, OPENAI_SHAPES, SECRET, Shape

VENDORS = {
    "openai": (FakeOpenAI, OpenAIProvider, OPENAI_SHAPES),
    "anthropic": (FakeAnthropic, AnthropicProvider, ANTHROPIC_SHAPES),
}


def purge_for(ran: list[str], *, asks: bool) -> Tool:
    """Return the tool, asking first or running without a question."""

    async def purge(customer: str = "everybody") -> str:
        """Purge a customer."""
        ran.append(customer)
        return f"purged {customer}"

    return tool(confirm=Confirm("Purge {customer}?"))(purge) if asks else tool(read_only=True)(purge)


async def faults_of(vendor: str, shape: Shape, directory: Path, *, asks: bool) -> list[str]:
    """Return the faults in the handling of an answer of this shape."""
    ran: list[str] = []
    fake, provider_of, _ = VENDORS[vendor]
    async with fake() as server:
        provider = provider_of("m", api_key=server.key, base_url=server.url)
        agent = Agent([purge_for(ran, asks=asks)], provider=provider, config=AgentConfig(retry_backoff_seconds=0.0))
        async with rig(ChannelAgent(agent), directory, board := Board()) as chat:
            server.script([shape.raw, "Then so.", "Then so."])
            await chat.handles("ana", "purge Ana")
            actions = [dict(action.args) for action in await chat.actions()]
            shown = list(board.shown.values())
        await provider.close()
    customers = ["Ana", "Bob"] if shape.both else ["Ana"]
    is_asked = shape.becomes == "asked"
    calls = 1 if shape.becomes == "said" or (is_asked and asks) else 2
    wants_results = shape.becomes == "told to the model" or (is_asked and not asks)
    told = [message for message in server.requests[-1]["messages"] if message["role"] != "assistant"]
    checks = {
        f"asked {actions}": actions
        == ([{"customer": customer} for customer in customers] if is_asked and asks else []),
        f"ran {ran}": sorted(ran) == (customers if is_asked and not asks else []),
        f"called {len(server.requests)} times": len(server.requests) == calls,
        f"told {told}": (len(told) > 1) == wants_results,
        f"shown {shown}": (is_asked and asks) or shown == ["Hello." if shape.becomes == "said" else "Then so."],
        f"shown a secret {shown}": not any(SECRET in text or "tool_call" in text.casefold() for text in shown),
    }
    return [fault for fault, holds in checks.items() if not holds]


@pytest.mark.parametrize("kept_on", ["sqlite"], indirect=True)
@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("asks", [True, False], ids=["asked", "run"])
async def test_an_answer_of_any_shape_becomes_the_same_action(
    vendor: str, asks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "FIRST_SECONDS", 0.0)
    wrong: dict[str, list[str]] = {}
    for number, (name, shape) in enumerate(VENDORS[vendor][2].items()):
        (directory := tmp_path / str(number)).mkdir()
        if faults := await faults_of(vendor, shape, directory, asks=asks):
            wrong[name] = faults
    assert wrong == {}


@pytest.mark.parametrize("kept_on", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("answer", "calls", "says", "logs"),
    [
        (OPENAI_SHAPES["arguments as a number"].raw, 2, "Reference: ", "tool_calls.0.function.arguments"),
        (OPENAI_SHAPES["a text that is a number"].raw, 2, "Reference: ", "choices.0.delta.content: int"),
        (OPENAI_SHAPES["no end behind a text"].raw, 2, "Reference: ", "broke off before its end"),
        (OPENAI_SHAPES["blanks"].raw, 2, say("empty_answer", "en"), "gave a blank answer"),
        (Fail(400, "tool_use_failed", "Failed to call a function."), 2, "Reference: ", "Failed to call a function"),
        (OPENAI_SHAPES["an error behind a text"].raw, 3, say("model_down", "en"), "broke off before its end"),
        (OPENAI_SHAPES["no answer"].raw, 3, say("model_down", "en"), "broke off before its end"),
        (Fail(503), 3, say("model_down", "en"), "503"),
    ],
)
async def test_the_same_fault_twice_is_final_and_an_outage_is_not(
    answer: Answer, calls: int, says: str, logs: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeOpenAI() as server:
        provider = OpenAIProvider("m", api_key=server.key, base_url=server.url)
        agent = Agent(provider=provider, config=AgentConfig(retry_backoff_seconds=0.0))
        async with rig(ChannelAgent(agent), tmp_path, board := Board()) as chat:
            server.script([answer] * calls)
            await chat.handles("ana", "hello")
            (shown,) = board.shown.values()
            assert says in shown and len(server.requests) + len(server.refused) == calls
            assert len(await chat.dead()) == ("Reference" in says)
        await provider.close()
    assert any(logs in line.getMessage() and "run " in line.getMessage() for line in caplog.records)
