"""Taking back through the model: the built-in tool closes open questions of the person, with the turn's commit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway import Agent, AgentConfig, ChannelAgent, ToolPolicy, tool
from gateway.guards import GuardrailVerdict
from gateway.providers.base import Request
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from gateway.tools.errors import ToolValidationError

BACK = "withdraw_question"


def pays(amount: int) -> ToolCall:
    return ToolCall("pay", {"amount": amount})


def takes_back(*names: str) -> ToolCall:
    return ToolCall(BACK, {"questions": [*names]})


class Till:
    def __init__(self) -> None:
        self.paid: list[int] = []

        @tool(confirm="Pay {amount}?")
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"{amount} paid."

        self.tools = [pay]


@asynccontextmanager
async def chat(*script: Any, **options: Any) -> AsyncIterator[tuple[ChatDriver, Till, ScriptedProvider]]:
    till, provider = Till(), ScriptedProvider([*script])
    bot = ChannelAgent(Agent(till.tools, provider=provider, **options))
    async with ChatDriver(bot) as driver:
        yield driver, till, provider


def offered(request: Request) -> list[str]:
    return [spec.name for spec in request.tools]


def results(provider: ScriptedProvider) -> list[str]:
    return [message.content for message in provider.requests[-1].messages if message.role == "tool"]


async def opened(driver: ChatDriver, place: str = "ana") -> list[object]:
    return [each.args["amount"] for each in (await driver.engine.context.actions(f"agent/test:bot:{place}")).open]


async def test_model_has_the_tool_only_while_a_question_is_open() -> None:
    async with chat("Hello.", pays(5), "Fine.") as (driver, _, provider):
        await driver.says("ana", "hi")
        await driver.says("ana", "pay 5")
        await driver.says("ana", "and?")
        assert [BACK in offered(request) for request in provider.requests] == [False, False, True]
        note = [message.content for message in provider.requests[-1].messages if message.role == "event"][-1]
        assert "- q1, pay: Pay 5?" in note and "take back with withdraw_question" in note
        (action,) = (await driver.engine.context.actions("agent/test:bot:ana")).open
        assert action.code not in note and action.pending_action_id not in note


async def test_question_that_is_taken_back_is_closed_and_told() -> None:
    async with chat(pays(5), takes_back("q1"), "As you wish.") as (driver, till, provider):
        await driver.says("ana", "pay 5")
        old = dict(driver.messages[0].tokens)
        await driver.says("ana", "I have thought it over")
        assert [message.text for message in driver.messages[1:]] == ["As you wish.", "Taken back: Pay 5"]
        assert "Withdrawn. Nothing was done." in driver.messages[0].text and driver.messages[0].buttons == []
        assert results(provider)[-1:] == ["q1: taken back with the end of this turn, and nothing was done."]
        driver.messages[0].tokens = {"Old": old["Confirm"]}
        await driver.presses("ana", "Old")
        assert (till.paid, driver.alerts[-1]) == ([], "This is already cancelled.")


async def test_new_question_of_the_same_tool_says_that_it_was_changed() -> None:
    async with chat(pays(5), [takes_back("q1"), pays(7)]) as (driver, till, _):
        await driver.says("ana", "pay 5")
        await driver.says("ana", "oh, 7 of course")
        assert driver.last.text.startswith("I have changed it:\n\n**Pay 7?**")
        assert await opened(driver) == [7]
        await driver.presses("ana", "Confirm")
        assert till.paid == [7]


async def test_two_taken_back_and_one_asked_is_no_change() -> None:
    async with chat([pays(5), pays(6)], [takes_back("q1", "q2"), pays(7)]) as (driver, *_):
        await driver.says("ana", "pay 5 and 6")
        await driver.says("ana", "no, 7 alone")
        texts = [message.text for message in driver.messages]
        assert "Taken back: Pay 5" in texts and "Taken back: Pay 6" in texts
        assert "I have changed it" not in "".join(texts) and await opened(driver) == [7]


@pytest.mark.parametrize("names", [["q2"], ["q1", "q2"], [], ["K7P2"], ["Q1"], [" q1"]])
async def test_name_of_no_open_question_takes_no_question_back(names: list[str]) -> None:
    async with chat(pays(5), takes_back(*names), "Which one?") as (driver, _, provider):
        await driver.says("ana", "pay 5")
        await driver.says("ana", "I meant another")
        assert "only open questions that this person asked can be taken back" in results(provider)[-1]
        assert await opened(driver) == [5]


async def test_question_of_another_person_has_no_name() -> None:
    async with chat(pays(5), pays(6), takes_back("q2"), "No.", takes_back("q1"), "Yes.") as (driver, *_):
        await driver.says("ana", "pay 5", group="office")
        await driver.says("ben", "pay 6", group="office")
        await driver.says("ben", "take both back", group="office")
        assert await opened(driver, "#office") == [5, 6]
        await driver.says("ben", "take mine back", group="office")
        assert await opened(driver, "#office") == [5]


async def test_question_that_was_decided_meanwhile_stays_and_is_told() -> None:
    async with chat(pays(5), takes_back("q1"), "As you wish.") as (driver, till, provider):
        await driver.says("ana", "pay 5")
        complete = provider.complete

        async def pressed_meanwhile(request: Request) -> Any:
            if len(provider.requests) == 2:
                token = driver.messages[0].tokens["Confirm"]
                context, conversation = driver.engine.context, "agent/test:bot:ana"
                await driver.bot.decide("test:bot:ana", "confirm", token=token, conversation=conversation)
                assert (await context.actions(conversation)).open == []
            return await complete(request)

        provider.complete = pressed_meanwhile  # type: ignore[method-assign]
        await driver.says("ana", "I have thought it over")
        assert till.paid == [5]
        assert any(text.startswith("This is already") and "Pay 5" in text for text in map(text_of, driver.messages))


def text_of(message: Any) -> str:
    return str(message.text)


class Nothing:
    """A guard blocking all texts of a tool."""

    name = "nothing"
    stages = ("tool_args", "tool_results")

    async def check(self, text: str, context: Any) -> GuardrailVerdict:
        return GuardrailVerdict("block")


RULES: dict[str, Callable[[], dict[str, Any]]] = {
    "a policy that denies all else": lambda: {"policy": ToolPolicy(review=["pay"], deny=["*"])},
    "a policy that reviews all": lambda: {"policy": ToolPolicy(review=["*"])},
    "guards": lambda: {"config": AgentConfig(guardrails=[Nothing()])},
}


@pytest.mark.parametrize("rule", RULES)
async def test_no_rule_of_the_bot_applies_to_withdrawing(rule: str) -> None:
    till, provider = Till(), ScriptedProvider([pays(5), takes_back("q1"), "Done."])
    options = RULES[rule]()
    async with ChatDriver(ChannelAgent(Agent(till.tools, provider=provider))) as driver:
        await driver.says("ana", "pay 5")
        driver.bot.agent = Agent(till.tools, provider=provider, **options)
        await driver.says("ana", "I have thought it over")
        assert await opened(driver) == []


def test_name_of_the_withdrawing_tool_is_reserved() -> None:
    @tool()
    async def withdraw_question() -> str:
        """Take something back."""
        return ""

    with pytest.raises(ToolValidationError, match="'withdraw_question': the gateway gives the model a tool"):
        Agent([withdraw_question], provider=ScriptedProvider([]))
