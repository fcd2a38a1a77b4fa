"""Plans: several calls of one reply are one numbered question, and each item is an action of its own."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from channels import Person
from gateway import Agent, ChannelAgent, Confirm, Standing, ToolContext, tool
from gateway.operations.actions import ActionCommands
from gateway.providers.base import Request, Response
from gateway.providers.base import ToolCall as Call
from gateway.testing import ChatDriver, FakeClock, ScriptedProvider, ToolCall
from gateway.tools.errors import ToolValidationError
from tests.engine.bots import Invoices, Model


class Shop:
    """Deletes invoices one at a time; some of them cannot be deleted."""

    def __init__(self, *, on_item_failure: str = "continue") -> None:
        self.deleted: list[str] = []
        self.running = self.at_once = 0
        self.impossible: set[str] = set()
        rule = Confirm("Delete invoice {invoice_id}?", on_item_failure=on_item_failure)  # type: ignore[arg-type]

        @tool(confirm=rule)
        async def delete_invoice(invoice_id: str, ctx: ToolContext) -> str:
            """Delete an invoice."""
            self.running += 1
            self.at_once = max(self.at_once, self.running)
            await self.pause()
            self.running -= 1
            if invoice_id in self.impossible:
                raise ValueError("no")
            self.deleted.append(invoice_id)
            return f"Invoice {invoice_id} is deleted."

        self.bot = ChannelAgent(Agent([delete_invoice], provider=Invoices().model))

    async def pause(self) -> None:
        """The engine may do other things meanwhile."""
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
async def plan(shop: Shop) -> AsyncIterator[ChatDriver]:
    async with ChatDriver(shop.bot) as plan:
        yield plan


@pytest.fixture
async def three(plan: ChatDriver) -> ChatDriver:
    """A chat in which Ana has been asked for three invoices at once."""
    await plan.says("ana", "delete 1 2 3")
    return plan


async def test_one_message_asks_about_all_by_number(three: ChatDriver) -> None:
    (question,) = three.messages
    assert [line for line in question.text.splitlines() if "Delete invoice" in line] == [
        f"{number}\\. **Delete invoice “{number}”?**" for number in (1, 2, 3)
    ]
    assert "Or write the numbers of those to confirm, for example 1, 3." in question.text
    assert question.buttons[-2:] == ["Confirm all", "Cancel all"]


async def test_confirm_all_runs_in_order_one_at_a_time_and_tells_once(three: ChatDriver, shop: Shop) -> None:
    await three.presses("ana", "Confirm all")
    assert (shop.deleted, shop.at_once) == (["1", "2", "3"], 1)
    assert three.last.text == "\n".join(f"{n}\\. ✅ Invoice {n} is deleted." for n in (1, 2, 3))
    assert len(three.messages) == 2
    assert "✅ Confirmed by Ana" in three.messages[0].text and three.messages[0].buttons == []
    await three.says("ana", "all")
    assert shop.deleted == ["1", "2", "3"]


async def test_cancel_all_is_told_in_one_message(plan: ChatDriver, shop: Shop) -> None:
    await plan.says("ana", "delete 1 2")
    await plan.presses("ana", "Cancel all")
    assert shop.deleted == []
    assert plan.last.text == "🚫 Not done: Delete invoice “1”\n🚫 Not done: Delete invoice “2”"


@pytest.mark.parametrize(
    ("words", "done", "open_left"),
    [
        ("1,3", ["1", "3"], ["2"]),
        ("3 and 1", ["1", "3"], ["2"]),
        ("the first two", ["1", "2"], ["3"]),
        ("all", ["1", "2", "3"], []),
        ("all but 2", ["1", "3"], []),
        ("none", [], []),
        ("only 2", ["2"], ["1", "3"]),
        *((words, [], ["1", "2", "3"]) for words in ("1,4", "2 if it is paid", "1?", "-1")),
    ],
)
async def test_words_decide_the_named_items_alone(
    three: ChatDriver, shop: Shop, words: str, done: list[str], open_left: list[str]
) -> None:
    await three.says("ana", words)
    assert shop.deleted == done
    waiting = (await three.engine.context.actions("agent/test:bot:ana")).open
    assert [action.args["invoice_id"] for action in waiting] == open_left
    shown_again = [message for message in three.messages[1:] if message.buttons]
    assert len(shown_again) == bool(open_left)


@pytest.mark.parametrize("words", ["4", "0", "ok", "sure, thanks"])
async def test_what_is_nearly_an_answer_gets_the_list(three: ChatDriver, shop: Shop, words: str) -> None:
    await three.says("ana", words)
    assert shop.deleted == []
    assert three.last.text.startswith("Several things are waiting for your answer")


async def test_numbers_of_an_earlier_plan_mean_nothing_any_more(three: ChatDriver, shop: Shop) -> None:
    await three.says("ana", "2")
    assert shop.deleted == ["2"]
    await three.says("ana", "2")
    assert shop.deleted == ["2"], "the outcome of the first was told last, so the number means nothing any more"


async def test_numbers_count_only_right_after_the_plan(three: ChatDriver, shop: Shop) -> None:
    before = three.last.number
    await three.says("ana", "hello")
    await three.says("ana", "1,3", after=before)
    assert shop.deleted == []
    assert "Which one do you mean?" in three.last.text or "waiting" in three.last.text


async def test_bare_yes_to_a_plan_asks_which(plan: ChatDriver, shop: Shop) -> None:
    await plan.says("ana", "delete 1 2")
    await plan.says("ana", "yes")
    assert "Which one do you mean?" in plan.last.text
    assert shop.deleted == []


async def test_another_person_decides_no_item(plan: ChatDriver, shop: Shop) -> None:
    await plan.says("ana", "delete 1 2", group="office")
    assert "write the numbers" not in plan.last.text
    await plan.presses("ben", "Confirm all")
    assert plan.alerts[-1] == "This is not yours to answer."
    await plan.says("ana", "1,2", group="office")
    assert shop.deleted == []
    await plan.presses("ana", "Confirm all")
    assert shop.deleted == ["1", "2"]


async def test_failure_of_an_item_leaves_the_others(shop: Shop) -> None:
    shop.impossible = {"2"}
    async with ChatDriver(shop.bot) as chat:
        await chat.says("ana", "delete 1 2 3")
        await chat.presses("ana", "Confirm all")
        assert shop.deleted == ["1", "3"]
        first, second, third = chat.last.text.split("\n")
        assert (first, third) == ("1\\. ✅ Invoice 1 is deleted.", "3\\. ✅ Invoice 3 is deleted.")
        assert second.startswith("2\\. ❌ This was confirmed, but it failed.")


async def test_failure_stops_the_rest_where_the_author_says_so() -> None:
    shop = Shop(on_item_failure="stop")
    shop.impossible = {"2"}
    async with ChatDriver(shop.bot) as chat:
        await chat.says("ana", "delete 1 2 3")
        await chat.presses("ana", "Confirm all")
        assert shop.deleted == ["1"]
        last = chat.last.text.split("\n")[-1]
        assert last == "3\\. 🚫 Not done, because something before it was not done: Delete invoice “3”"


async def test_items_decided_one_by_one_are_told_one_by_one(plan: ChatDriver, shop: Shop) -> None:
    await plan.says("ana", "delete 1 2")
    label = next(
        each for each in reversed(plan.messages[0].buttons) if each.startswith("Confirm ") and "all" not in each
    )
    await plan.presses("ana", label)
    assert (shop.deleted, plan.last.text) == (["2"], "Invoice 2 is deleted.")


async def test_plan_is_one_place_in_the_quota(plan: ChatDriver) -> None:
    for start in range(10, 60, 10):
        await plan.says("ana", f"delete INV-{start} INV-{start + 1}")
    assert len((await plan.engine.context.actions("agent/test:bot:ana")).open) == 10
    await plan.says("ana", "delete INV-99")
    assert len((await plan.engine.context.actions("agent/test:bot:ana")).open) == 10


async def test_more_than_ten_items_are_to_be_split(shop: Shop) -> None:
    calls = [ToolCall("delete_invoice", {"invoice_id": str(n)}) for n in range(11)]
    script = ScriptedProvider([calls, "I will ask in two parts."])
    async with ChatDriver(shop.bot, provider=script) as chat:
        await chat.says("ana", "delete everything")
        assert chat.last.text == "I will ask in two parts."
        told = [message.content for message in script.requests[-1].messages if message.role == "tool"]
        assert len(told) == 11 and all("at most 10 calls are confirmed at once. Split them." in each for each in told)


async def test_stop_withdraws_the_confirmed_items_that_have_not_run(plan: ChatDriver, shop: Shop) -> None:
    await plan.says("ana", "delete 1 2")
    await plan.says("ana", "/stop")
    await plan.says("ana", "1")
    assert shop.deleted == []


class Paying(Model):
    """``pay CUSTOMER AMOUNT`` calls pay."""

    async def complete(self, request: Request) -> Response:
        self.requests.append(request)
        words = request.messages[-1].content.split()
        if request.messages[-1].role == "user" and words[0] == "pay":
            call = Call(call_id="c", name="pay", args={"customer": words[1], "amount": int(words[2])})
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


@pytest.fixture
async def permitted(chat: ChatDriver) -> ChatDriver:
    """A chat in which Ana has confirmed a call, and allowed others like it."""
    await chat.says("ana", "pay C7 10")
    await chat.presses("ana", BUTTON)
    return chat


async def test_prompt_writes_out_all_that_the_permission_covers(chat: ChatDriver) -> None:
    await chat.says("ana", "pay C7 10")
    assert chat.last.buttons == ["Confirm", "Cancel", BUTTON, "Change"]
    assert re.search(
        r"Or reply \*\*OK \w{4}\*\* to also allow it without a question for 1 hour, at most 2 times, while this stays "
        r"the same: customer C7\.",
        chat.last.text,
    )


async def test_matching_calls_are_done_and_told_until_it_is_used_up(permitted: ChatDriver, till: Till) -> None:
    assert till.paid == [("C7", 10)]
    given = "Allowed without a question, 2 more times, time left 1 hour: pay (customer C7). /stop ends it."
    assert given in [message.text for message in permitted.messages]
    for left, amount in ((1, 20), (0, 30)):
        await permitted.says("ana", f"pay C7 {amount}")
        told = [message.text for message in permitted.messages][-2:]
        assert told == [f"Done under your permission, {left} more times: Pay {amount} to “C7”", f"{amount} paid."]
    await permitted.says("ana", "pay C7 40")
    assert till.paid == [("C7", 10), ("C7", 20), ("C7", 30)]
    assert "Confirm" in permitted.last.buttons


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
async def test_call_that_does_not_match_exactly_is_asked(permitted: ChatDriver, till: Till, words: str) -> None:
    await permitted.says("ana", words)
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


async def test_it_ends_with_its_time(permitted: ChatDriver, till: Till) -> None:
    await permitted.clock.advance(3601)
    await permitted.says("ana", "pay C7 20")
    assert till.paid == [("C7", 10)]


async def test_pending_lists_it_and_stop_revokes_it(permitted: ChatDriver, till: Till) -> None:
    await permitted.says("ana", "/pending")
    assert permitted.last.text.startswith(
        "Nothing is waiting for your answer.\n\nAllowed without a question, 2 more times"
    )
    await permitted.says("ana", "/stop")
    assert permitted.last.text.endswith("No longer allowed without a question: pay (customer C7)")
    await permitted.says("ana", "pay C7 20")
    assert till.paid == [("C7", 10)]


async def test_rule_that_became_narrower_counts(permitted: ChatDriver, till: Till) -> None:
    rule = till.bot.tool("pay")
    assert rule is not None and rule.confirm is not None
    rule.confirm.standing = Standing(max_seconds=60, max_uses=2, same=["customer"])
    await permitted.says("ana", "pay C7 20")
    assert till.paid == [("C7", 10)]


async def test_each_use_is_audited_with_its_permission(permitted: ChatDriver) -> None:
    await permitted.says("ana", "pay C7 20")
    context = permitted.engine.context
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


async def test_operator_lists_and_revokes_it(permitted: ChatDriver, till: Till) -> None:
    context = permitted.engine.context
    operator = ActionCommands(context.store, context.channels, context.keyring, bot=None)
    (listed,) = await operator.pending()
    assert (listed["state"], listed["requester"]) == ("permitted", "test:bot:ana")
    assert str(listed["preview"]).startswith("pay with customer='C7': 2 more times until ")
    await operator.cancel(str(listed["id"])[:8])
    await permitted.clock.advance(1)
    assert "No longer allowed without a question: pay (customer C7)" in [message.text for message in permitted.messages]
    await permitted.says("ana", "pay C7 20")
    assert till.paid == [("C7", 10)]
    assert await operator.pending() != [listed]
