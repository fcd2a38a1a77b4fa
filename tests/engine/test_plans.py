"""Plans: several calls of a reply are one numbered question, and each item is a separate action."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

from channels import Address, DeliveryReport, Message, Parsed, Person, WebhookResponse
from gateway import Agent, ChannelAgent, Confirm, ToolContext, tool
from gateway.testing import ChatDriver, FakeClock, ScriptedProvider, ToolCall
from tests.engine.bots import Invoices
from tests.engine.rig import Platform, here, rig


class Shop:
    """Deletes invoices singly; some invoices cannot be deleted."""

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
        """Let the engine do other things meanwhile."""
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
    """A chat after Ana was asked about three invoices at once."""
    await plan.says("ana", "delete 1 2 3")
    return plan


async def test_one_message_asks_about_all_by_number(three: ChatDriver) -> None:
    (question,) = three.messages
    assert [line for line in question.text.splitlines() if "Delete invoice" in line] == [
        f"{number}\\. **Delete invoice “{number}”?**" for number in (1, 2, 3)
    ]
    assert "Or write the numbers of those to confirm, for example 1, 3." in question.text
    assert question.buttons == ["Confirm all", "Cancel all", "Confirm 1", "Confirm 2", "Confirm 3"]


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
async def test_unclear_answer_gets_the_list(three: ChatDriver, shop: Shop, words: str) -> None:
    await three.says("ana", words)
    assert shop.deleted == []
    assert three.last.text.startswith("Which one ")


async def test_open_items_are_shown_anew_behind_the_outcome(three: ChatDriver, shop: Shop) -> None:
    await three.says("ana", "2")
    outcome, rest = three.messages[1:]
    assert (shop.deleted, outcome.text) == (["2"], "Invoice 2 is deleted.")
    assert "1\\. **Delete invoice “1”?**" in rest.text and "2\\. **Delete invoice “3”?**" in rest.text
    await three.says("ana", "2")
    assert shop.deleted == ["2", "3"]
    await three.says("ana", "2")
    assert shop.deleted == ["2", "3"], "one question is left, which has no number"


@pytest.mark.parametrize("say", ["2", "OK {code}", "NO {code}"])
async def test_only_the_list_shown_last_invites_numbers(three: ChatDriver, shop: Shop, say: str) -> None:
    """In the edited message, numbers mean other questions than in the message shown behind."""
    code = re.findall(r"\d \*\*OK (\w{4})", three.messages[0].text)[1]
    await three.says("ana", say.format(code=code))
    first, *later = three.messages
    assert first.edited and "2\\. **Delete invoice “2”**" in first.text
    assert "write the numbers" not in first.text
    assert ["write the numbers" in message.text for message in later if message.buttons] == [True] * (say == "2")


async def test_numbers_count_only_right_after_the_plan(three: ChatDriver, shop: Shop) -> None:
    before = three.last.number
    await three.says("ana", "hello")
    await three.says("ana", "1,3", after=before)
    assert shop.deleted == []
    assert "Which one do you mean?" in three.last.text or "waiting" in three.last.text


@pytest.mark.parametrize(("words", "first"), [(("none", "all"), ""), (("1", "hello"), "1"), (("all", "thanks"), "1")])
async def test_words_about_items_are_joined_with_no_other_message(
    shop: Shop, tmp_path: Path, words: tuple[str, str], first: str
) -> None:
    async with rig(shop.bot, tmp_path, Platform(numbers=True)) as chat:
        await chat.hears("ana", "delete 1 2 3")
        for text in words:
            await chat.says("ana", text)
        await chat.work()
        assert "".join(shop.deleted[:1]) == first
        assert any("Not done" in text for text in chat.platform.texts()) == (words[0] == "none")


async def test_bare_yes_to_a_plan_asks_which(plan: ChatDriver, shop: Shop) -> None:
    await plan.says("ana", "delete 1 2")
    await plan.says("ana", "yes")
    assert "Which one shall I do?" in plan.last.text
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
        assert second.startswith("2\\. ❌ It did not work: ")


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


# ── plans that need several messages ──


class Post:
    """Sends letters. A letter of 2,500 characters fills half of the longest message with several questions."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.impossible: set[str] = set()

        @tool(confirm=Confirm("Send letter {name}?"))
        async def send_letter(name: str, text: str) -> str:
            """Send a letter."""
            if name in self.impossible:
                raise ValueError("no")
            self.sent.append(name)
            return f"Letter {name} is sent."

        self.tool = send_letter

    def bot(self, *names: str) -> ChannelAgent:
        """Return a bot: the first turn asks for these letters, and the other turns say "I see."."""
        calls = [ToolCall("send_letter", {"name": name, "text": name * 2_500}) for name in names]
        return ChannelAgent(Agent([self.tool], provider=ScriptedProvider([calls, *["I see."] * 9])))

    def chat(self, *names: str, clock: FakeClock | None = None) -> ChatDriver:
        """Return a chat with the bot of these letters."""
        return ChatDriver(self.bot(*names), clock=clock)


@pytest.fixture
def post() -> Post:
    return Post()


