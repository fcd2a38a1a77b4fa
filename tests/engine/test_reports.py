"""Reports of a platform on messages come in any order, more than once, before the answer to the call or long after."""

from __future__ import annotations

import itertools
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from channels import Address, Ambiguous, DeliveryReport, Part, Reply, Unavailable, Undeliverable
from gateway.tools.pending_action import PendingAction
from gateway.wording import say
from tests.engine.bots import Invoices
from tests.engine.rig import Platform, Rig, Worker, here, rig

_numbers = itertools.count(1)
LOST = "taken by the platform, but it did not arrive: 30003"


@pytest.fixture
async def chat(tmp_path: Path, invoices: Invoices) -> AsyncIterator[Rig]:
    async with rig(invoices.bot(), tmp_path, buttons=0, edit=False, reports=True) as chat:
        yield chat


async def reported(chat: Rig, message_id: str, *statuses: str, key: str | None = None, once: bool = True) -> None:
    """Take these reports of the platform, in order."""
    for status in statuses:
        event_id = f"report {next(_numbers)}" if once else f"{message_id}/{status}"
        code = "30003" if status == "failed" else None
        report = DeliveryReport(
            event_ids=(event_id,),
            address=here("ana"),
            person=None,
            message_id=message_id,
            status=status,  # type: ignore[arg-type]
            code=code,
            key=key,
        )
        await chat.take(report)


async def asks(chat: Rig, *invoices: str) -> None:
    await chat.hears("ana", f"delete {' '.join(invoices)}")


async def states(chat: Rig) -> list[str]:
    return sorted(action.reason or action.state for action in await chat.actions())


# ── messages with a question ──


async def test_question_reported_as_failed_was_never_asked(chat: Rig, invoices: Invoices) -> None:
    await asks(chat, "INV-1", "INV-2")
    await reported(chat, "1", "sent", "failed")
    assert await states(chat) == ["undelivered", "undelivered"]
    assert await chat.dead() == [LOST]
    code = (await chat.actions())[0].code
    await chat.hears("ana", f"OK {code}")
    assert invoices.deleted == []
    assert "This has expired and nothing was done" in chat.platform.texts()[-1]
    await chat.hears("ana", "what now?")
    told = [message.content for message in invoices.model.requests[-1].messages if message.role == "event"]
    lines = [line for note in told for line in note.split("\n")]
    assert all("never shown to the person: it was NOT done" in line for line in lines) and len(lines) == 2


async def test_question_shown_twice_stays_open_until_both_failed(chat: Rig) -> None:
    await asks(chat, "INV-1")
    await chat.hears("ana", "hm")
    assert len((await chat.actions())[0].prompts) == 2
    await reported(chat, "1", "failed")
    assert await states(chat) == ["pending"]
    await reported(chat, "3", "failed")
    assert await states(chat) == ["undelivered"]


async def test_failed_report_after_the_decision_changes_no_action(chat: Rig, invoices: Invoices) -> None:
    await asks(chat, "INV-1")
    await chat.says("ana", f"OK {(await chat.actions())[0].code}")
    await reported(chat, "1", "failed")
    assert await states(chat) == ["approved"] and await chat.dead() == []


async def test_outcome_reported_as_failed_is_told_to_operators(chat: Rig) -> None:
    heard: list[PendingAction] = []
    chat.bot.on_doubt(heard.append)
    await asks(chat, "INV-1")
    await chat.says("ana", f"OK {(await chat.actions())[0].code}")
    await chat.worker.engine._actions.run(await chat.worker.lease("action"))
    await chat.turns()
    assert chat.platform.texts()[-1] == "Invoice INV-1 is deleted."
    await reported(chat, str(len(chat.platform.sent)), "sent", "failed")
    await chat.worker.context.tasks.ended()
    assert [action.state for action in heard] == ["done"]
    assert await chat.dead() == [LOST]


