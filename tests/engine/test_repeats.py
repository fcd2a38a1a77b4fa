"""Two machines answering each other: the same text with the same answer gets one note, and then no answer."""

from __future__ import annotations

from pathlib import Path

from gateway import Agent, ChannelAgent
from gateway.stored import keys
from gateway.testing import ScriptedProvider
from gateway.wording import say
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, code_of, rig

AWAY = "I am out of office."
NOTE = say("repeated", "en")


async def answers(chat: Rig, *texts: str, place: str = "ana", person: str = "ana") -> list[str]:
    """Return the texts shown by the platform after these messages."""
    for text in texts:
        await chat.says(person, text, place=place)
        await chat.work()
        await chat.advance(1)
    return chat.platform.texts(place)


async def test_repeated_text_gets_one_note_and_then_no_answer(chat: Rig, invoices: Invoices) -> None:
    shown = await answers(chat, *[AWAY] * 9)
    assert shown == [f"You said: {AWAY}"] * 5 + [NOTE]
    assert len(invoices.model.requests) == 5 and await chat.ready() == 0
    assert (await answers(chat, "hello"))[6:] == ["You said: hello"]
    assert (await answers(chat, *[AWAY] * 6))[7:] == [f"You said: {AWAY}"] * 5 + [NOTE]
    await chat.advance(3600)
    assert len(await answers(chat, AWAY)) == 13, "it is not answered an hour later either"


async def test_slow_repeats_are_answered(chat: Rig) -> None:
    for _ in range(12):
        await answers(chat, AWAY)
        await chat.advance(151)
    assert chat.platform.texts() == [f"You said: {AWAY}"] * 12


async def test_another_text_between_begins_the_count_anew(chat: Rig) -> None:
    shown = await answers(chat, *[AWAY] * 4, "hello", *[AWAY] * 4)
    assert NOTE not in shown and len(shown) == 9


async def test_different_answers_to_the_same_text_are_all_given(tmp_path: Path) -> None:
    script = ScriptedProvider([f"Question {number}" for number in range(12)])
    async with rig(ChannelAgent(Agent([], provider=script)), tmp_path) as chat:
        assert await answers(chat, *["next"] * 12) == [f"Question {number}" for number in range(12)]


async def test_each_person_of_a_group_is_counted_alone(chat: Rig) -> None:
    for number in range(8):
        await answers(chat, AWAY, place="#1", person=("ana", "ben")[number % 2])
    assert NOTE not in chat.platform.texts("#1")


async def test_questions_and_their_answers_are_not_counted(chat: Rig, invoices: Invoices) -> None:
    for _ in range(8):
        await answers(chat, "delete 1", "no")
    assert NOTE not in chat.platform.texts() and invoices.deleted == []
    for _ in range(8):
        await answers(chat, "/pending")
    assert NOTE not in chat.platform.texts()


async def test_word_that_is_no_longer_answered_still_decides(chat: Rig, invoices: Invoices) -> None:
    for word in ("yes", "no"):
        assert (await answers(chat, *[word] * 6))[-1] == NOTE
        await answers(chat, "delete 1", word)
        assert invoices.deleted == ["1"], word
        await chat.advance(700)


async def test_codes_and_presses_between_are_not_counted(chat: Rig, invoices: Invoices) -> None:
    for number in range(7):
        await answers(chat, f"delete {number}")
        await answers(chat, f"NO {code_of(chat.platform.texts()[-1])}" if number % 2 else "no")
    assert NOTE not in chat.platform.texts() and invoices.deleted == []


async def test_calls_of_own_code_are_always_answered(invoices: Invoices) -> None:
    async with invoices.bot() as bot:
        for _ in range(8):
            assert (await bot.ask_channel("job", "daily report")).content == "You said: daily report"


async def test_the_record_of_a_group_goes_with_its_person(chat: Rig) -> None:
    await answers(chat, *[AWAY] * 5, place="#1")
    assert chat.platform.texts("#1")[-1] == NOTE
    assert len(await chat.store.scan(keys.REPEATED)) == 1
    await chat.worker.engine.runtime.conversations.forget("test:bot:ana")
    assert await chat.store.scan(keys.REPEATED) == []
