"""Every way to answer a prompt on Telegram, and what becomes of the prompt."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.e2e.house import House, delete, open_house
from tests.fakes.openai import Call, Say
from tests.fakes.telegram import Message

DONE = "Invoice INV-42 is deleted."


def code_of(prompt: Message, yes: str = "OK") -> str:
    found = re.search(rf"\b{yes} ([0-9A-Z]{{4}})\b", prompt.text)
    assert found is not None, prompt.text
    return found[1]


async def test_the_prompt_says_what_would_happen_and_how_to_answer(house: House) -> None:
    prompt = await house.prompt()
    code = code_of(prompt)
    assert prompt.text == (
        f"Delete invoice “INV-42” for good?\n\nOr reply OK {code} or NO {code}.\n\nYou have 15 minutes to answer."
    )
    assert [[button["text"] for button in row] for row in prompt.keyboard] == [["Confirm", "Cancel"], ["Change"]]
    bold = [prompt.text[e["offset"] : e["offset"] + e["length"]] for e in prompt.entities if e["type"] == "bold"]
    assert bold == ["Delete invoice “INV-42” for good?", f"OK {code}", f"NO {code}"]
    assert house.shop.deleted == []


@pytest.mark.ledger("PEND-65", "PEND-66")
async def test_press_on_confirm_runs_the_action(house: House) -> None:
    prompt = await house.prompt()
    press = await house.presses(prompt)
    assert (press.text, press.alert) == ("Confirmed.", False)
    await house.until(lambda: DONE in house.texts())
    await house.until(lambda: not prompt.buttons)
    assert re.fullmatch(
        r"Delete invoice “INV-42” for good\n\n✅ Confirmed by Ana, done \d\d:\d\d UTC\.", prompt.text
    ), prompt.text
    assert house.shop.deleted == ["INV-42"]


@pytest.mark.parametrize("yes", ["yes", "Yes!", "yes, delete it", "**yes**"])
async def test_yes_right_after_the_prompt_runs_the_action(house: House, yes: str) -> None:
    prompt = await house.prompt()
    await house.says(yes)
    await house.until(lambda: DONE in house.texts())
    await house.until(lambda: not prompt.buttons)
    assert house.shop.deleted == ["INV-42"]
    assert len(house.model.requests) == 1


async def test_code_confirms_exactly_its_action(house: House) -> None:
    first, _second = await house.prompt("INV-42"), await house.prompt("INV-7")
    await house.says(f"ok {code_of(first).lower()}")
    await house.until(lambda: DONE in house.texts())
    assert house.shop.deleted == ["INV-42"]


async def test_yes_in_reply_to_a_prompt_confirms_that_one(house: House) -> None:
    first, _second = await house.prompt("INV-42"), await house.prompt("INV-7")
    await house.says("yes", reply_to=first)
    await house.until(lambda: DONE in house.texts())
    assert house.shop.deleted == ["INV-42"]


@pytest.mark.parametrize("how", ["button", "no", "code", "reply"])
async def test_cancelled_action_does_not_run(house: House, how: str) -> None:
    prompt = await house.prompt()
    match how:
        case "button":
            press = await house.presses(prompt, "Cancel")
            assert (press.text, press.alert) == ("Not done.", False)
        case "no":
            await house.says("no")
        case "code":
            await house.says(f"NO {code_of(prompt)}")
        case "reply":
            await house.says("no", reply_to=prompt)
    await house.until(lambda: "Not done: Delete invoice “INV-42” for good" in house.texts())
    await house.until(lambda: not prompt.buttons)
    assert prompt.text == "Delete invoice “INV-42” for good\n\n🚫 Not done, said Ana."
    late = await house.presses(prompt)
    assert (late.text, late.alert) == ("This is already cancelled.", True)
    assert house.shop.deleted == []


@pytest.mark.ledger("PEND-43")
async def test_expired_action_offers_to_ask_again(house: House) -> None:
    prompt = await house.prompt()
    await house.later(15 * 60 + 1)
    await house.until(lambda: prompt.buttons == ["Ask again"])
    assert prompt.text == "Delete invoice “INV-42” for good\n\nExpired. Nothing was done."
    assert house.texts()[-1].startswith("This has expired and nothing was done.")
    late = await house.presses(prompt)
    assert late.text.startswith("This has expired") and late.alert
    await house.says("yes")
    await house.until(lambda: len(house.texts()) == 3)
    assert house.texts()[-1].startswith("This has expired")
    assert house.shop.deleted == []


async def test_press_after_expiry_but_before_the_timer_is_refused(house: House) -> None:
    prompt = await house.prompt()
    house.gateway.store.offset_seconds += 15 * 60 + 1
    press = await house.presses(prompt)
    assert press.text.startswith("This has expired")
    assert house.shop.deleted == []


async def test_a_yes_after_a_minute_is_asked_for_the_code(house: House) -> None:
    prompt = await house.prompt()
    await house.later(61)
    await house.says("yes")
    again = await house.next(house.ana, 1)
    assert again.text.startswith(f"That is not clear enough here. Please answer with the code {code_of(prompt)}.")
    assert again.buttons == ["Confirm", "Cancel", "Change"]
    await house.presses(again)
    await house.until(lambda: DONE in house.texts())
    await house.until(lambda: not prompt.buttons and not again.buttons)
    assert house.shop.deleted == ["INV-42"]


@pytest.mark.ledger("PEND-19")
async def test_bare_yes_while_a_message_is_in_flight_is_asked_again(house: House) -> None:
    """It is on the person's screen, and its receipt is not here: a yes may be meant for it."""
    await house.prompt()
    hold = house.telegram.hold("sendMessage")
    await house.gateway.bot.notify(f"telegram:{house.telegram.bot.id}:{house.ana.id}", "Shall I send the report?")
    await hold.reached()
    await house.says("yes")
    hold.release()
    again = await house.until(lambda: next((m for m in house.messages()[1:] if m.buttons), None))
    assert code_of(again)
    await house.idle()
    assert house.shop.deleted == []


