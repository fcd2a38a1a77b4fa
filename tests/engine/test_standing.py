"""Standing permissions: given at the launch, used by covered calls, and ended for good."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from channels import Json, OptOut
from gateway import Agent, ChannelAgent, Confirm, NothingDone, Standing, tool
from gateway.operations.actions import ActionCommands
from gateway.providers.base import Request, Response
from gateway.providers.base import ToolCall as Call
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key
from gateway.testing import ChatDriver, FakeClock
from gateway.tools import Preview
from gateway.tools.pending_action import PendingAction
from tests.engine.bots import Model
from tests.engine.rig import Rig, here, message, rig
from tests.stored import action_of

pytestmark = pytest.mark.both_stores

CHAT = "agent/test:bot:ana"
BUTTON = "Yes, and for 1 hour"
RULE = Standing(max_seconds=3600, max_uses=2, same=["customer"], free=["note"], most={"amount": 100})
ANYTHING = Standing(max_seconds=3600, max_uses=5, free=["customer", "amount", "note"])


class Paying(Model):
    """``charge CUSTOMER AMOUNT [NOTE]`` calls pay; a comma separates several charges beside each other.

    ``stubborn`` repeats the last call, whenever woken without a message.
    """

    def __init__(self, *, stubborn: bool = False) -> None:
        super().__init__()
        self.stubborn = stubborn
        self._last = ""

    async def complete(self, request: Request) -> Response:
        self.requests.append(request)
        last = request.messages[-1]
        said = last.content.rpartition("but ")[2] if last.role == "user" else ""
        if last.role == "event" and self.stubborn:
            said = self._last
        if not said.startswith("charge "):
            return Response(content="I see.")
        self._last = said
        calls = [_call(number, *part.split()[1:]) for number, part in enumerate(said.split(", "))]
        return Response(tool_calls=tuple(calls), finish="tools")


def _call(number: int, customer: str, amount: str, *note: str) -> Call:
    args: dict[str, Json] = {"customer": customer, "amount": json.loads(amount)}
    return Call(call_id=f"c{number}", name="pay", args=args | ({"note": " ".join(note)} if note else {}))


class Till:
    """Pays customers; some payments fail. With `looks`, a preview function shows the account."""

    def __init__(
        self,
        rule: Standing = RULE,
        *,
        ask: str = "Pay {amount} to {customer}?",
        looks: bool = False,
        resumes: bool = False,
        volatile: bool = False,
    ) -> None:
        self.paid: list[tuple[str, float]] = []
        self.failing: set[float] = set()
        self.idle: set[float] = set()
        self.balance = 0

        async def preview(customer: str) -> Preview:
            return Preview(text=f"Pay {customer}?", precondition=self.balance)

        @tool(
            confirm=Confirm(
                preview if looks else ask,
                verb="pay",
                standing=rule,
                after="resume" if resumes else "receipt",
                volatile=volatile,
            )
        )
        async def pay(customer: str, amount: int | float, note: str = "") -> str:
            """Pay a customer."""
            if amount in self.failing:
                raise RuntimeError("no")
            if amount in self.idle:
                raise NothingDone("nothing")
            self.paid.append((customer, amount))
            return f"{amount:g} paid."

        self.model = Paying(stubborn=resumes)
        self.bot = ChannelAgent(Agent([pay], provider=self.model))


@pytest.fixture
def till() -> Till:
    return Till()


@pytest.fixture
async def chat(till: Till) -> AsyncIterator[ChatDriver]:
    async with ChatDriver(till.bot, clock=FakeClock()) as chat:
        yield chat


@pytest.fixture
async def permitted(chat: ChatDriver) -> ChatDriver:
    """A chat after Ana confirmed a call, and allowed others of the kind."""
    await chat.says("ana", "charge C7 10")
    await chat.presses("ana", BUTTON)
    return chat


def texts(chat: ChatDriver) -> list[str]:
    return [re.sub(r"until [^,(]*\d{1,2}:\d\d UTC", "until TIME", message.text) for message in chat.messages]


# ── a permission is offered and given ──


async def test_prompt_names_the_fixed_and_the_free_arguments(chat: ChatDriver) -> None:
    await chat.says("ana", "charge C7 10")
    assert chat.last.buttons == ["Confirm", "Cancel", BUTTON, "Change"]
    assert re.search(
        r"\*\*Yes, and for 1 hour\*\* also allows it without a question, at most 2 times: pay \(unchanged: "
        r"customer C7; amount: from 0 to 100; any value: note\)\.",
        chat.last.text,
    )


async def test_prompt_says_that_the_preview_stays_unchanged() -> None:
    async with ChatDriver(Till(looks=True).bot) as chat:
        await chat.says("ana", "charge C7 10")
        assert "any value: note; while all else that was shown is unchanged)" in chat.last.text
    async with ChatDriver(Till(looks=True, volatile=True).bot) as chat:
        await chat.says("ana", "charge C7 10")
        assert "customer C7; amount: from 0 to 100; any value: note)" in chat.last.text


async def test_rule_without_names_fixes_every_argument() -> None:
    till = Till(Standing(max_seconds=3600, max_uses=3))
    async with ChatDriver(till.bot) as chat:
        await chat.says("ana", "charge C7 10")
        assert "pay (unchanged: customer C7, amount 10, and note “”)" in chat.last.text
        await chat.presses("ana", BUTTON)
        await chat.says("ana", "charge C7 11")
        assert till.paid == [("C7", 10)]
        await chat.says("ana", "charge C7 10")
        assert till.paid == [("C7", 10), ("C7", 10)]


async def test_long_value_is_cut_beside_its_question() -> None:
    async with ChatDriver(Till().bot) as chat:
        await chat.says("ana", f"charge {'C' * 200} 10")
        assert "C" * 200 in chat.last.text and f"unchanged: customer “{'C' * 79}…”;" in chat.last.text


async def test_permission_is_told_when_the_action_is_launched(permitted: ChatDriver, till: Till) -> None:
    assert till.paid == [("C7", 10)]
    given = (
        "OK: until TIME I may do this without asking, 2 more times: pay (unchanged: customer C7; amount: from 0 to 100;"
    )
    (told,) = [number for number, text in enumerate(texts(permitted)) if text.startswith(given)]
    assert texts(permitted)[told + 1] == "10 paid."


async def test_only_the_own_code_gives_the_permission(chat: ChatDriver, till: Till) -> None:
    await chat.says("ana", "charge C7 10")
    plain, own = re.findall(r"OK (\w{4})\*\*", chat.last.text)
    assert plain != own
    await chat.says("ana", f"OK {plain}")
    await chat.says("ana", "charge C7 20")
    assert till.paid == [("C7", 10)], "the plain code gives no permission"
    _, own = re.findall(r"OK (\w{4})\*\*", chat.last.text)
    await chat.says("ana", f"OK {own}")
    await chat.says("ana", "charge C7 30")
    assert till.paid == [("C7", 10), ("C7", 20), ("C7", 30)]


async def test_no_with_the_own_code_gives_no_permission(chat: ChatDriver, till: Till) -> None:
    await chat.says("ana", "charge C7 10")
    _, own = re.findall(r"OK (\w{4})\*\*", chat.last.text)
    await chat.says("ana", f"NO {own}")
    await chat.says("ana", "charge C7 20")
    assert till.paid == []


async def test_bare_yes_gives_no_permission(chat: ChatDriver, till: Till) -> None:
    await chat.says("ana", "charge C7 10")
    await chat.says("ana", "yes")
    await chat.says("ana", "charge C7 20")
    assert till.paid == [("C7", 10)]


async def test_drifted_yes_gives_no_permission() -> None:
    """Defect 3: the yes was no longer acted on, and the permission was given all the same."""
    till = Till(ANYTHING, looks=True)
    async with ChatDriver(till.bot) as chat:
        await chat.says("ana", "charge C7 10")
        till.balance = 5000
        await chat.presses("ana", BUTTON)
        assert till.paid == [] and not any("I may do this without" in text for text in texts(chat))
        await chat.says("ana", "charge C7 10")
        assert till.paid == [] and "Confirm" in chat.last.buttons


async def test_action_that_ran_too_late_gives_no_permission(tmp_path: Path) -> None:
    till = Till(Standing(max_seconds=60, max_uses=2, free=["amount"]))
    async with rig(till.bot, tmp_path) as chat:
        await chat.handles("ana", "charge C7 10")
        await chat.presses(token_of(chat, "Yes, and for 1 minute"))
        await chat.advance(61)
        await chat.work()
        assert till.paid == [("C7", 10)] and not any("I may do this without" in text for text in chat.platform.texts())


async def test_stop_before_the_launch_leaves_no_permission(tmp_path: Path) -> None:
    till = Till()
    async with rig(till.bot, tmp_path) as chat:
        await chat.handles("ana", "charge C7 10")
        await chat.presses(token_of(chat, BUTTON))
        await chat.handles("ana", "/stop")
        await chat.handles("ana", "charge C7 20")
        assert till.paid == []


async def test_launching_process_gives_the_permission_asked_elsewhere(tmp_path: Path) -> None:
    till = Till()
    async with rig(till.bot, tmp_path) as chat:
        await chat.handles("ana", "charge C7 10")
        await chat.presses(token_of(chat, BUTTON))
        assert not any("I may do this without" in text for text in chat.platform.texts())
        chat.worker = chat.another()
        await chat.work()
        assert sum("I may do this without" in text for text in chat.platform.texts()) == 1
        await chat.handles("ana", "charge C7 20")
        assert till.paid == [("C7", 10), ("C7", 20)]


# ── a permission is used ──


async def test_matching_calls_are_done_and_told_until_the_last_use(permitted: ChatDriver, till: Till) -> None:
    for left, amount in ((1, 20), (0, 30)):
        await permitted.says("ana", f"charge C7 {amount} for {left} weeks")
        assert texts(permitted)[-2:] == [
            f"I am doing it, as you allowed until TIME ({left} left): Pay {amount} to “C7”",
            f"Done under your permission: Pay {amount} to “C7”\n\n{amount} paid.",
        ]
    await permitted.says("ana", "charge C7 40")
    assert till.paid == [("C7", 10), ("C7", 20), ("C7", 30)]
    assert "Confirm" in permitted.last.buttons


async def test_done_is_told_only_after_the_effect(permitted: ChatDriver, till: Till) -> None:
    """Defect 6: "Done under your permission" stood in the commit of the turn, before the effect."""
    till.failing = {20.0}
    await permitted.says("ana", "charge C7 20")
    said = texts(permitted)[-2:]
    assert said[0] == "I am doing it, as you allowed until TIME (1 left): Pay 20 to “C7”"
    assert said[1] == "It did not work: Pay 20 to “C7”"
    assert not any("Done under" in text for text in texts(permitted))


async def test_failed_use_counts(permitted: ChatDriver, till: Till) -> None:
    till.failing, till.idle = {20.0}, {30.0}
    for amount in (20, 30, 40):
        await permitted.says("ana", f"charge C7 {amount}")
    assert till.paid == [("C7", 10)] and "Confirm" in permitted.last.buttons


async def test_each_of_two_permitted_calls_of_a_reply_is_told(permitted: ChatDriver, till: Till) -> None:
    """Defect 7: the end of the first call was held for the plan, and never told."""
    till.failing = {70.0}
    await permitted.says("ana", "charge C7 70, charge C7 8")
    said = texts(permitted)[-4:]
    assert "Done under your permission: Pay 8 to “C7”\n\n8 paid." in said
    assert "It did not work: Pay 70 to “C7”" in said
    assert till.paid == [("C7", 10), ("C7", 8)]


async def test_permitted_call_beside_an_asked_one_is_told_by_itself(permitted: ChatDriver, till: Till) -> None:
    await permitted.says("ana", "charge C7 20, charge C8 20")
    assert "Done under your permission: Pay 20 to “C7”\n\n20 paid." in texts(permitted)
    question = next(message for message in permitted.messages if "**Pay 20 to “C8”?**" in message.text)
    assert "Confirm" in question.buttons and "Confirm all" not in question.buttons


@pytest.mark.parametrize("words", ["charge C8 20", "pay c7 20", "charge C7 100.01", "charge C7 -1", "charge C7 1e3"])
async def test_call_outside_the_permission_is_asked(permitted: ChatDriver, till: Till, words: str) -> None:
    """Defect 11: only the fixed arguments were looked at."""
    await permitted.says("ana", words)
    assert till.paid == [("C7", 10)]


async def test_same_call_again_without_a_message_is_asked() -> None:
    """Defect 11: a model woken by each outcome called again until all uses were gone."""
    till = Till(ANYTHING, resumes=True)
    async with ChatDriver(till.bot) as chat:
        await chat.says("ana", "charge C7 10")
        await chat.presses("ana", BUTTON)
        assert till.paid == [("C7", 10)] and "**Pay 10 to “C7”?**" in chat.last.text
        await chat.presses("ana", "Cancel")
        await chat.says("ana", "charge C7 20")
        assert till.paid == [("C7", 10), ("C7", 20)] and "**Pay 20 to “C7”?**" in chat.last.text
        await chat.presses("ana", "Cancel")
        await chat.says("ana", "charge C7 10")
        assert till.paid[2:] == [("C7", 10)], "the person has written since"


async def test_second_permission_covers_no_repetition_either() -> None:
    till = Till(ANYTHING, resumes=True)
    async with ChatDriver(till.bot) as chat:
        await chat.says("ana", "charge C7 10")
        await chat.presses("ana", BUTTON)
        await chat.presses("ana", BUTTON)
        assert till.paid == [("C7", 10), ("C7", 10)]
        await chat.presses("ana", "Cancel")
        await chat.says("ana", "charge C7 20")
        assert till.paid[2:] == [("C7", 20)] and "**Pay 20 to “C7”?**" in chat.last.text


async def test_same_call_twice_in_a_reply_is_covered_once() -> None:
    """The previews of a volatile tool are not compared, so the second call is no twin of the first."""
    till = Till(ANYTHING, looks=True, volatile=True)
    async with ChatDriver(till.bot) as chat:
        await chat.says("ana", "charge C7 10")
        await chat.presses("ana", BUTTON)
        await chat.says("ana", "charge C7 20, charge C7 20")
        assert till.paid == [("C7", 10), ("C7", 20)]
        assert any("Confirm" in message.buttons for message in chat.messages)


async def test_ask_again_is_asked_although_the_call_is_covered(chat: ChatDriver, till: Till) -> None:
    """Defect 3: a press on an expired question acted at once, under a permission given meanwhile."""
    await chat.says("ana", "charge C7 50")
    await chat.clock.advance(1000)
    await chat.says("ana", "charge C7 10")
    await chat.presses("ana", BUTTON)
    await chat.presses("ana", "Ask again")
    assert till.paid == [("C7", 10)]
    assert "**Pay 50 to “C7”?**" in chat.last.text and "Confirm" in chat.last.buttons


async def test_child_of_a_change_is_asked_although_the_call_is_covered(permitted: ChatDriver, till: Till) -> None:
    """Defect 10: the changed call ran under a permission, and the first question stayed open."""
    await permitted.says("ana", "charge C8 500")
    first = re.findall(r"OK (\w{4})\*\*", permitted.last.text)[0]
    await permitted.says("ana", "yes, but charge C7 50")
    assert till.paid == [("C7", 10)] and "**Pay 50 to “C7”?**" in permitted.last.text
    await permitted.says("ana", f"OK {first}")
    assert till.paid == [("C7", 10)], "nothing of the first runs afterwards"
    await permitted.presses("ana", "Confirm")
    assert till.paid == [("C7", 10), ("C7", 50)]


async def test_permission_is_of_one_person_and_conversation(chat: ChatDriver, till: Till) -> None:
    await chat.says("ana", "charge C7 10", group="office")
    await chat.presses("ben", BUTTON)
    assert chat.alerts[-1] == "This is not yours to answer."
    await chat.presses("ana", BUTTON)
    assert till.paid == [("C7", 10)]
    await chat.says("ben", "charge C7 20", group="office")
    await chat.says("ana", "charge C7 30")
    assert till.paid == [("C7", 10)]


async def test_call_with_another_preview_is_asked() -> None:
    """Defect 11: the preview of a permitted call was not compared with the shown preview."""
    till = Till(looks=True)
    async with ChatDriver(till.bot) as chat:
        await chat.says("ana", "charge C7 10")
        await chat.presses("ana", BUTTON)
        await chat.says("ana", "charge C7 20")
        assert till.paid == [("C7", 10), ("C7", 20)]
        till.balance = 1
        await chat.says("ana", "charge C7 30")
        assert till.paid == [("C7", 10), ("C7", 20)]


async def test_rule_that_became_narrower_counts(permitted: ChatDriver, till: Till) -> None:
    rule = till.bot.tool("pay")
    assert rule is not None and rule.confirm is not None
    for narrower in (
        Standing(max_seconds=60, max_uses=2, free=["note"], most={"amount": 100}),
        Standing(max_seconds=3600, max_uses=1, free=["note"], most={"amount": 100}),
        Standing(max_seconds=3600, max_uses=2, free=["note"], most={"amount": 99}),
        Standing(max_seconds=3600, max_uses=2, free=["note"]),
        Standing(max_seconds=3600, max_uses=2, most={"amount": 100}),
    ):
        rule.confirm.standing = narrower
        await permitted.says("ana", "charge C7 20")
        assert till.paid == [("C7", 10)]
        await permitted.presses("ana", "Cancel")
    rule.confirm.standing = Standing(max_seconds=3601, max_uses=3, free=["note", "amount"])
    await permitted.says("ana", "charge C7 20")
    assert till.paid == [("C7", 10), ("C7", 20)]


async def test_each_use_is_an_action_that_names_the_permission(permitted: ChatDriver) -> None:
    await permitted.says("ana", "charge C7 20")
    context = permitted.engine.context
    actions = await context.actions(CHAT, find=lambda index: [each.action_id for each in index.settled])
    (used,) = [action for action in actions.by_id.values() if action.permission]
    (giver,) = [action for action in actions.by_id.values() if action.grant]
    assert (used.state, used.permission, used.plan) == ("done", giver.pending_action_id, None)
    assert giver.grant is not None and [each.action_id for each in giver.grant.used] == [used.pending_action_id]
    lines = await context.store.read(Key(context.store.partition(CHAT), "audit"))
    written = [line.value for line in lines if isinstance(line.value, dict)]

    def audited(action: PendingAction) -> list[Json]:
        return [line["what"] for line in written if line["action"] == action.pending_action_id]

    assert audited(used) == ["asked", "permitted", "launched", "finished"]
    assert audited(giver)[-3:] == ["permission_given", "finished", "permission_used"]


# ── a permission ends ──


async def test_permission_ends_with_its_time(permitted: ChatDriver, till: Till) -> None:
    await permitted.clock.advance(3601)
    await permitted.says("ana", "charge C7 20")
    assert till.paid == [("C7", 10)]
    assert await ends(permitted) == ["expired"]


async def test_pending_lists_the_permission_and_stop_ends_it(permitted: ChatDriver, till: Till) -> None:
    await permitted.says("ana", "/pending")
    assert texts(permitted)[-1].startswith(
        "Nothing is waiting for your answer.\n\nOK: until TIME I may do this without asking, 2 more times"
    )
    await permitted.says("ana", "/stop")
    assert permitted.last.text.endswith(
        "No longer allowed without a question: pay (unchanged: customer C7; amount: from 0 to 100; any value: note)"
    )
    assert await ends(permitted) == ["stopped"]
    await permitted.says("ana", "charge C7 20")
    assert till.paid == [("C7", 10)]


async def test_opt_out_ends_the_permission(allowed: Rig, till: Till) -> None:
    person = message("ana", "").person
    for number, back in enumerate((False, True)):
        ids = (f"opt {number}",)
        await allowed.take(OptOut(event_ids=ids, address=here("ana"), person=person, opted_in=back, told=True))
    await allowed.handles("ana", "charge C7 20")
    assert till.paid == [("C7", 10)]
    assert [action.grant.ended for action in await allowed.actions() if action.grant] == ["stopped"]


async def test_operator_lists_and_ends_the_permission(permitted: ChatDriver, till: Till) -> None:
    context = permitted.engine.context
    operator = ActionCommands(context.store, context.channels, context.keyring, bot=None)
    (listed,) = await operator.pending()
    assert (listed["state"], listed["requester"]) == ("permitted", "test:bot:ana")
    assert str(listed["preview"]).startswith("pay with customer='C7', amount up to 100, any note: 2 more times until ")
    await operator.cancel(str(listed["id"])[:8])
    await permitted.clock.advance(1)
    assert any(message.text.startswith("No longer allowed without") for message in permitted.messages)
    assert await ends(permitted) == ["revoked"]
    await permitted.says("ana", "charge C7 20")
    assert till.paid == [("C7", 10)]
    assert await operator.pending() != [listed]


async def ends(chat: ChatDriver) -> list[str | None]:
    """Return the ends of the permissions, from the records of the actions."""
    found = [action_of(record.value) for _, record in await chat.engine.context.store.scan("action/")]
    return [action.grant.ended for action in found if action.grant is not None]


# ── old records put back in the store revive no permission ──


def token_of(chat: Rig, label: str) -> str:
    buttons = [button for _, part in chat.platform.sent for button in part.buttons if button.label == label]
    return buttons[-1].token


@pytest.fixture
async def allowed(till: Till, tmp_path: Path) -> AsyncIterator[Rig]:
    """A chat after Ana confirmed a call, and allowed two others of the kind."""
    async with rig(till.bot, tmp_path) as chat:
        await chat.handles("ana", "charge C7 10")
        await chat.presses(token_of(chat, BUTTON))
        await chat.work()
        assert till.paid == [("C7", 10)]
        yield chat


async def read(chat: Rig, name: str) -> Any:
    key = Key(chat.store.partition(CHAT), name)
    return (await chat.store.get([key]))[key].value


async def put_back(chat: Rig, name: str, value: Json) -> None:
    """Write an earlier row back, and restart the bot."""
    await chat.store.commit(Transaction(partition=chat.store.partition(CHAT), puts={name: Put(value)}))
    chat.worker = chat.another()


async def test_old_index_renews_no_use(allowed: Rig, till: Till) -> None:
    """Defect 12: the uses left stood in the index alone, and an old row gave the uses back."""
    before = await read(allowed, f"open/{CHAT}")
    await allowed.handles("ana", "charge C7 20", "charge C7 30")
    assert till.paid == [("C7", 10), ("C7", 20), ("C7", 30)]
    await put_back(allowed, f"open/{CHAT}", before)
    await allowed.handles("ana", "charge C7 40")
    assert till.paid == [("C7", 10), ("C7", 20), ("C7", 30)]


async def test_stop_names_the_permitted_call_that_it_prevents(allowed: Rig, till: Till) -> None:
    await allowed.says("ana", "charge C7 20")
    await allowed.worker.turn()
    await allowed.says("ana", "/stop")
    await allowed.work()
    assert till.paid == [("C7", 10)]
    (told,) = [text for text in allowed.platform.texts() if "Withdrawn. Nothing was done." in text]
    assert "20" in told and "Stopped" in told


async def test_old_index_does_not_renew_one_of_two_uses(allowed: Rig, till: Till) -> None:
    before = await read(allowed, f"open/{CHAT}")
    await allowed.handles("ana", "charge C7 20")
    await put_back(allowed, f"open/{CHAT}", before)
    await allowed.handles("ana", "charge C7 30", "charge C7 40")
    assert len(till.paid) <= 3


@pytest.mark.parametrize("by", ["stop", "operator"])
async def test_old_index_revives_no_permission_that_was_ended(allowed: Rig, till: Till, by: str) -> None:
    """Defect 12, the other half: a withdrawn permission came back with the row."""
    before = await read(allowed, f"open/{CHAT}")
    if by == "stop":
        await allowed.handles("ana", "/stop")
    else:
        context = allowed.worker.context
        operator = ActionCommands(allowed.store, context.channels, context.keyring, bot=None)
        await operator.cancel(str((await operator.pending())[-1]["id"]))
    await put_back(allowed, f"open/{CHAT}", before)
    await allowed.handles("ana", "charge C7 20")
    assert till.paid == [("C7", 10)]


async def test_old_record_of_the_action_that_gave_it_renews_no_use(allowed: Rig, till: Till) -> None:
    (giver,) = await allowed.actions()
    name = f"action/{giver.pending_action_id}"
    before = await read(allowed, name)
    await allowed.handles("ana", "charge C7 20")
    await put_back(allowed, name, before)
    await allowed.handles("ana", "charge C7 30", "charge C7 40")
    assert till.paid == [("C7", 10), ("C7", 20)]


async def test_old_record_that_the_index_has_dropped_renews_no_use(allowed: Rig, till: Till) -> None:
    (giver,) = await allowed.actions()
    name = f"action/{giver.pending_action_id}"
    before = await read(allowed, name)
    await allowed.handles("ana", "charge C7 20")
    for number in range(21):
        await allowed.handles("ana", f"charge C8 {number}", f"no {code_of_last(allowed)}")
    await put_back(allowed, name, before)
    await allowed.handles("ana", "charge C7 30", "charge C7 40")
    assert till.paid == [("C7", 10), ("C7", 20)]


def code_of_last(chat: Rig) -> str:
    return str(re.findall(r"NO (\w{4})\*\*", "\n".join(chat.platform.texts()))[-1])


async def test_permission_is_none_once_the_record_that_gave_it_is_gone(allowed: Rig, till: Till) -> None:
    (giver,) = await allowed.actions()
    deletes = [f"action/{giver.pending_action_id}"]
    await allowed.store.commit(Transaction(partition=allowed.store.partition(CHAT), deletes=deletes))
    await allowed.handles("ana", "charge C7 20")
    assert till.paid == [("C7", 10)]


async def test_permission_outlives_a_restart_and_many_other_questions(allowed: Rig, till: Till) -> None:
    for number in range(21):
        await allowed.handles("ana", f"charge C8 {number}")
        await allowed.handles("ana", f"no {code_of_last(allowed)}")
        await allowed.advance(46)
    allowed.worker = allowed.another()
    await allowed.handles("ana", "charge C7 20")
    assert till.paid == [("C7", 10), ("C7", 20)]


async def test_next_release_with_another_template_asks(allowed: Rig, till: Till) -> None:
    """Defect 11: a permission given under one question was good for a tool with another question."""
    later = Till(ask="Close the account of {customer} and write off {amount}?")
    allowed.bot = later.bot
    allowed.worker = allowed.another()
    await allowed.handles("ana", "charge C7 20")
    assert later.paid == []
    assert "Close the account of “C7” and write off 20?" in allowed.platform.texts()[-1]
