"""Every way to answer a prompt on Telegram, and the settled prompt."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from gateway.pending.audit import people_by_pseudonym
from tests.e2e.house import House, delete
from tests.fakes.telegram import Message, Press

DONE = "Invoice INV-42 is deleted."


def code_of(prompt: Message, yes: str = "OK") -> str:
    found = re.search(rf"\b{yes} ([0-9A-Z]{{4}})\b", prompt.text)
    assert found is not None, prompt.text
    return found[1]


async def test_the_prompt_shows_the_effect_and_how_to_answer(house: House) -> None:
    prompt = await house.prompt()
    code = code_of(prompt)
    assert prompt.text == (
        f"Delete invoice “INV-42” for good?\n\nYou have 15 minutes to answer.\n\nIn words: OK {code} or NO {code}."
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
        r"Delete invoice “INV-42” for good\n\n✅ Confirmed by Ana, done \d\d?:\d\d UTC\.", prompt.text
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
    await house.until(lambda: not prompt.buttons)
    assert prompt.text == "Delete invoice “INV-42” for good\n\nExpired. Nothing was done."
    assert house.messages()[-1].buttons == ["Ask again"]
    assert house.texts()[-1].startswith("This has expired and nothing was done.")
    late = await house.presses(prompt)
    assert late.text.startswith("This has expired") and late.alert
    await house.says("yes")
    await house.until(lambda: len(house.texts()) == 3)
    assert house.texts()[-1].startswith("This has expired")
    assert house.shop.deleted == []


@pytest.mark.ledger("PEND-19")
async def test_bare_yes_while_a_message_is_in_flight_is_asked_again(house: House) -> None:
    """The message is on the person's screen, but without a receipt here: a yes may answer it."""
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


async def test_slow_action_is_shown_as_running_and_ends_once(house: House) -> None:
    house.shop.hold = asyncio.Event()
    prompt = await house.prompt()
    before = len(house.messages())
    await house.presses(prompt)
    async with asyncio.timeout(30):
        await house.until(lambda: not prompt.buttons)
    assert prompt.text == "Delete invoice “INV-42” for good\n\n⏳ Confirmed by Ana. Working on it…"
    assert (house.shop.deleted, len(house.messages())) == ([], before)
    house.shop.hold.set()
    await house.until(lambda: "✅ Confirmed by Ana, done" in prompt.text)
    await house.idle()
    assert house.texts()[before:] == [DONE]
    assert prompt.edits == 2


@pytest.mark.parametrize(
    ("language", "yes", "buttons", "settled"),
    [
        ("es", "sí", ["Confirmar", "Cancelar", "Cambiar"], "Confirmado por Ana, hecho a las"),
        ("pt-BR", "sim", ["Confirmar", "Cancelar", "Alterar"], "Confirmado por Ana, feito às"),
    ],
)
async def test_prompt_is_in_persons_language(
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


# ── a press that Telegram gives without its chat ──


@pytest.mark.parametrize("more", [{}, {"inline_message_id": "BAAAA"}], ids=["nothing", "inline message"])
async def test_a_press_without_a_chat_decides_no_action(house: House, more: dict[str, Any]) -> None:
    """The token and the person are right. The spinner on the button ends."""
    prompt = await house.prompt()
    press = house.telegram._presses["stray"] = Press("stray")
    query = {"id": "stray", "from": house.ana.to_json(), "chat_instance": "1", "data": prompt.once_shown["Confirm"]}
    await house.telegram.deliver("callback_query", house.ana, query | more)
    await house.until(lambda: press.answered)
    assert (press.text, press.alert) == ("This button belongs to another chat.", True)
    await house.idle()
    assert (house.shop.deleted, prompt.buttons, house.texts()) == ([], ["Confirm", "Cancel", "Change"], [prompt.text])
    await house.presses(prompt)
    await house.until(lambda: not prompt.buttons)
    assert house.shop.deleted == ["INV-42"]


# ── groups ──


async def test_only_the_requester_may_press(house: House) -> None:
    team, bob = house.telegram.group("Team"), house.telegram.person("Bob")
    prompt = await house.prompt(to=team, by=house.ana)
    assert "Only Ana can answer." in prompt.text
    press = await house.presses(prompt, by=bob)
    assert (press.text, press.alert) == ("This is not yours to answer.", True)
    press = await house.presses(prompt, "Cancel", by=bob)
    assert (press.text, press.alert) == ("This is not yours to answer.", True)
    assert (house.shop.deleted, prompt.buttons) == ([], ["Confirm", "Cancel", "Change"])
    await house.presses(prompt)
    await house.until(lambda: not prompt.buttons)
    assert house.shop.deleted == ["INV-42"]
    late = await house.presses(prompt, by=bob)
    assert (late.text, late.alert) == ("This is not yours to answer.", True)
    people = await people_by_pseudonym(house.gateway.store)
    refused = [people[line["person"]] for line in await house.log("audit") if line["what"] == "not_allowed"]
    assert refused == [f"telegram:{house.telegram.bot.id}:{bob.id}"] * 3


async def test_a_refusal_is_in_the_language_of_the_presser(house: House) -> None:
    team, eva = house.telegram.group("Team"), house.telegram.person("Eva", language="es")
    prompt = await house.prompt(to=team, by=house.ana)
    press = await house.presses(prompt, by=eva)
    assert press.text == "No te toca a ti responder a esto."


async def test_a_bare_yes_decides_no_action_and_starts_no_turn(house: House) -> None:
    team, bob = house.telegram.group("Team"), house.telegram.person("Bob")
    await house.prompt(to=team, by=house.ana)
    for person in (house.ana, bob):
        for word in ("yes", "no"):
            await house.says(word, to=team, by=person)
    await house.idle()
    assert (house.shop.deleted, len(house.model.requests)) == ([], 1)
    await house.until(lambda: len([text for text in house.texts(team) if "Reply OK" in text]) == 2)
    *older, newest = house.texts(team)
    assert newest.startswith("To be safe I need the code ")
    assert len(older) == 2, "their buttons and hints are gone"


async def test_reply_counts_only_from_the_requester(house: House) -> None:
    team, bob = house.telegram.group("Team"), house.telegram.person("Bob")
    prompt = await house.prompt(to=team, by=house.ana)
    await house.says("yes", to=team, by=bob, reply_to=prompt)
    await house.idle()
    assert house.shop.deleted == []
    await house.says("yes", to=team, by=house.ana, reply_to=prompt)
    await house.until(lambda: not prompt.buttons)
    assert house.shop.deleted == ["INV-42"]


async def test_the_model_gets_the_name_of_each_speaker(house: House) -> None:
    team, bob = house.telegram.group("Team"), house.telegram.person("Bob")
    await house.asks("I like tea", "Good.", to=team, by=house.ana)
    await house.asks("I like coffee", "Good, too.", to=team, by=bob)
    said = [str(m) for m in house.model.requests[-1]["messages"] if m["role"] == "user"]
    assert re.search(r"\bAna\b", said[0]) and "tea" in said[0]
    assert re.search(r"\bBob\b", said[1]) and "coffee" in said[1]
