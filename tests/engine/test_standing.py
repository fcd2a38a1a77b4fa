"""Standing permission: for a while, calls that match exactly are done without a question, and each is told."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from channels import Person
from gateway import Agent, ChannelAgent, Confirm, Standing, tool
from gateway.operations.actions import ActionCommands
from gateway.providers.base import Request, Response, ToolCall
from gateway.testing import ChatDriver, FakeClock
from gateway.tools.errors import ToolValidationError
from tests.engine.bots import Model


class Paying(Model):
    """``pay CUSTOMER AMOUNT`` calls pay."""

    async def complete(self, request: Request) -> Response:
        self.requests.append(request)
        words = request.messages[-1].content.split()
        if request.messages[-1].role == "user" and words[0] == "pay":
            call = ToolCall(call_id="c", name="pay", args={"customer": words[1], "amount": int(words[2])})
            return Response(tool_calls=(call,), finish="tools")
        return Response(content="I see.")


class Till:
    def __init__(self, rule: Standing | None = None, *, version: str = "1") -> None:
        self.paid: list[tuple[str, int]] = []
        standing = rule or Standing(max_seconds=3600, max_uses=2, same=["customer"])

        @tool(confirm=Confirm("Pay {amount} to {customer}?", standing=standing), version=version)
        async def pay(customer: str, amount: int) -> str:
            """Pay a customer."""
            self.paid.append((customer, amount))
            return f"{amount} paid."

        self.bot = ChannelAgent(Agent([pay], provider=Paying()))


@pytest.fixture
def till() -> Till:
    return Till()


@pytest.fixture
async def chat(till: Till) -> AsyncIterator[ChatDriver]:
    async with ChatDriver(till.bot, clock=FakeClock()) as chat:
        yield chat


BUTTON = "Yes, and for 1 hour"


async def test_prompt_writes_out_all_that_the_permission_covers(chat: ChatDriver) -> None:
    await chat.says("ana", "pay C7 10")
    assert chat.last.buttons == ["Confirm", "Cancel", BUTTON, "Change"]
    assert re.search(
        r"Or reply \*\*OK \w{4}\*\* to also allow it without a question for 1 hour, at most 2 times, while this stays "
        r"the same: customer C7\.",
        chat.last.text,
    )


async def test_matching_calls_are_done_and_told_until_it_is_used_up(chat: ChatDriver, till: Till) -> None:
    await chat.says("ana", "pay C7 10")
    await chat.presses("ana", BUTTON)
    assert till.paid == [("C7", 10)]
    given = "Allowed without a question, 2 more times, time left 1 hour: pay (customer C7). /stop ends it."
    assert given in [message.text for message in chat.messages]
    for left, amount in ((1, 20), (0, 30)):
        await chat.says("ana", f"pay C7 {amount}")
        told = [message.text for message in chat.messages][-2:]
        assert told == [
            f"Done under your permission, {left} more times: Pay {amount} to “C7”",
            f"{amount} paid.",
        ]
    await chat.says("ana", "pay C7 40")
    assert till.paid == [("C7", 10), ("C7", 20), ("C7", 30)]
    assert "Confirm" in chat.last.buttons


async def test_code_of_its_own_gives_it_and_the_plain_code_does_not(chat: ChatDriver, till: Till) -> None:
    await chat.says("ana", "pay C7 10")
    plain, own = re.findall(r"OK (\w{4})\*\*", chat.last.text)
    assert plain != own
    await chat.says("ana", f"OK {plain}")
    await chat.says("ana", "pay C7 20")
    assert till.paid == [("C7", 10)], "the plain code gives no permission"
    _, own = re.findall(r"OK (\w{4})\*\*", chat.last.text)
    await chat.says("ana", f"OK {own}")
    await chat.says("ana", "pay C7 30")
    assert till.paid == [("C7", 10), ("C7", 20), ("C7", 30)]


async def test_bare_yes_gives_none(chat: ChatDriver, till: Till) -> None:
    await chat.says("ana", "pay C7 10")
    await chat.says("ana", "yes")
    await chat.says("ana", "pay C7 20")
    assert till.paid == [("C7", 10)]


@pytest.mark.parametrize("words", ["pay C8 20", "pay c7 20"])
async def test_call_that_does_not_match_exactly_is_asked(chat: ChatDriver, till: Till, words: str) -> None:
    await chat.says("ana", "pay C7 10")
    await chat.presses("ana", BUTTON)
    await chat.says("ana", words)
    assert till.paid == [("C7", 10)]


async def test_another_person_or_conversation_does_not_have_it(chat: ChatDriver, till: Till) -> None:
    await chat.says("ana", "pay C7 10", group="office")
    await chat.presses("ben", BUTTON)
    assert chat.alerts[-1] == "This is not yours to answer."
    await chat.presses("ana", BUTTON)
    assert till.paid == [("C7", 10)]
    await chat.says("ben", "pay C7 20", group="office")
    await chat.says("ana", "pay C7 30")
    assert till.paid == [("C7", 10)]


async def test_it_ends_with_its_time(chat: ChatDriver, till: Till) -> None:
    await chat.says("ana", "pay C7 10")
    await chat.presses("ana", BUTTON)
    await chat.clock.advance(3601)
    await chat.says("ana", "pay C7 20")
    assert till.paid == [("C7", 10)]


async def test_pending_lists_it_and_stop_revokes_it(chat: ChatDriver, till: Till) -> None:
    await chat.says("ana", "pay C7 10")
    await chat.presses("ana", BUTTON)
    await chat.says("ana", "/pending")
    assert chat.last.text.startswith("Nothing is waiting for your answer.\n\nAllowed without a question, 2 more times")
    await chat.says("ana", "/stop")
    assert chat.last.text.endswith("No longer allowed without a question: pay (customer C7)")
    await chat.says("ana", "pay C7 20")
    assert till.paid == [("C7", 10)]


async def test_rule_that_became_narrower_counts(chat: ChatDriver, till: Till) -> None:
    await chat.says("ana", "pay C7 10")
    await chat.presses("ana", BUTTON)
    rule = till.bot.tool("pay")
    assert rule is not None and rule.confirm is not None
    rule.confirm.standing = Standing(max_seconds=60, max_uses=2, same=["customer"])
    await chat.says("ana", "pay C7 20")
    assert till.paid == [("C7", 10)]


async def test_each_use_is_audited_with_its_permission(chat: ChatDriver) -> None:
    await chat.says("ana", "pay C7 10")
    await chat.presses("ana", BUTTON)
    await chat.says("ana", "pay C7 20")
    context = chat.engine.context
    actions = await context.actions("agent/test:bot:ana", find=lambda index: [each.action_id for each in index.settled])
    (used,) = [action for action in actions.by_id.values() if action.permission]
    assert used.state == "done" and used.decided_by == str(Person(channel="test", account="bot", user_id="ana"))
    assert used.permission == actions.index.permissions[0].permission_id


def test_rule_that_could_be_too_wide_is_refused_at_start() -> None:
    with pytest.raises(ValueError, match="needs an argument that stays the same"):
        Standing(max_seconds=60, max_uses=1)
    unknown = r"Standing\(same=\) names \['client'\]; its arguments: customer, amount"
    with pytest.raises(ToolValidationError, match=unknown):
        Till(Standing(max_seconds=60, max_uses=1, same=["client"]))


async def test_operator_lists_and_revokes_it(chat: ChatDriver, till: Till) -> None:
    await chat.says("ana", "pay C7 10")
    await chat.presses("ana", BUTTON)
    context = chat.engine.context
    operator = ActionCommands(context.store, context.channels, context.keyring, bot=None)
    (listed,) = await operator.pending()
    assert (listed["state"], listed["requester"]) == ("permitted", "test:bot:ana")
    assert str(listed["preview"]).startswith("pay with customer='C7': 2 more times until ")
    await operator.cancel(str(listed["id"])[:8])
    await chat.clock.advance(1)
    assert "No longer allowed without a question: pay (customer C7)" in [message.text for message in chat.messages]
    await chat.says("ana", "pay C7 20")
    assert till.paid == [("C7", 10)]
    assert await operator.pending() != [listed]
