"""Notes: outcomes and edits that nobody has to answer. They hold up nobody, and push no words out of the window."""

from __future__ import annotations

import itertools

import pytest

from channels import Address, Person, Reaction
from gateway.memory import HISTORY
from gateway.store.types import FOLDED_AFTER_SECONDS
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, here

ANA = Person(channel="test", account="bot", user_id="ana", name="Ana")
_numbers = itertools.count(1)


async def settled(chat: Rig, place: str, invoice: str = "INV-1") -> None:
    """Somebody asks, confirms, and goes away."""
    await chat.handles("ana", f"delete {invoice}", place=place)
    action = next(each for each in await open_in(chat, place))
    await chat.handles("ana", f"OK {action}", place=place)


async def open_in(chat: Rig, place: str) -> list[str]:
    found = await chat.worker.context.actions(chat.worker.context.conversation(here(place)))
    return [action.code for action in found.by_id.values() if action.open]


async def edits(chat: Rig, number: int, text: str, place: str = "ana") -> None:
    await chat.edits("ana", f"m{number}", text, place=place)


def notes(invoices: Invoices) -> list[str]:
    """What the model was told last beside what people said."""
    return [message.content for message in invoices.model.requests[-1].messages if message.role == "event"]


async def fold(chat: Rig) -> None:
    await chat.advance(FOLDED_AFTER_SECONDS + 1)
    await chat.work()


async def test_outcomes_without_a_later_message_are_folded_and_told(chat: Rig, invoices: Invoices) -> None:
    for number in range(3):
        await settled(chat, f"#thread {number}", f"INV-{number}")
    assert invoices.deleted == ["INV-0", "INV-1", "INV-2"]
    assert (await chat.store.stats()).waiting == 0
    asked, sent = len(invoices.model.requests), len(chat.platform.sent)
    await fold(chat)
    assert (len(invoices.model.requests), len(chat.platform.sent)) == (asked, sent), "a fold says nothing"
    assert (await chat.store.stats()).parked == 0
    await chat.handles("ana", "what now?", place="#thread 1")
    (told,) = notes(invoices)
    assert "INV-1" in told and "confirmed by the person and done" in told


async def test_folded_note_is_told_once(chat: Rig, invoices: Invoices) -> None:
    await settled(chat, "ana")
    await fold(chat)
    for number in range(3):
        await chat.handles("ana", f"and {number}?")
    assert len(notes(invoices)) == 1


async def test_notes_are_folded_onto_those_before(chat: Rig, invoices: Invoices) -> None:
    for number in range(3):
        await edits(chat, number, f"text {number}")
        await fold(chat)
    await edits(chat, 3, "text 3")
    await chat.handles("ana", "what now?")
    (told,) = notes(invoices)
    assert [line.rpartition(": ")[2] for line in told.split("\n")] == ["text 0", "text 1", "text 2", "text 3"]


@pytest.mark.parametrize("folded", [True, False])
async def test_new_command_forgets_the_notes(chat: Rig, invoices: Invoices, folded: bool) -> None:
    await settled(chat, "ana")
    if folded:
        await fold(chat)
    await chat.handles("ana", "/new", "hello")
    assert notes(invoices) == []


async def test_no_number_of_edits_pushes_words_out_of_the_window(chat: Rig, invoices: Invoices) -> None:
    await chat.handles("ana", "my name is Zora")
    for number in range(HISTORY // 2 - 1):
        await chat.handles("ana", f"word {number}")
    for number in range(60):
        await edits(chat, number, f"text {number}")
        if number % 10 == 9:
            await fold(chat)
    await chat.handles("ana", "who am I?")
    said = [message.content for message in invoices.model.requests[-1].messages if message.role == "user"]
    assert said[0] == "my name is Zora"
    (told,) = notes(invoices)
    assert told.split("\n")[-1].endswith("text 59")
    assert len(told.split("\n")) <= 20


async def test_a_step_of_a_live_location_is_no_event(chat: Rig) -> None:
    for number in range(50):
        await edits(chat, number % 2, "")
    assert chat.wire.calls["accept"] == 0


async def test_reaction_is_not_stored(chat: Rig) -> None:
    address = Address(channel="test", account="bot", place="ana")
    await chat.take(Reaction(event_ids=("r",), address=address, person=ANA, message_id="1", emoji="+1"))
    assert chat.wire.calls["accept"] == 0


async def test_an_edit_to_what_it_said_before_is_no_news(chat: Rig, invoices: Invoices) -> None:
    await chat.handles("ana", 'the "first"\nof them')
    await edits(chat, 1, 'the "first"\nof them')
    await chat.handles("ana", "and?")
    assert notes(invoices) == []


async def test_of_edits_of_one_message_only_the_last_waits(chat: Rig, invoices: Invoices) -> None:
    for number in range(20):
        await edits(chat, 1, f"text {number}")
    await chat.handles("ana", "and?")
    assert notes(invoices) == ["The person edited an earlier message: text 19"]


async def test_a_turn_that_runs_meanwhile_ends_all_the_same(chat: Rig, invoices: Invoices) -> None:
    """It was handed the edit before this one, and takes that out."""
    await edits(chat, 1, "first")
    await chat.says("ana", "and?")
    lease = await chat.worker.lease("turn")
    await edits(chat, 1, "second")
    await chat.worker.turn_of(lease)
    await chat.handles("ana", "and now?")
    assert [note.rpartition(": ")[2] for note in notes(invoices)] == ["first", "second"]


async def test_a_long_note_is_cut(chat: Rig, invoices: Invoices) -> None:
    await edits(chat, 1, "x" * 50_000)
    await chat.handles("ana", "and?")
    (told,) = notes(invoices)
    assert len(told) == 1_001 and told.endswith("…")


async def test_a_fold_needs_no_channel(chat: Rig) -> None:
    await settled(chat, "ana")
    chat.worker.context.channels = {}
    await fold(chat)
    assert (await chat.store.stats()).parked == 0
    assert [action.state for action in await chat.actions()] == ["done"]


async def test_folded_notes_end_with_the_transcript(chat: Rig, invoices: Invoices) -> None:
    await edits(chat, 1, "a secret")
    await fold(chat)
    assert await chat.store.scan("notes/")
    await chat.advance(chat.worker.context.retention.transcript_seconds + 1)
    assert not await chat.store.scan("notes/")
