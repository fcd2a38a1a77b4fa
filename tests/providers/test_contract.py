"""Every provider keeps the contract."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import date
from typing import ClassVar

import pytest

from gateway.providers import Provider, make_provider
from gateway.providers.demo import DemoProvider
from gateway.testing import ScriptedProvider, ToolCall
from tests.fakes.model_server import Answer, Call, Say
from tests.providers.contract import Case, Next, ProviderContract
from tests.providers.vendors import ANTHROPIC, OPENAI, RESPONSES, Vendor

FIELDS = ({"field": "F-1"}, {"field": "F-2"})
ANSWERS: dict[Next, Answer] = {
    "text": Say("Twelve sheep, all told.", thinks="How many?"),
    "call": Say(calls=[Call("count_sheep", FIELDS[0])], thinks="Which field?"),
    "two calls": Say(calls=[Call("count_sheep", field) for field in FIELDS]),
}


@pytest.mark.parametrize("vendor", [OPENAI, ANTHROPIC], ids=lambda vendor: vendor.name)
class TestVendors(ProviderContract):
    @pytest.fixture
    async def case(self, vendor: Vendor) -> AsyncIterator[Case]:
        async with vendor.fake() as model:
            prefix = vendor.name.upper()
            environ = {f"{prefix}_API_KEY": model.key, f"{prefix}_BASE_URL": model.url}
            spec = f"{vendor.name}:{vendor.model}"
            provider: Provider = await asyncio.to_thread(make_provider, spec, environ=environ)
            yield Case(provider, lambda next_: model.script([ANSWERS[next_]]))
            await provider.close()
            assert model.refused == []


class TestResponses(ProviderContract):
    """The vendor's own server, which no setting names."""

    @pytest.fixture
    async def case(self) -> AsyncIterator[Case]:
        async with RESPONSES.running() as (model, provider):
            yield Case(provider, lambda next_: model.script([ANSWERS[next_]]))
            assert model.refused == []


class TestDemo(ProviderContract):
    @pytest.fixture
    def case(self) -> Case:
        return Case(DemoProvider(today=lambda: date(2026, 11, 18)), lambda next_: None)


class Scripted(Case):
    """A script is written before it is played: the one of the answers that are still to come is written anew."""

    WORDS: ClassVar[dict[Next, str | list[ToolCall]]] = {
        "text": "Twelve sheep, all told.",
        "call": [ToolCall("count_sheep", FIELDS[0])],
        "two calls": [ToolCall("count_sheep", field) for field in FIELDS],
    }

    def __init__(self) -> None:
        self.script: list[str | list[ToolCall]] = []
        self.scripted = ScriptedProvider([])
        super().__init__(self.scripted, self.answer)

    def answer(self, next_: Next) -> None:
        self.script = [*self.script[len(self.scripted.requests) :], self.WORDS[next_]]
        self.provider = self.scripted = ScriptedProvider(self.script)


class TestScripted(ProviderContract):
    @pytest.fixture
    def case(self) -> Case:
        return Scripted()
