"""A person who has blocked or removed the bot is found out once, remembered, and forgotten when they write again."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from channels import ButtonPress, DeliveryReport, OptOut, Reply, Unavailable, Unreachable
from gateway.operations.base import NotDone
from gateway.operations.operator import Operator
from gateway.pending.seal import Keyring
from gateway.store.errors import StoreUnavailable
from tests.engine.bots import Invoices
from tests.engine.rig import KEYS, Rig, here, message, rig
from tests.stored import action_of

_numbers = itertools.count(1)
BLOCKED = Unreachable("blocked")


async def blocked(chat: Rig, place: str = "ana") -> None:
    """It was found out."""
    chat.platform.will = [BLOCKED]
    await chat.notify("are you there?", place=place)
    await chat.turns()
    with pytest.raises(Unreachable, match="blocked"):
        await chat.notify("news", place=place)


async def ends(chat: Rig) -> list[str]:
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
    assert await ends(chat) == ["undelivered"]
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


async def test_recorded_state_holds_in_another_process(chat: Rig) -> None:
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
    person = message("ana", "").person
    await chat.take(ButtonPress(event_ids=("press",), address=here("ana"), person=person, token=confirm.token))
    await chat.notify("news")


async def test_message_of_another_person_unblocks_nobody(chat: Rig) -> None:
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


async def test_block_check_costs_a_plain_message_no_call(tmp_path: Path, invoices: Invoices) -> None:
    async with rig(invoices.bot(), tmp_path) as chat:
        await chat.says("ana", "hello")
        await chat.worker.turn()
        await chat.worker.deliver()
        assert chat.wire.calls == {"accept": 1, "lease": 2, "commit": 2}