async def test_bare_yes_after_a_message_in_doubt_is_asked_again(house: House) -> None:
    await house.prompt()
    house.telegram.fail_next("sendMessage", cut=True, taken=True, times=3)
    await house.gateway.bot.notify(f"telegram:{house.telegram.bot.id}:{house.ana.id}", "Shall I send the report?")
    await house.until(lambda: len(house.messages()) == 2)
    while not await house.gateway.store.dead_letters():
        await house.later(5)
        await asyncio.sleep(0.05)
    await house.says("yes")
    again = await house.until(lambda: next((m for m in house.messages()[1:] if m.buttons), None))
    assert code_of(again)
    await house.idle()
    assert house.shop.deleted == []


async def test_many_presses_run_the_action_once(house: House) -> None:
    prompt = await house.prompt()
    presses = await asyncio.gather(*(house.telegram.press(prompt, "Confirm", house.ana) for _ in range(8)))
    await house.until(lambda: all(press.answered for press in presses))
    texts = sorted(press.text for press in presses)
    assert texts.count("Confirmed.") == 1
    assert set(texts) <= {"Confirmed.", "This is already confirmed and running.", "This is already done."}
    await house.until(lambda: DONE in house.texts())
    await house.idle()
    again = await house.presses(prompt)
    assert (again.text, again.alert) == ("This is already done.", True)
    assert (house.shop.deleted, house.texts().count(DONE)) == (["INV-42"], 1)


async def test_a_press_is_answered_while_the_effect_takes_its_time(house: House) -> None:
    house.shop.hold = asyncio.Event()
    prompt = await house.prompt()
    press = await house.presses(prompt)
    await house.shop.reached.wait()
    assert (press.text, house.shop.deleted) == ("Confirmed.", [])
    second = await house.presses(prompt, "Cancel")
    assert (second.text, second.alert) == ("This is already confirmed and running.", True)
    house.shop.hold.set()
    await house.until(lambda: DONE in house.texts())


async def test_a_press_is_answered_while_a_turn_runs(house: House) -> None:
    hold = asyncio.Event()
    prompt = await house.prompt()
    house.model.script([Say("Here they are.", hold=hold)])
    await house.says("list invoices")
    await house.model.wait_for(2)
    await house.presses(prompt)
    await house.until(lambda: DONE in house.texts())
    hold.set()
    await house.until(lambda: "Here they are." in house.texts())


async def test_button_of_another_chat_is_refused(house: House) -> None:
    prompt = await house.prompt()
    team = house.telegram.group("Team")
    elsewhere = Message(team, prompt.message_id, house.telegram.bot, once_shown=prompt.once_shown)
    press = await house.presses(elsewhere)
    assert (press.text, press.alert) == ("This button belongs to another chat.", True)
    assert house.shop.deleted == []