async def test_report_without_our_record_finds_its_question(chat: Rig) -> None:
    """The record of a sent message is kept for a day; the question may be open for longer."""
    async with rig(Invoices().bot(), chat.files, buttons=0, edit=False, reports=False) as old:
        await asks(old, "INV-1")
        await reported(old, "1", "failed")
        assert await states(old) == ["undelivered"]
        assert await old.dead() == []


class InTwo(Platform):
    """Says each paragraph of a text in a separate message."""

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        show = super().render
        return [part for text in reply.text.split("\n\n") for part in show(address, Reply(text=text))]


@pytest.mark.parametrize("lost", ["1", "2", "3"])
async def test_a_question_of_several_messages_needs_them_all(chat: Rig, lost: str) -> None:
    platform = InTwo(buttons=0, edit=False, reports=True)
    chat = replace(chat, platform=platform, worker=Worker(chat.bot, chat.wire, {"test": platform}, chat.files))
    await asks(chat, "INV-1")
    assert len(platform.sent) == 3 and await states(chat) == ["pending"]
    await reported(chat, lost, "failed")
    assert await states(chat) == ["undelivered"]


async def test_question_with_one_refused_message_was_never_asked(chat: Rig) -> None:
    platform = InTwo(buttons=0, edit=False)
    chat = replace(chat, platform=platform, worker=Worker(chat.bot, chat.wire, {"test": platform}, chat.files))
    platform.will = [Undeliverable("21617")]
    await asks(chat, "INV-1")
    assert await states(chat) == ["undelivered"]


# ── other messages ──


