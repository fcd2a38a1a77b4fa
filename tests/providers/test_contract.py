"""Every provider keeps the contract."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import date
from typing import ClassVar, Literal, TypeAlias

import pytest

from gateway.providers import ModelMessage, Provider, Request, ToolCall, ToolSpec, make_provider
from gateway.providers.demo import DemoProvider
from gateway.testing import ScriptedProvider
from gateway.testing import ToolCall as ScriptedCall
from tests.fakes.model_server import Answer, Call, Say
from tests.providers.vendors import ANTHROPIC, OPENAI, RESPONSES, Vendor, streamed, user

Next: TypeAlias = Literal["text", "call", "two calls"]

COUNT = ToolSpec(
    name="count_sheep",
    description="Count the sheep of a field.",
    parameters={
        "type": "object",
        "properties": {"field": {"type": "string", "examples": ["F-1"]}},
        "required": ["field"],
    },
)


@dataclass
class Case:
    """A provider, and a function setting the model's next answers; the requests ask for these answers."""

    provider: Provider
    answers: Callable[[Next], None]


def asks(*messages: ModelMessage) -> Request:
    return Request(system="You count sheep.", messages=messages, tools=[COUNT])


HELLO = asks(user("hello"))
ONE = asks(user("count the sheep of field F-1"))
TWO = asks(user("count the sheep of fields F-1 and F-2"))


class ProviderContract:
    async def test_plain_text_is_answered(self, case: Case) -> None:
        case.answers("text")
        response = await case.provider.complete(HELLO)
        assert response.content
        assert (response.tool_calls, response.finish) == ((), "stop")
        assert response.model
        assert case.provider.name

    async def test_single_call_is_read_with_its_arguments(self, case: Case) -> None:
        case.answers("call")
        response = await case.provider.complete(ONE)
        assert response.finish == "tools"
        (call,) = response.tool_calls
        assert call.call_id
        assert (call.name, call.args, call.parse_error) == ("count_sheep", {"field": "F-1"}, None)

    async def test_several_calls_have_their_own_ids(self, case: Case) -> None:
        case.answers("two calls")
        response = await case.provider.complete(TWO)
        assert [call.args["field"] for call in response.tool_calls] == ["F-1", "F-2"]
        assert len({call.call_id for call in response.tool_calls}) == 2

    @pytest.mark.ledger("RUN-12")
    @pytest.mark.parametrize(("request_", "next_"), [(HELLO, "text"), (ONE, "call"), (TWO, "two calls")])
    async def test_a_stream_says_the_same(self, case: Case, request_: Request, next_: Next) -> None:
        case.answers(next_)
        whole = await case.provider.complete(request_)
        case.answers(next_)
        pieces, response = await streamed(case.provider, request_)
        assert "".join(pieces) == response.content == whole.content
        assert response.finish == whole.finish
        assert [(c.name, c.args) for c in response.tool_calls] == [(c.name, c.args) for c in whole.tool_calls]

    async def test_text_comes_in_pieces(self, case: Case) -> None:
        case.answers("text")
        pieces, _ = await streamed(case.provider, HELLO)
        assert len(pieces) > 1

    async def test_results_are_answered_in_words(self, case: Case) -> None:
        call = ToolCall(call_id="c1", name="count_sheep", args={"field": "F-1"})
        case.answers("text")
        response = await case.provider.complete(
            asks(
                user("count the sheep of field F-1"),
                ModelMessage(role="assistant", tool_calls=(call,)),
                ModelMessage(role="tool", content="12", call_id="c1", tool_name="count_sheep"),
            )
        )
        assert response.content
        assert response.finish == "stop"

    async def test_own_echo_goes_back_with_the_reply(self, case: Case) -> None:
        """A reply is remembered whole, through JSON, and the provider takes the reply again with the result."""
        case.answers("call")
        reply = (await case.provider.complete(ONE)).message
        kept = replace(reply, echo=json.loads(json.dumps(reply.echo)))
        result = ModelMessage(role="tool", content="12", call_id=reply.tool_calls[0].call_id, tool_name="count_sheep")
        case.answers("text")
        assert (await case.provider.complete(asks(*ONE.messages, kept, result))).content

    async def test_echo_of_another_provider_is_ignored(self, case: Case) -> None:
        case.answers("text")
        model = (await case.provider.complete(HELLO)).model
        call = ToolCall(call_id="c1", name="count_sheep", args={"field": "F-1"})
        theirs = ModelMessage(role="assistant", tool_calls=(call,), echo={"provider": "another", "model": model})
        result = ModelMessage(role="tool", content="12", call_id="c1", tool_name="count_sheep")
        case.answers("text")
        assert (await case.provider.complete(asks(*ONE.messages, theirs, result))).content

    async def test_a_torn_history_is_no_error(self, case: Case) -> None:
        lost = ToolCall(call_id="c1", name="count_sheep", args={"field": "F-1"})
        case.answers("text")
        response = await case.provider.complete(
            asks(
                ModelMessage(role="tool", content="9", call_id="c0", tool_name="count_sheep"),
                ModelMessage(role="assistant", tool_calls=(lost, lost)),
                ModelMessage(role="assistant", content=""),
                user("hello"),
                ModelMessage(role="event", content="The count was confirmed by Ana."),
            )
        )
        assert response.content

    async def test_calls_at_the_same_time_do_not_mix(self, case: Case) -> None:
        case.answers("text")
        case.answers("text")
        both = await asyncio.gather(case.provider.complete(HELLO), case.provider.complete(HELLO))
        assert both[0].content == both[1].content

    async def test_close_can_be_called_again(self, case: Case) -> None:
        case.answers("text")
        await case.provider.complete(HELLO)
        await case.provider.close()
        await case.provider.close()


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
    """A script is fixed before the play: each new answer replaces the script of the remaining answers."""

    WORDS: ClassVar[dict[Next, str | list[ScriptedCall]]] = {
        "text": "Twelve sheep, all told.",
        "call": [ScriptedCall("count_sheep", FIELDS[0])],
        "two calls": [ScriptedCall("count_sheep", field) for field in FIELDS],
    }

    def __init__(self) -> None:
        self.script: list[str | list[ScriptedCall]] = []
        self.scripted = ScriptedProvider([])
        super().__init__(self.scripted, self.answer)

    def answer(self, next_: Next) -> None:
        self.script = [*self.script[len(self.scripted.requests) :], self.WORDS[next_]]
        self.provider = self.scripted = ScriptedProvider(self.script)


class TestScripted(ProviderContract):
    @pytest.fixture
    def case(self) -> Case:
        return Scripted()