async def test_guessed_button_is_refused(house: House) -> None:
    prompt = await house.prompt()
    guessed = Message(prompt.chat, prompt.message_id, house.telegram.bot, once_shown={"Confirm": "00" + "A" * 22})
    press = await house.presses(guessed)
    assert press.text.startswith("I no longer know this button.")
    assert house.shop.deleted == []


async def test_several_are_asked_in_one_prompt_each_with_its_buttons(house: House) -> None:
    both = Say(calls=[Call("delete_invoice", {"invoice_id": name}) for name in ("INV-42", "INV-7")])
    prompt = await house.asks("delete both", both)
    await house.idle()
    assert [len(row) for row in prompt.keyboard] == [2, 2, 2]  # the last row is for all
    await house.says("yes")
    which = await house.next(house.ana, 1)
    assert which.text.startswith("Several things are waiting for your answer.")
    assert house.shop.deleted == []
    await house.presses(prompt, prompt.buttons[0])
    await house.until(lambda: DONE in house.texts())
    assert house.shop.deleted == ["INV-42"]


async def test_slow_action_is_shown_as_running_and_ends_once(house: House) -> None:
    house.shop.hold = asyncio.Event()
    prompt = await house.prompt()
    before = len(house.messages())
    await house.presses(prompt)
    async with asyncio.timeout(1):
        await house.until(lambda: not prompt.buttons)
    assert prompt.text == "Delete invoice “INV-42” for good\n\n⏳ Confirmed by Ana. Working on it…"
    assert (house.shop.deleted, len(house.messages())) == ([], before)
    house.shop.hold.set()
    await house.until(lambda: "✅ Confirmed by Ana, done" in prompt.text)
    await house.idle()
    assert house.texts()[before:] == [DONE]
    assert prompt.edits == 2


async def test_what_fails_is_told_without_its_words(house: House) -> None:
    house.shop.error = RuntimeError("password=hunter2")
    prompt = await house.prompt()
    await house.presses(prompt)
    await house.until(lambda: not prompt.buttons)
    assert re.search(r"❌ Confirmed by Ana, failed \d\d:\d\d UTC\.$", prompt.text)
    assert house.texts()[-1].startswith("This was confirmed, but it failed.")
    assert not any("hunter2" in text for text in house.texts())


async def test_the_model_learns_what_became_of_it(house: House) -> None:
    prompt = await house.prompt()
    await house.presses(prompt)
    await house.until(lambda: DONE in house.texts())
    await house.asks("and now?", "All good.")
    told = [m["content"] for m in house.model.requests[-1]["messages"]]
    assert any("confirmed by the person and done" in str(content) for content in told), told


async def test_model_asking_twice_for_the_same_has_one_open_action(house: House) -> None:
    first, second = await house.prompt(), await house.prompt()
    assert code_of(first) == code_of(second)
    await house.presses(first)
    await house.until(lambda: not first.buttons and not second.buttons)
    assert house.shop.deleted == ["INV-42"]


async def test_a_no_that_goes_on_is_for_the_model(house: House) -> None:
    prompt = await house.prompt()
    await house.asks("no, INV-7 instead", *delete("INV-7"))
    await house.idle()
    assert house.shop.deleted == []
    assert prompt.buttons == [] and "Changed meanwhile" in prompt.text


@pytest.mark.parametrize(
    ("language", "yes", "buttons", "settled"),
    [
        ("es", "sí", ["Confirmar", "Cancelar", "Cambiar"], "Confirmado por Ana, hecho a las"),
        ("pt-BR", "sim", ["Confirmar", "Cancelar", "Alterar"], "Confirmado por Ana, feito às"),
    ],
)
async def test_prompt_is_in_the_language_of_the_person(
    house: House, language: str, yes: str, buttons: list[str], settled: str
) -> None:
    house.ana = house.telegram.person("Ana", language=language)
    prompt = await house.asks("borra INV-42", *delete("INV-42"))
    await house.idle()
    assert prompt.buttons == buttons
    await house.says(yes)
    await house.until(lambda: not prompt.buttons)
    assert settled in prompt.text
    assert house.shop.deleted == ["INV-42"]


@pytest.mark.ledger("MISC-17")
async def test_unrelated_words_withdraw_the_ask_with_drop(tmp_path: Path) -> None:
    async with open_house(tmp_path, options={"on_unrelated": "drop"}) as house:
        prompt = await house.prompt()
        house.model.script(["Sunny."])
        await house.says("how is the weather?")
        await house.until(lambda: not prompt.buttons)
        assert prompt.text.endswith("Withdrawn. Nothing was done.")
        assert any(text.startswith("You went on to something else") for text in house.texts())
