"""A person can still write after opting out: no message goes out to the person, and waiting messages end."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from channels import (
    DeliveryReport,
    OptedOut,
    OptOut,
    Parsed,
    Reply,
    Unavailable,
    Unreachable,
    WebhookResponse,
)
from gateway.access import AllowList
from gateway.access.suppression import has_opted_out
from gateway.engine.intake.inbox import Inbox
from gateway.operations.base import NotDone
from gateway.operations.operator import Operator
from gateway.pending.seal import Keyring
from gateway.store.errors import StoreUnavailable
from tests.engine.bots import Invoices
from tests.engine.rig import KEYS, Rig, here, message, rig
from tests.stored import action_of

_numbers = itertools.count(1)
FAREWELL = "You will hear nothing more from me. To hear from me again, write Start."
HELLO = "Hello! Tell me what you need. I always ask before I do something that cannot be undone."


@pytest.fixture
async def sms(tmp_path: Path, invoices: Invoices) -> AsyncIterator[Rig]:
    async with rig(invoices.bot(), tmp_path, buttons=0, edit=False, opt_out=True) as chat:
        yield chat


def opts(*, opted_in: bool = False, told: bool = True, place: str = "ana") -> OptOut:
    return OptOut(
        event_ids=(f"opt {next(_numbers)}",),
        address=here(place),
        person=message(place, "").person,
        opted_in=opted_in,
        told=told,
    )


async def asks(chat: Rig, invoice: str = "INV-1", *, place: str = "ana") -> None:
    """Have a question asked and delivered."""
    await chat.hears(place, f"delete {invoice}")


async def ends(chat: Rig) -> list[Any]:
    return sorted((action.args["invoice_id"], action.reason or action.state) for action in await chat.actions())


async def muted(chat: Rig, place: str = "ana") -> bool:
    return await has_opted_out(chat.store, chat.worker.context.conversation(here(place)))


SILENT = "not sent: they have opted out"


async def test_opt_out_withdraws_open_questions_and_ends_sending(sms: Rig) -> None:
    await asks(sms, "INV-1 INV-2")
    await asks(sms, place="bob")
    before = sms.platform.texts("ana")
    await sms.take(opts())
    assert await ends(sms) == [("INV-1", "pending"), ("INV-1", "withdrawn"), ("INV-2", "withdrawn")]
    await sms.hears("ana", "hello?")
    await sms.later(3600)
    assert sms.platform.texts("ana") == before
    assert len(sms.platform.texts("bob")) == 2, "bob's question, and that it has expired"


async def test_message_after_an_opt_out_is_read_by_no_model(sms: Rig, invoices: Invoices) -> None:
    await sms.take(opts())
    asked = len(invoices.model.requests)
    await sms.says("ana", "hello?")
    await sms.hears("ana", "delete INV-1")
    assert len(invoices.model.requests) == asked
    assert (await sms.store.stats()).waiting == 0
    assert await sms.actions() == []


async def test_recorded_state_holds_in_another_process(sms: Rig) -> None:
    await sms.take(opts())
    await sms.says("ana", "hello?")
    await sms.another().turn()
    assert sms.platform.texts() == [] and (await sms.store.stats()).parts == 0


async def test_opt_out_puts_the_outbox_aside_and_withdraws_the_ask(sms: Rig) -> None:
    await sms.notify("one")
    await sms.says("ana", "delete INV-1")
    await sms.worker.turn()
    await sms.take(opts())
    await sms.turns()
    assert sms.platform.sent == []
    assert await sms.dead() == [SILENT] * 2
    assert await ends(sms) == [("INV-1", "withdrawn")]


async def test_a_running_turn_is_ended(sms: Rig, invoices: Invoices) -> None:
    running = await sms.waits()
    await sms.take(opts())
    await running
    await sms.turns()
    assert sms.platform.sent == []


async def test_turn_ending_after_an_opt_out_elsewhere_is_put_aside(sms: Rig, invoices: Invoices) -> None:
    running = await sms.waits()
    other = sms.another()
    await other.engine.inbox.accept(sms.platform, Parsed(events=(opts(),), response=WebhookResponse()))
    while (await sms.store.stats()).pointed:
        await asyncio.sleep(0)
    invoices.model.let_go.set()
    await running
    await sms.turns()
    assert sms.platform.sent == [] and await sms.dead() == [SILENT]


async def test_farewell_is_sent_once_after_an_untold_opt_out(sms: Rig) -> None:
    await asks(sms)
    before = sms.platform.texts()
    await sms.take(opts(told=False))
    await sms.turns()
    assert sms.platform.texts() == [*before, FAREWELL]
    await sms.hears("ana", "hello?")
    assert sms.platform.texts() == [*before, FAREWELL]


async def test_start_ends_the_opt_out(sms: Rig) -> None:
    await sms.take(opts())
    assert await muted(sms)
    await sms.take(opts(opted_in=True))
    assert not await muted(sms)
    await sms.hears("ana", "hello?")
    assert sms.platform.texts() == ["You said: hello?"]


async def test_start_is_answered_when_the_platform_does_not_answer_it(sms: Rig) -> None:
    await sms.take(opts(told=False), opts(opted_in=True, told=False))
    await sms.turns()
    assert sms.platform.texts() == [FAREWELL, HELLO]


async def test_a_yes_that_carriers_take_for_start_is_read(sms: Rig) -> None:
    await sms.take(opts())
    await sms.hears("ana", "yes", opts_in=True)
    assert sms.platform.texts() == ["You said: yes"]
    assert not await muted(sms)


async def test_stop_and_start_at_once_count_in_their_order(sms: Rig) -> None:
    await sms.take(opts(), opts(opted_in=True), opts(), opts(opted_in=True))
    assert not await muted(sms)
    await sms.take(opts(opted_in=True), opts())
    assert await muted(sms)


async def test_opt_out_refusal_of_the_platform_is_remembered(sms: Rig) -> None:
    await asks(sms)
    await sms.notify("one")
    await sms.notify("two")
    sms.platform.will = [OptedOut("21610")]
    await sms.worker.deliver()
    assert await sms.dead() == ["not deliverable: 21610"] * 2
    assert len(sms.platform.keys) == 2, "the question, and one that was refused"
    assert await ends(sms) == [("INV-1", "withdrawn")]
    assert await muted(sms)


async def test_question_refused_by_an_opt_out_counts_as_undelivered(sms: Rig) -> None:
    await sms.says("ana", "delete INV-1")
    await sms.worker.turn()
    sms.platform.will = [OptedOut("21610")]
    await sms.worker.deliver()
    assert await ends(sms) == [("INV-1", "undelivered")]
    assert await muted(sms)


async def test_an_outcome_that_cannot_be_told_is_kept_for_the_operator(sms: Rig, invoices: Invoices) -> None:
    await asks(sms)
    (action,) = await sms.actions()
    before = sms.platform.texts()
    invoices.hold = asyncio.Event()
    await sms.says("ana", f"OK {action.code}")
    running = asyncio.create_task(sms.worker.engine._actions.run(await sms.worker.lease("action")))
    await invoices.running.wait()
    await sms.take(opts())
    invoices.hold.set()
    await running
    await sms.turns()
    assert invoices.deleted == ["INV-1"] and sms.platform.texts() == before
    (letter,) = await sms.store.dead_letters()
    assert letter.reason == SILENT and "INV-1 is deleted" in str(letter.part)
    await sms.take(opts(opted_in=True))
    assert await sms.store.replay(letter.dead_id)
    await sms.turns()
    assert sms.platform.texts() == [*before, "Invoice INV-1 is deleted."]


async def test_notify_and_operator_send_after_opt_out_are_refused(sms: Rig) -> None:
    await sms.take(opts())
    with pytest.raises(OptedOut):
        await sms.notify("news")
    context = sms.worker.context
    operator = Operator(context.store, context.channels, Keyring(KEYS), bot=context.bot.name)
    with pytest.raises(NotDone, match="test:bot:ana has opted out: nothing is sent there until they write START"):
        await operator.send("test:bot:ana", "news")
    assert (await sms.store.stats()).parts == 0
    await operator.send("test:bot:bob", "news")
    await sms.turns()
    assert sms.platform.texts("bob") == ["news"]


async def test_opt_out_never_expires(sms: Rig) -> None:
    await sms.take(opts())
    sms.store.offset_seconds += timedelta(days=400).total_seconds()
    assert await muted(sms)


async def test_stranger_gets_no_message_after_an_opt_out(sms: Rig) -> None:
    context = sms.worker.context
    context.allowed = AllowList([])
    inbox = Inbox(context, sms.worker.decisions)
    for event in (opts(told=False), message("ana", "who are you?"), message("bob", "who are you?")):
        await inbox.accept(sms.platform, Parsed(events=(event,), response=WebhookResponse()))
    await context.tasks.drain(5.0)
    await sms.turns()
    assert (sms.platform.texts("ana"), len(sms.platform.texts("bob"))) == ([], 1)
    await inbox.accept(sms.platform, Parsed(events=(opts(opted_in=True, told=False),), response=WebhookResponse()))
    await context.tasks.drain(5.0)
    assert not await muted(sms) and await sms.ready() == 0, "a stranger is not greeted"


async def test_person_writing_on_a_blocking_platform_is_not_muted(tmp_path: Path, invoices: Invoices) -> None:
    """A message proves that no block holds, even when the report of the block's end was lost."""
    async with rig(invoices.bot(), tmp_path, opt_out=False) as chat:
        await chat.take(opts())
        assert not await muted(chat)
        await chat.hears("ana", "hello?")
        assert chat.platform.texts() == ["You said: hello?"]


