"""Plans: several calls of one reply are one numbered question, and each item is an action of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway import Agent, ChannelAgent, Confirm, ToolContext, tool
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from tests.engine.bots import Invoices


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
        *((words, [], ["1", "2", "3"]) for words in ("4", "0", "1,4", "2 if it is paid", "1?", "-1")),
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
