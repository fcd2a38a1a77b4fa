"""The outbox is sent in order, part by part, each with a receipt, under any behaviour of the platform."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from channels import Ambiguous, MissingSetting, Part, RateLimited, Reply, Unavailable, Undeliverable
from channels.channel import Pace
from gateway import Agent, ChannelAgent, emit_artifact, tool
from gateway.pending.actions import OutgoingReply
from gateway.store.errors import StoreUnavailable
from gateway.store.transaction import Transaction
from gateway.store.types import Key, Lease, QueuedPart
from gateway.stored.outbox import address_to_json
from gateway.testing import ScriptedProvider, ToolCall
from gateway.wording import say
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, here, killed, rig, until
from tests.stored import action_of

NOTE = say("may_be_duplicate", "en")


async def ask(chat: Rig) -> None:
    """Queue a question in the outbox."""
    await chat.says("ana", "delete INV-1")
    await chat.worker.turn()


async def status(chat: Rig) -> str:
    found = await chat.store.scan("action/")
    action = action_of(found[0][1].value)
    return action.reason or action.state


async def parts(chat: Rig) -> int:
    return (await chat.store.stats()).parts


# ── order, without repetition ──


async def test_turn_sends_text_then_media_then_prompt(tmp_path: Path) -> None:
    @tool(read_only=True)
    async def send_pdf() -> str:
        """Send a PDF."""
        emit_artifact(content=b"%PDF-1.4 x", mime_type="application/pdf", filename="INV-7.pdf")
        return "sent"

    @tool(confirm="Delete {invoice_id}?")
    async def delete_invoice(invoice_id: str) -> str:
        """Delete an invoice."""
        return "gone"

    script = ScriptedProvider(
        [ToolCall("delete_invoice", {"invoice_id": "INV-1"}), [ToolCall("send_pdf", {})], "Here it is."]
    )
    async with rig(ChannelAgent(Agent([send_pdf, delete_invoice], provider=script)), tmp_path) as chat:
        await chat.hears("ana", "delete INV-1", "and send the PDF")
        assert [part.call for _, part in chat.platform.sent] == ["show", "show", "file", "show", "edit"]
        assert chat.platform.texts()[1:3] == ["Here it is.", "INV-7.pdf"]
        assert chat.platform.sent[-2][1].buttons


async def test_new_messages_are_sent_before_edits(chat: Rig) -> None:
    says = [Reply(text="then", edits="1"), Reply(text="one"), Reply(text="now", edits="2"), Reply(text="two")]
    conversation = chat.worker.context.conversation(here("ana"))
    parts = chat.worker.context.parts.render(conversation, here("ana"), map(said, says), cause="a test", language="en")
    await chat.store.commit(Transaction(partition=chat.store.partition(conversation), parts=parts))
    await chat.worker.deliver()
    assert chat.platform.texts() == ["one", "two", "then", "now"]


def said(reply: Reply) -> OutgoingReply:
    return OutgoingReply(reply=reply)


async def test_retry_never_repeats_a_part_with_a_receipt(chat: Rig) -> None:
    await chat.notify("one", "two", "three")
    fine = asyncio.Event()
    fine.set()
    chat.platform.will = [fine, Unavailable("502")]
    await chat.worker.deliver()
    assert chat.platform.texts() == ["one"]
    await chat.advance(2)
    await chat.worker.deliver()
    assert chat.platform.texts() == ["one", "two", "three"]
    assert await parts(chat) == 0 and await chat.ready() == 0


async def test_conversations_do_not_wait_for_each_other(chat: Rig) -> None:
    await chat.notify("one", place="ana")
    await chat.notify("two", place="bob")
    hold = asyncio.Event()
    chat.platform.will = [hold]
    slow = asyncio.create_task(chat.worker.deliver())
    await chat.platform.sending.wait()
    await chat.worker.deliver()
    assert (chat.platform.texts("ana"), chat.platform.texts("bob")) == ([], ["two"])
    hold.set()
    await slow


async def test_outbox_of_three_parts_costs_one_commit_each(chat: Rig) -> None:
    await chat.notify("one", "two", "three")
    chat.wire.calls.clear()
    await chat.worker.deliver()
    assert chat.wire.calls == {"lease": 1, "commit": 3}
    assert await chat.ready() == 0


@pytest.mark.parametrize("arrives", [False, True])
async def test_receipt_without_an_answer_is_written_once(chat: Rig, arrives: bool) -> None:
    await chat.notify("one", "two")
    if arrives:
        chat.wire.lost_answers["commit"] = 1
    else:
        chat.wire.errors["commit"] = [StoreUnavailable("no answer")]
    await chat.worker.deliver()
    assert chat.platform.texts() == ["one", "two"]
    assert await parts(chat) == 0


@pytest.mark.usefixtures("nobody_waits_long")
async def test_a_receipt_the_store_did_not_take_is_remembered(chat: Rig) -> None:
    await chat.notify("one")
    chat.wire.errors["commit"] = [StoreUnavailable("no answer")] * 2
    lease = await chat.worker.lease("out")
    with pytest.raises(StoreUnavailable):
        await chat.worker.delivery.run(lease)
    await lapse(chat, lease)
    await chat.worker.deliver()
    assert chat.platform.texts() == ["one"]
    assert await parts(chat) == 0


# ── behaviour of platforms ──


async def test_an_unreachable_platform_is_tried_again_later_and_later(chat: Rig) -> None:
    await chat.notify("one")
    chat.platform.will = [Unavailable("502")] * 8
    for seconds in (0, 1, 2, 5, 15, 30, 60, 120):
        await chat.advance(max(seconds - 0.9, 0))
        assert await chat.ready() == (seconds == 0)
        await chat.advance(1)
        await chat.worker.deliver()
    await chat.advance(301)
    await chat.worker.deliver()
    assert chat.platform.texts() == ["one"]
    assert len(set(chat.platform.keys)) == 1, "every retry has the same key"


@pytest.mark.parametrize("mend", [None, MissingSetting("TEST_TOKEN", "copy it again")])
async def test_part_unsent_for_a_day_is_put_aside_and_can_be_replayed(chat: Rig, mend: MissingSetting | None) -> None:
    await chat.notify("one")
    chat.platform.will = [Unavailable("502", mend=mend)]
    await chat.worker.deliver()
    await chat.advance(86500)
    await chat.notify("two")
    await chat.worker.deliver()
    assert chat.platform.texts() == ["two"]
    (letter,) = await chat.store.dead_letters()
    assert letter.reason == "it waited for too long"
    assert await chat.store.replay(letter.dead_id)
    await chat.worker.deliver()
    assert chat.platform.texts() == ["two", "one"]


async def test_a_rate_limit_is_obeyed_and_counts_as_no_try(chat: Rig) -> None:
    await chat.notify("one")
    for _ in range(12):
        chat.platform.will = [RateLimited("429", retry_after_seconds=7)]
        await chat.worker.deliver()
        await chat.advance(6.5)
        assert await chat.ready() == 0
        await chat.advance(1)
    chat.platform.will = [Unavailable("502")]
    await chat.worker.deliver()
    await chat.advance(1.5)
    await chat.worker.deliver()
    assert chat.platform.texts() == ["one"]


@pytest.mark.parametrize("paced", [False, True], ids=["at once", "after our own pace"])
async def test_a_call_without_an_answer_is_made_once_more(tmp_path: Path, paced: bool) -> None:
    pace = Pace(account_per_second=1.0) if paced else Pace()
    async with rig(Invoices().bot(), tmp_path, pace=pace) as chat:
        if paced:
            await chat.notify("zero", place="bob")
            await chat.worker.deliver()
        await chat.notify("one", "two")
        fine = asyncio.Event()
        fine.set()
        chat.platform.will = [Ambiguous("timeout"), fine, Ambiguous("timeout")]
        for _ in range(8):
            await chat.advance(10)
            if await chat.ready():
                await chat.worker.deliver()
        assert chat.platform.texts() == [NOTE, "two"]
        assert await chat.dead() == ["it may have been sent"]
        tried = [key for key in chat.platform.keys if chat.platform.keys.count(key) == 2]
        assert len(set(tried)) == 1


async def test_a_prompt_without_an_answer_is_sent_until_it_arrives(chat: Rig) -> None:
    await ask(chat)
    chat.platform.will = [Ambiguous("timeout")] * 4
    for _ in range(5):
        await chat.worker.deliver()
        await chat.advance(16)
    assert len(chat.platform.sent) == 1
    assert await chat.store.dead_letters() == []


async def test_prompt_of_a_settled_action_is_not_sent_again(chat: Rig) -> None:
    await ask(chat)
    chat.platform.will = [Unavailable("502")]
    await chat.worker.deliver()
    await chat.says("ana", "/stop")
    await chat.advance(2)
    await chat.worker.deliver()
    assert chat.platform.texts() == ["Stopped. What was waiting for your answer will not be done."]


async def test_settled_prompt_behind_one_that_failed_is_not_sent(chat: Rig) -> None:
    await chat.notify("one")
    await ask(chat)
    chat.platform.will = [Unavailable("502")]
    await chat.worker.deliver()
    await chat.says("ana", "/stop")
    await chat.advance(2)
    await chat.worker.deliver()
    assert chat.platform.texts() == ["one", "Stopped. What was waiting for your answer will not be done."]


async def test_prompt_in_doubt_is_resent_and_shows_the_outcome(chat: Rig) -> None:
    await ask(chat)
    chat.platform.will = [Ambiguous("timeout")]
    await chat.worker.deliver()
    await chat.says("ana", "/stop")
    await chat.later(2)
    calls = [part.call for _, part in chat.platform.sent]
    assert calls == ["show", "show", "edit"]
    assert "Withdrawn. Nothing was done." in chat.platform.texts()[-1]


async def test_question_that_comes_after_its_end_is_followed_by_it(invoices: Invoices, tmp_path: Path) -> None:
    """Messages cannot be edited here. A question seen before the end is not followed by a second notice."""
    async with rig(invoices.bot(), tmp_path, edit=False) as chat:
        await ask(chat)
        chat.platform.will = [Ambiguous("timeout")]
        await chat.worker.deliver()
        await chat.says("ana", "/stop")
        await chat.later(2)
        assert chat.platform.texts()[-1].endswith("Withdrawn. Nothing was done.")
        await chat.says("ana", "delete INV-7")
        await chat.work()
        await chat.says("ana", "/stop")
        await chat.later(2)
        assert chat.platform.texts()[-1].startswith("Stopped.")


async def test_refused_token_keeps_the_outbox_and_is_logged_once(chat: Rig, caplog: pytest.LogCaptureFixture) -> None:
    def refused() -> Unavailable:
        return Unavailable("unauthorized", mend=MissingSetting("TEST_TOKEN", "copy it again"))

    def said() -> list[tuple[str, bool]]:
        ours = [record for record in caplog.records if record.name == "askfirst.delivery"]
        return [(record.levelname, "TEST_TOKEN: copy it again" in record.getMessage()) for record in ours]

    context = chat.worker.context
    await ask(chat)
    await chat.notify("hello", place="bob")
    chat.platform.will = [Unavailable("no_connection"), refused(), refused(), refused()]
    for _ in range(2):
        await chat.worker.deliver()
        await chat.worker.deliver()
        assert "test" in context.down
        await chat.advance(3)
    assert said() == [("ERROR", True)], "once, for a platform that was down before, and not for each part"
    await chat.worker.deliver()
    await chat.worker.deliver()
    assert await chat.store.dead_letters() == [] and await parts(chat) == 0
    assert (len(chat.platform.texts("ana")), chat.platform.texts("bob")) == (1, ["hello"])
    assert "test" not in context.down
    await chat.notify("later")
    chat.platform.will = [refused()]
    await chat.worker.deliver()
    assert said() == [("ERROR", True), ("WARNING", False), ("ERROR", True)], "and again when it comes again"


async def test_undeliverable_prompt_is_dead_and_its_ask_undelivered(chat: Rig) -> None:
    await ask(chat)
    await chat.notify("later")
    chat.platform.will = [Undeliverable("403 blocked")]
    await chat.worker.deliver()
    assert await status(chat) == "undelivered"
    assert await chat.dead() == ["not deliverable: 403 blocked"]
    assert chat.platform.texts() == ["later"]


async def test_prompt_not_delivered_within_ten_minutes_is_closed(chat: Rig) -> None:
    await ask(chat)
    chat.platform.will = [Unavailable("502")] * 20
    while await status(chat) == "pending":
        await chat.advance(30)
        if await chat.ready():
            await chat.worker.deliver()
    assert 590 <= chat.store.offset_seconds <= 640
    chat.platform.will = []
    await chat.later(301)
    (told,) = chat.platform.texts()
    assert told.startswith("This did not arrive in time, so nothing was done: Delete invoice")
    assert await status(chat) == "undelivered" and await chat.store.dead_letters() == []


async def test_droppable_part_is_dropped_when_rate_limited(chat: Rig) -> None:
    part = Part(call="typing", arguments={"text": ""}, droppable=True)
    await queue(chat, {"call": part.call, "arguments": {"text": ""}, "droppable": True})
    await chat.notify("one")
    chat.platform.will = [RateLimited("429", retry_after_seconds=30)]
    await chat.worker.deliver()
    assert chat.platform.texts() == ["one"]
    assert await chat.store.dead_letters() == []


async def queue(chat: Rig, part: dict[str, object], channel: str = "test") -> None:
    conversation = chat.worker.context.conversation(here("ana"))
    address = dict(address_to_json(here("ana")))  # type: ignore[arg-type]
    body = {"address": {**address, "channel": channel}, "part": part, "shows": [], "edits": None}
    sealed = chat.worker.context.keyring.stamped("part", conversation, body)  # type: ignore[arg-type]
    queued = QueuedPart(part_id=f"part {channel}", conversation=conversation, body=sealed, pool="test")
    await chat.store.commit(Transaction(partition=chat.store.partition(conversation), parts=[queued]))


async def test_channel_that_is_off_delays_no_other_part(chat: Rig) -> None:
    await queue(chat, {"call": "show", "arguments": {"text": "lost"}}, channel="gone")
    await chat.notify("one")
    await chat.worker.deliver()
    assert chat.platform.texts() == ["one"]
    assert await chat.dead() == ["its channel is off"]


async def test_sender_cancelled_while_waiting_for_pace_sends_no_part(tmp_path: Path) -> None:
    async with rig(Invoices().bot(), tmp_path, pace=Pace(account_per_second=1.0)) as chat:
        await chat.notify("zero", place="bob")
        await chat.worker.deliver()
        await chat.notify("one")
        waits = asyncio.create_task(chat.worker.deliver())
        while not (await chat.store.stats()).leased:
            await asyncio.sleep(0)
        await until(lambda: chat.wire.calls["acquire"] >= 2)
        await killed(waits)
        await chat.advance(2)
        lease = await chat.worker.lease("out")
        assert (lease.died, lease.tries) == (False, 0)


async def test_unreadable_part_delays_no_other_part(chat: Rig) -> None:
    await queue(chat, {"call": 5, "what": "is this"})
    await chat.notify("one")
    await chat.worker.deliver()
    assert chat.platform.texts() == ["one"]
    assert await chat.dead() == ["it cannot be read"]


async def test_channel_that_breaks_delays_no_later_part(chat: Rig, caplog: pytest.LogCaptureFixture) -> None:
    await chat.notify("one", "two")
    fine = asyncio.Event()
    fine.set()
    chat.platform.will = [KeyError("password=hunter2"), fine, KeyError("password=hunter2")]
    for _ in range(3):
        await chat.worker.deliver()
        await chat.advance(10)
    assert chat.platform.texts() == [NOTE, "two"]
    assert await chat.dead() == ["it may have been sent"]
    assert "hunter2" not in caplog.text and "KeyError" in caplog.text


# ── a sender dies ──


async def lapse(chat: Rig, lease: Lease) -> None:
    """Let the lease lapse, as without a renewal in time."""
    await chat.store.renew(lease, lease_seconds=0.0)


async def test_sender_frozen_before_the_send_sends_no_part(chat: Rig) -> None:
    await chat.notify("one")
    frozen = await chat.worker.lease("out", lease_seconds=0.0)
    await chat.another().deliver()
    shown = chat.platform.texts()
    await chat.worker.delivery.run(frozen)
    assert chat.platform.texts() == shown == [NOTE, "one"]


async def test_sender_that_cannot_renew_its_lease_sends_no_part(chat: Rig) -> None:
    await chat.notify("one")
    chat.wire.errors["renew"] = [StoreUnavailable("no answer")]
    with pytest.raises(StoreUnavailable):
        await chat.worker.delivery.run(await chat.worker.lease("out", lease_seconds=0.0))
    assert chat.platform.texts() == []


async def test_part_without_a_begun_resend_is_not_given_up(chat: Rig) -> None:
    await chat.notify("one")
    for _ in range(4):
        lease = await chat.worker.lease("out", lease_seconds=0.0)
        chat.wire.errors["renew"] = [StoreUnavailable("no answer")] * 2
        with pytest.raises(StoreUnavailable):
            await chat.worker.delivery.run(lease)
        await lapse(chat, lease)
    chat.wire.errors.clear()
    await chat.worker.deliver()
    assert chat.platform.texts()[-1] == "one"
    assert await chat.store.dead_letters() == []


@pytest.mark.parametrize(("deaths", "shown"), [(1, ["one", "two"]), (2, ["two"])])
async def test_part_of_a_dead_sender_is_sent_once_more(chat: Rig, deaths: int, shown: list[str]) -> None:
    await chat.notify("one", "two")
    fine, hold, dead = asyncio.Event(), asyncio.Event(), []
    fine.set()
    for number in range(deaths):
        chat.platform.will = [*[fine] * number, hold]
        lease = await chat.worker.lease("out")
        dead.append(asyncio.create_task(chat.another().delivery.run(lease)))
        await until(lambda: not chat.platform.will)
        await lapse(chat, lease)
    await chat.worker.deliver()
    assert chat.platform.texts() == [NOTE, *shown]
    hold.set()
    await asyncio.gather(*dead)


async def test_prompt_of_a_dead_sender_is_sent_again(chat: Rig) -> None:
    await ask(chat)
    for _ in range(3):
        await chat.worker.lease("out", lease_seconds=0.0)
    await chat.worker.deliver()
    assert len(chat.platform.sent) == 1


async def test_a_send_cut_off_by_the_end_of_the_process_is_in_doubt(chat: Rig) -> None:
    await chat.notify("one")
    chat.platform.will = [asyncio.Event()]
    sending = asyncio.create_task(chat.worker.deliver())
    await chat.platform.sending.wait()
    await killed(sending)
    assert sending.cancelled()
    assert (await chat.store.stats()).leased == 0
    await chat.advance(2)
    await chat.another().deliver()
    assert chat.platform.texts() == [NOTE, "one"]


async def test_a_zombie_writes_no_receipt(chat: Rig) -> None:
    await chat.notify("one")
    hold = asyncio.Event()
    chat.platform.will = [hold]
    lease = await chat.worker.lease("out")
    zombie = asyncio.create_task(chat.worker.delivery.run(lease))
    await chat.platform.sending.wait()
    await lapse(chat, lease)
    await chat.another().deliver()
    conversation = chat.worker.context.conversation(here("ana"))
    key = Key(chat.store.partition(conversation), f"receipts/{conversation}")
    before = (await chat.store.get([key]))[key].version
    hold.set()
    await zombie
    assert (await chat.store.get([key]))[key].version == before