async def test_each_message_of_a_plan_decides_its_own_items(post: Post) -> None:
    async with post.chat("A", "B", "C", "D") as chat:
        await chat.says("ana", "send them")
        first, second = chat.messages
        assert [line for line in f"{first.text}\n{second.text}".splitlines() if "Send letter" in line] == [
            f"{number}\\. **Send letter “{name}”?**" for number, name in enumerate("ABCD", start=1)
        ]
        assert (first.buttons, second.buttons) == (
            ["Confirm 1–2", "Cancel 1–2", "Confirm 1", "Confirm 2"],
            ["Confirm 3–4", "Cancel 3–4", "Confirm 3", "Confirm 4"],
        )
        assert "for example 1, 4." in second.text and "for example" not in first.text
        await chat.presses("ana", "Confirm 1–2")
        assert post.sent == ["A", "B"]
        await chat.presses("ana", "Cancel 3–4")
        assert (post.sent, chat.last.text) == (
            ["A", "B"],
            "🚫 Not done: Send letter “C”\n🚫 Not done: Send letter “D”",
        )


async def test_numbers_and_all_count_over_the_messages_of_a_plan(post: Post) -> None:
    async with post.chat("A", "B", "C", "D") as chat:
        await chat.says("ana", "send them")
        await chat.says("ana", "1, 4")
        assert post.sent == ["A", "D"]
        await chat.says("ana", "all")
        assert post.sent == ["A", "D", "B", "C"]


@pytest.mark.parametrize(("arrived", "sent"), [("", ""), ("1", ""), ("2", ""), ("12", "ABC")])
async def test_words_count_where_each_message_of_a_plan_was_reported(tmp_path: Path, arrived: str, sent: str) -> None:
    post, platform = Post(), Platform(numbers=True, max_text=6000, bare_yes="reported", reports=True, edit=False)
    async with rig(post.bot(*"ABC"), tmp_path, platform) as chat:
        await chat.hears("ana", "send them all")
        for number in arrived:
            report = DeliveryReport(
                event_ids=(f"report {number}",),
                address=here("ana"),
                person=None,
                message_id=number,
                status="delivered",
            )
            await chat.take(report)
        await chat.advance(5)
        await chat.says("ana", "all")
        await chat.work()
        assert "".join(post.sent) == sent


async def test_every_end_of_a_plan_in_two_messages_is_told(post: Post) -> None:
    post.impossible = {"A"}
    async with post.chat("A", "B", "C") as chat:
        await chat.says("ana", "send them")
        await chat.says("ana", "all")
        failed, sent, last = chat.last.text.split("\n")
        assert failed.startswith("1\\. ❌ It did not work: ")
        assert (sent, last) == ("2\\. ✅ Letter B is sent.", "3\\. ✅ Letter C is sent.")


async def test_end_that_was_held_is_told_when_the_rest_is_stopped(shop: Shop) -> None:
    """The first item has been paid when /stop ends the second: the person hears of both."""
    async with ChatDriver(shop.bot) as chat:
        await chat.says("ana", "delete 1 2")
        shop.pause = partial(stopped_meanwhile, chat)  # type: ignore[method-assign]
        await chat.presses("ana", "Confirm all")
        texts = [message.text for message in chat.messages]
        assert shop.deleted == ["1"]
        assert "Invoice 1 is deleted." in texts
        assert any(text.startswith("Stopped. ") or "cannot be stopped" in text for text in texts)


async def stopped_meanwhile(chat: ChatDriver) -> None:
    """Say /stop while an item runs, so that the next item ends before the beginning."""
    message = Message(
        event_ids=("stop",),
        address=Address(channel="test", account="bot", place="ana"),
        person=Person(channel="test", account="bot", user_id="ana", name="Ana"),
        message_id="stop",
        text="",
        command="stop",
    )
    await chat.engine.inbox.accept(
        chat.engine.context.channels["test"], Parsed(events=(message,), response=WebhookResponse())
    )
    while await chat.engine.context.store.pending_decisions("agent/test:bot:ana"):
        await asyncio.sleep(0)


async def test_ends_are_told_while_one_item_runs_for_long(shop: Shop) -> None:
    clock = FakeClock()
    async with ChatDriver(shop.bot, clock=clock) as chat:
        await chat.says("ana", "delete 1 2 3")
        running, go_on = asyncio.Event(), asyncio.Event()

        async def slow() -> None:
            if len(shop.deleted) == 2:
                running.set()
                await go_on.wait()

        shop.pause = slow  # type: ignore[method-assign]
        idle, chat._idle = chat._idle, running.wait  # type: ignore[method-assign, assignment]
        await chat.presses("ana", "Confirm all")
        assert len(chat.messages) == 1, "the first two ends are held"
        chat._idle = nothing  # type: ignore[method-assign]
        await clock.advance(31)
        await until(lambda: len(chat.messages) == 2)
        assert chat.last.text == "1\\. ✅ Invoice 1 is deleted.\n2\\. ✅ Invoice 2 is deleted."
        go_on.set()
        chat._idle = idle  # type: ignore[method-assign]
        await chat.says("ana", "thanks")
        assert "Invoice 3 is deleted." in [message.text for message in chat.messages]
        assert shop.deleted == ["1", "2", "3"]


async def nothing() -> None:
    """Do not wait for the conversation to be idle."""


async def until(reached: Callable[[], bool]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(20):
        while not reached():
            await asyncio.sleep(0.005)


async def test_older_message_of_a_plan_gets_no_buttons_back(three: ChatDriver, shop: Shop) -> None:
    await three.says("ana", "hm?")
    first, *_, again = three.messages
    assert (first.buttons, again.buttons[:3]) == ([], ["Confirm all", "Cancel all", "Confirm 1"])
    await three.presses("ana", "Confirm 2")
    assert shop.deleted == ["2"]
    assert (first.buttons, again.buttons[:3]) == ([], ["Confirm all", "Cancel all", "Confirm 1"])
    assert "✅ Confirmed by Ana" in first.text and "1\\. **Delete invoice “1”?**" in first.text