BLOCKED = Unreachable("blocked")


async def blocked(chat: Rig, place: str = "ana") -> None:
    """Let a send find the bot blocked."""
    chat.platform.will = [BLOCKED]
    await chat.notify("are you there?", place=place)
    await chat.turns()
    with pytest.raises(Unreachable, match="blocked"):
        await chat.notify("news", place=place)


async def states(chat: Rig) -> list[str]:
    found = await chat.store.scan("action/")
    actions = [action_of(record.value) for _, record in found]
    return sorted(action.reason or action.state for action in actions)


async def test_blocked_part_puts_the_whole_outbox_aside(chat: Rig) -> None:
    await chat.notify(*(f"text {number}" for number in range(30)))
    await chat.says("ana", "delete INV-1")
    await chat.worker.turn()
    chat.platform.will = [BLOCKED]
    await chat.turns()
    assert len(chat.platform.keys) == 1
    assert await chat.dead() == ["not deliverable: blocked"] * 31
    assert await states(chat) == ["undelivered"]
    assert (await chat.store.stats()).parts == 0


async def test_blocked_edit_marks_the_chat_and_is_no_dead_letter(chat: Rig, invoices: Invoices) -> None:
    await chat.hears("ana", "delete INV-1")
    await chat.says("ana", "/stop")
    chat.platform.will = [Unavailable("502")]
    await chat.worker.deliver()
    await chat.advance(2)
    chat.platform.will = [BLOCKED]
    await chat.turns()
    assert await chat.dead() == ["not deliverable: blocked"], "that it is stopped; not that its question says so"
    with pytest.raises(Unreachable):
        await chat.notify("news")


