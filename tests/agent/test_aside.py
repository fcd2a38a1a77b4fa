"""Small calls to a model beside the conversation."""

from __future__ import annotations

import pytest

from gateway.agent import Agent
from gateway.agent.aside import SideProviders
from gateway.observe.usage import UsageMeter
from gateway.providers import FallbackProvider, ProviderError, Usage
from gateway.providers.aside import Aside
from tests.agent.scripted import Script


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