async def test_message_reported_as_failed_is_dead_and_can_be_replayed(
    chat: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await chat.notify("one", "two")
    await chat.worker.deliver()
    await reported(chat, "1", "failed")
    (letter,) = await chat.store.dead_letters()
    assert letter.reason == LOST
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == [f"not delivered: {LOST}"]
    assert await chat.store.replay(letter.dead_id)
    await chat.worker.deliver()
    assert chat.platform.texts() == ["one", "two", "one"]
    await reported(chat, "3", "sent", "delivered")
    assert await chat.dead() == []


async def test_report_of_an_unknown_message_changes_no_action(chat: Rig) -> None:
    await asks(chat, "INV-1")
    await reported(chat, "99", "sent", "failed", "delivered")
    assert await states(chat) == ["pending"] and await chat.dead() == []
    assert (await chat.store.stats()).waiting == 0, "reports do not pile up"


async def test_a_twin_is_one_report(chat: Rig) -> None:
    await chat.notify("one")
    await chat.worker.deliver()
    await reported(chat, "1", "failed", once=False)
    await chat.store.drop((await chat.store.dead_letters())[0].dead_id)
    await reported(chat, "1", "failed", once=False)
    await reported(chat, "1", "failed")  # and under another id, as when a platform makes one up
    assert await chat.dead() == []


@pytest.mark.parametrize(
    ("statuses", "arrived"),
    [
        (["sent", "delivered", "failed"], True),
        (["delivered", "failed", "sent"], True),
        (["read", "delivered", "failed"], True),
        (["read", "sent"], True),
        (["failed", "sent"], False),
        (["failed", "delivered"], False),
        (["sent", "failed", "read"], False),
    ],
)
@pytest.mark.parametrize("early", [False, True], ids=["after the receipt", "before it"])
async def test_reports_of_a_question_in_any_order_have_one_result(
    chat: Rig, statuses: list[str], arrived: bool, early: bool
) -> None:
    """An arrival is final; so is a failure reported first: the question is ended and told to the model."""
    if early:
        # Of the reports before the platform's answer, the last counts: none has had an effect yet.
        arrived = arrived or statuses[-1] in ("delivered", "read")
        await reported(chat, "1", *statuses)
    await chat.hears("ana", "delete INV-1")
    if not early:
        await reported(chat, "1", *statuses)
    assert await states(chat) == (["pending"] if arrived else ["undelivered"])
    assert await chat.dead() == ([] if arrived else [LOST])


# ── before the platform has answered our call ──


async def test_call_in_doubt_is_not_repeated_once_reported(chat: Rig) -> None:
    await chat.notify("one")
    chat.platform.will = [Ambiguous("timeout")]
    await chat.worker.deliver()
    (key,) = chat.platform.keys
    await reported(chat, "elsewhere 7", "sent", key=key)
    await chat.advance(11)
    await chat.worker.deliver()
    assert chat.platform.keys == [key] and await chat.dead() == []
    assert (await chat.store.stats()).parts == 0
    await reported(chat, "elsewhere 7", "failed", key=key)
    assert await chat.dead() == [LOST]


async def test_question_in_doubt_counts_as_shown_once_reported(chat: Rig, invoices: Invoices) -> None:
    await chat.says("ana", "delete INV-1")
    await chat.worker.turn()
    chat.platform.will = [Ambiguous("timeout")]
    await chat.worker.deliver()
    await reported(chat, "elsewhere 7", "delivered", key=chat.platform.keys[0])
    await chat.advance(11)
    await chat.worker.deliver()
    (action,) = await chat.actions()
    assert chat.platform.sent == [] and action.shown_at is not None
    assert action.prompts == ("elsewhere 7",)


async def test_message_unreported_for_ten_seconds_is_sent_once_more(chat: Rig) -> None:
    await chat.notify("one")
    chat.platform.will = [Ambiguous("timeout")]
    await chat.worker.deliver()
    await chat.advance(9)
    assert await chat.ready() == 0
    await chat.advance(2)
    await chat.worker.deliver()
    assert chat.platform.texts() == [say("may_be_duplicate", "en"), "one"] and len(chat.platform.keys) == 3


async def test_reported_part_of_a_dead_sender_is_not_sent_again(chat: Rig) -> None:
    await chat.notify("one", "two")
    lease = await chat.worker.lease("out", lease_seconds=0.0)
    key = lease.parts[0].part_id
    await reported(chat, "elsewhere 7", "sent", key=key)  # it was sent, and then its process died
    await chat.another().deliver()
    assert chat.platform.texts() == ["two"]


async def test_a_replayed_message_is_another_one(chat: Rig) -> None:
    """An old report of the first sending does not count for the second."""
    await chat.notify("one")
    chat.platform.will = [Ambiguous("timeout")]
    await chat.worker.deliver()
    key = chat.platform.keys[0]
    await reported(chat, "first", "sent", "failed", key=key)
    await chat.advance(11)
    await chat.worker.deliver()
    (letter,) = await chat.store.dead_letters()
    assert await chat.store.replay(letter.dead_id)
    chat.platform.will = [Unavailable("503")]
    await chat.worker.deliver()
    await chat.advance(11)
    await chat.worker.deliver()
    assert chat.platform.texts() == ["one"]


REPORTS = st.lists(
    st.tuples(st.sampled_from(["sent", "delivered", "read", "failed"]), st.booleans()), min_size=1, max_size=6
)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(story=REPORTS)
async def test_reports_in_any_order_neither_lose_nor_repeat(tmp_path: Path, story: list[tuple[str, bool]]) -> None:
    async with rig(Invoices().bot(), tmp_path, buttons=0, edit=False, reports=True) as chat:
        early: list[str] = [status for status, before in story if before]
        late: list[str] = [status for status, before in story if not before]
        await reported(chat, "1", *early)
        await chat.notify("one")
        await chat.worker.deliver()
        await reported(chat, "1", *late)
        heard, lost = early, bool(early) and max(map(RANK.__getitem__, early)) == RANK["failed"]
        for status in late:
            lost = lost or (status == "failed" and not {"delivered", "read"} & set(heard))
            heard = [*heard, status]
        assert await chat.dead() == ([LOST] if lost else [])
        stats: Any = await chat.store.stats()
        assert (stats.parts, stats.waiting, stats.pointed) == (0, 0, 0)


RANK = {"sent": 0, "failed": 1, "delivered": 2, "read": 3}