async def test_notify_and_operator_send_to_a_blocked_chat_are_refused(chat: Rig) -> None:
    await blocked(chat)
    context = chat.worker.context
    operator = Operator(context.store, context.channels, Keyring(KEYS), bot=context.bot.name)
    with pytest.raises(NotDone, match=r"test:bot:ana cannot be reached \(blocked\): nothing is sent there until"):
        await operator.send("test:bot:ana", "news")
    assert (await chat.store.stats()).parts == 0
    await chat.notify("news", place="bob")
    await chat.turns()
    assert chat.platform.texts("bob") == ["news"]


async def test_block_holds_in_another_process(chat: Rig) -> None:
    await blocked(chat)
    with pytest.raises(Unreachable):
        await chat.another().engine.runtime.notify(here("ana"), Reply(text="news"))


@pytest.mark.parametrize("text", ["hello", "/help", "yes", "/stop", "OK K7P2"])
async def test_message_from_a_blocked_chat_unblocks_it(chat: Rig, text: str) -> None:
    await blocked(chat)
    await chat.hears("ana", text)
    answers = len(chat.platform.sent)
    assert answers > 0
    await chat.notify("news")
    await chat.turns()
    assert chat.platform.texts()[-1] == "news"


async def test_press_from_a_blocked_chat_unblocks_it(chat: Rig, invoices: Invoices) -> None:
    await chat.hears("ana", "delete INV-1")
    confirm = chat.platform.sent[-1][1].buttons[0]
    await blocked(chat)
    await chat.presses(confirm.token)
    await chat.notify("news")


async def test_message_of_another_person_unblocks_no_chat(chat: Rig) -> None:
    await blocked(chat)
    await chat.hears("bob", "hello")
    with pytest.raises(Unreachable):
        await chat.notify("news")


async def test_blocked_chat_is_tried_again_after_a_day(chat: Rig) -> None:
    await blocked(chat)
    await chat.advance(86500)
    await chat.notify("news")
    await chat.turns()
    assert chat.platform.texts() == ["news"]


async def test_block_and_unblock_told_by_the_platform_are_believed(chat: Rig) -> None:
    person = message("ana", "").person

    async def says(*, back: bool) -> None:
        ids = (f"opt {next(_numbers)}",)
        await chat.take(OptOut(event_ids=ids, address=here("ana"), person=person, opted_in=back, told=True))

    await says(back=False)
    with pytest.raises(Unreachable, match="blocked"):
        await chat.notify("news")
    await says(back=True)
    await chat.notify("news")


async def test_block_of_a_group_told_by_the_platform_is_believed(chat: Rig) -> None:
    async def says(status: str, code: str | None) -> None:
        ids = (f"report {next(_numbers)}",)
        report = DeliveryReport(event_ids=ids, address=here("#team"), person=None, status=status, code=code)  # type: ignore[arg-type]
        await chat.take(report)

    await says("failed", "kicked")
    with pytest.raises(Unreachable, match="kicked"):
        await chat.notify("news", place="#team")
    await says("delivered", None)
    await chat.notify("news", place="#team")


async def test_a_store_that_fails_meanwhile_costs_no_dead_letter(chat: Rig) -> None:
    await chat.notify("one", "two")
    lease = await chat.worker.lease("out")
    chat.platform.will = [BLOCKED, BLOCKED]
    chat.wire.errors["commit"] = [StoreUnavailable("no answer")]
    with pytest.raises(StoreUnavailable):
        await chat.worker.delivery.run(lease)
    await chat.store.renew(lease, lease_seconds=0.0)
    await chat.later(20)
    assert await chat.dead() == ["not deliverable: blocked"] * 2
