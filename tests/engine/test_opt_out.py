"""A person who opts out can still write: nothing goes out to them, and waiting messages for them end."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from channels import OptedOut, OptOut, Parsed, WebhookResponse
from gateway.access import AllowList
from gateway.access.suppression import has_opted_out
from gateway.engine.intake.inbox import Inbox
from gateway.operations.base import NotDone
from gateway.operations.operator import Operator
from gateway.pending.seal import Keyring
from tests.engine.bots import Invoices
from tests.engine.rig import KEYS, Rig, here, message, rig

_numbers = itertools.count(1)
FAREWELL = "You will hear nothing more from me. To hear from me again, write Start."
HELLO = "Hello! Tell me what you need. I always ask before I do something that cannot be undone."


@pytest.fixture
async def chat(tmp_path: Path, invoices: Invoices) -> AsyncIterator[Rig]:
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
    """A question is asked and has arrived."""
    await chat.hears(place, f"delete {invoice}")


async def ends(chat: Rig) -> list[Any]:
    return sorted((action.args["invoice_id"], action.reason or action.state) for action in await chat.actions())


async def muted(chat: Rig, place: str = "ana") -> bool:
    return await has_opted_out(chat.store, chat.worker.context.conversation(here(place)))


SILENT = "not sent: they have opted out"


async def test_what_is_open_is_withdrawn_and_nothing_more_is_sent(chat: Rig) -> None:
    await asks(chat, "INV-1 INV-2")
    await asks(chat, place="bob")
    before = chat.platform.texts("ana")
    await chat.take(opts())
    assert await ends(chat) == [("INV-1", "pending"), ("INV-1", "withdrawn"), ("INV-2", "withdrawn")]
    await chat.hears("ana", "hello?")
    await chat.later(3600)
    assert chat.platform.texts("ana") == before
    assert len(chat.platform.texts("bob")) == 2, "bob's question, and that it has expired"


async def test_no_model_reads_what_could_not_be_answered(chat: Rig, invoices: Invoices) -> None:
    await chat.take(opts())
    asked = len(invoices.model.requests)
    await chat.says("ana", "hello?")
    await chat.hears("ana", "delete INV-1")
    assert len(invoices.model.requests) == asked
    assert (await chat.store.stats()).waiting == 0
    assert await chat.actions() == []


async def test_recorded_state_holds_in_another_process(chat: Rig) -> None:
    await chat.take(opts())
    await chat.says("ana", "hello?")
    await chat.another().turn()
    assert chat.platform.texts() == [] and (await chat.store.stats()).parts == 0


async def test_the_code_of_what_was_withdrawn_does_nothing(chat: Rig, invoices: Invoices) -> None:
    await asks(chat)
    (action,) = await chat.actions()
    before = chat.platform.texts()
    await chat.take(opts())
    await chat.hears("ana", f"OK {action.code}")
    assert invoices.deleted == [] and chat.platform.texts() == before
    assert await chat.dead() == [SILENT]


async def test_opt_out_puts_the_outbox_aside_and_withdraws_the_ask(chat: Rig) -> None:
    await chat.notify("one")
    await chat.says("ana", "delete INV-1")
    await chat.worker.turn()
    await chat.take(opts())
    await chat.turns()
    assert chat.platform.sent == []
    assert await chat.dead() == [SILENT] * 2
    assert await ends(chat) == [("INV-1", "withdrawn")]


async def test_a_running_turn_is_ended(chat: Rig, invoices: Invoices) -> None:
    await chat.says("ana", "wait")
    running = asyncio.create_task(chat.worker.turn())
    await invoices.model.waiting.wait()
    await chat.take(opts())
    await running
    await chat.turns()
    assert chat.platform.sent == []


async def test_turn_ending_after_an_opt_out_elsewhere_is_put_aside(chat: Rig, invoices: Invoices) -> None:
    await chat.says("ana", "wait")
    running = asyncio.create_task(chat.worker.turn())
    await invoices.model.waiting.wait()
    other = chat.another()
    await other.engine.inbox.accept(chat.platform, Parsed(events=(opts(),), response=WebhookResponse()))
    while (await chat.store.stats()).pointed:
        await asyncio.sleep(0)
    invoices.model.let_go.set()
    await running
    await chat.turns()
    assert chat.platform.sent == [] and await chat.dead() == [SILENT]


async def test_farewell_is_sent_once_after_an_untold_opt_out(chat: Rig) -> None:
    await asks(chat)
    before = chat.platform.texts()
    await chat.take(opts(told=False))
    await chat.turns()
    assert chat.platform.texts() == [*before, FAREWELL]
    await chat.hears("ana", "hello?")
    assert chat.platform.texts() == [*before, FAREWELL]


async def test_start_ends_the_opt_out(chat: Rig) -> None:
    await chat.take(opts())
    assert await muted(chat)
    await chat.take(opts(opted_in=True))
    assert not await muted(chat)
    await chat.hears("ana", "hello?")
    assert chat.platform.texts() == ["You said: hello?"]


async def test_start_is_answered_where_nobody_else_answers_it(chat: Rig) -> None:
    await chat.take(opts(told=False), opts(opted_in=True, told=False))
    await chat.turns()
    assert chat.platform.texts() == [FAREWELL, HELLO]


async def test_a_yes_that_carriers_take_for_start_is_read(chat: Rig) -> None:
    await chat.take(opts())
    await chat.hears("ana", "yes", opts_in=True)
    assert chat.platform.texts() == ["You said: yes"]
    assert not await muted(chat)


async def test_stop_and_start_at_once_count_in_their_order(chat: Rig) -> None:
    await chat.take(opts(), opts(opted_in=True), opts(), opts(opted_in=True))
    assert not await muted(chat)
    await chat.take(opts(opted_in=True), opts())
    assert await muted(chat)


async def test_opt_out_refusal_of_the_platform_is_remembered(chat: Rig) -> None:
    await asks(chat)
    await chat.notify("one")
    await chat.notify("two")
    chat.platform.will = [OptedOut("21610")]
    await chat.worker.deliver()
    assert await chat.dead() == ["not deliverable: 21610"] * 2
    assert len(chat.platform.keys) == 2, "the question, and one that was refused"
    assert await ends(chat) == [("INV-1", "withdrawn")]
    assert await muted(chat)


async def test_a_question_that_is_refused_so_was_never_asked(chat: Rig) -> None:
    await chat.says("ana", "delete INV-1")
    await chat.worker.turn()
    chat.platform.will = [OptedOut("21610")]
    await chat.worker.deliver()
    assert await ends(chat) == [("INV-1", "undelivered")]
    assert await muted(chat)


async def test_an_outcome_that_cannot_be_told_is_kept_for_the_operator(chat: Rig, invoices: Invoices) -> None:
    await asks(chat)
    (action,) = await chat.actions()
    before = chat.platform.texts()
    invoices.hold = asyncio.Event()
    await chat.says("ana", f"OK {action.code}")
    running = asyncio.create_task(chat.worker.engine._actions.run(await chat.worker.lease("action")))
    await invoices.running.wait()
    await chat.take(opts())
    invoices.hold.set()
    await running
    await chat.turns()
    assert invoices.deleted == ["INV-1"] and chat.platform.texts() == before
    (letter,) = await chat.store.dead_letters()
    assert letter.reason == SILENT and "INV-1 is deleted" in str(letter.part)
    await chat.take(opts(opted_in=True))
    assert await chat.store.replay(letter.dead_id)
    await chat.turns()
    assert chat.platform.texts() == [*before, "Invoice INV-1 is deleted."]


async def test_notify_and_operator_send_after_opt_out_are_refused(chat: Rig) -> None:
    await chat.take(opts())
    with pytest.raises(OptedOut):
        await chat.notify("news")
    context = chat.worker.context
    operator = Operator(context.store, context.channels, Keyring(KEYS), bot=context.bot.name)
    with pytest.raises(NotDone, match="test:bot:ana has opted out: nothing is sent there until they write START"):
        await operator.send("test:bot:ana", "news")
    assert (await chat.store.stats()).parts == 0
    await operator.send("test:bot:bob", "news")
    await chat.turns()
    assert chat.platform.texts("bob") == ["news"]


async def test_opt_out_never_expires(chat: Rig) -> None:
    await chat.take(opts())
    chat.store.offset_seconds += timedelta(days=400).total_seconds()
    assert await muted(chat)


async def test_a_stranger_who_opts_out_is_told_nothing_more(chat: Rig) -> None:
    context = chat.worker.context
    context.allowed = AllowList([])
    inbox = Inbox(context, chat.worker.decisions)
    for event in (opts(told=False), message("ana", "who are you?"), message("bob", "who are you?")):
        await inbox.accept(chat.platform, Parsed(events=(event,), response=WebhookResponse()))
    await context.tasks.drain(5.0)
    await chat.turns()
    assert (chat.platform.texts("ana"), len(chat.platform.texts("bob"))) == ([], 1)
    await inbox.accept(chat.platform, Parsed(events=(opts(opted_in=True, told=False),), response=WebhookResponse()))
    await context.tasks.drain(5.0)
    assert not await muted(chat) and await chat.ready() == 0, "a stranger is not greeted"


async def test_person_who_writes_on_a_blocking_platform_is_not_muted(tmp_path: Path, invoices: Invoices) -> None:
    """Who has blocked the bot cannot write, so whoever writes has not: not even when a word of it was lost."""
    async with rig(invoices.bot(), tmp_path, opt_out=False) as chat:
        await chat.take(opts())
        assert not await muted(chat)
        await chat.hears("ana", "hello?")
        assert chat.platform.texts() == ["You said: hello?"]
