"""Every provider keeps the contract."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import date

import pytest

from gateway.providers import Provider, make_provider
from gateway.providers.demo import DemoProvider
from tests.fakes import anthropic as fake_anthropic
from tests.fakes.anthropic import FakeAnthropic
from tests.fakes.openai import Answer, Call, FakeOpenAI, Say
from tests.providers.contract import Case, Next, ProviderContract

ANSWERS: dict[Next, Answer] = {
    "text": "Twelve sheep, all told.",
    "call": Call("count_sheep", {"field": "F-1"}),
    "two calls": Say(calls=[Call("count_sheep", {"field": "F-1"}), Call("count_sheep", {"field": "F-2"})]),
}


class TestOpenAI(ProviderContract):
    @pytest.fixture
    async def case(self) -> AsyncIterator[Case]:
        async with FakeOpenAI() as model:
            environ = {"OPENAI_API_KEY": model.key, "OPENAI_BASE_URL": model.url}
            provider: Provider = await asyncio.to_thread(make_provider, "openai:gpt-test", environ=environ)
            yield Case(provider, lambda next_: model.script([ANSWERS[next_]]))
            await provider.close()
            assert model.refused == []


ANTHROPIC_ANSWERS: dict[Next, fake_anthropic.Answer] = {
    "text": fake_anthropic.Say("Twelve sheep, all told.", thinks="How many?"),
    "call": Call("count_sheep", {"field": "F-1"}),
    "two calls": fake_anthropic.Say(
        calls=[Call("count_sheep", {"field": "F-1"}), Call("count_sheep", {"field": "F-2"})]
    ),
}


class TestAnthropic(ProviderContract):
    @pytest.fixture
    async def case(self) -> AsyncIterator[Case]:
        async with FakeAnthropic() as model:
            environ = {"ANTHROPIC_API_KEY": model.key, "ANTHROPIC_BASE_URL": model.url}
            provider: Provider = await asyncio.to_thread(make_provider, "anthropic:claude-test", environ=environ)
            yield Case(provider, lambda next_: model.script([ANTHROPIC_ANSWERS[next_]]))
            await provider.close()
            assert model.refused == []


class TestDemo(ProviderContract):
    @pytest.fixture
    def case(self) -> Case:
        return Case(DemoProvider(today=lambda: date(2026, 11, 18)), lambda next_: None)
