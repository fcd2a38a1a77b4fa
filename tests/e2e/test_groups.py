"""Groups: one conversation, many speakers, and only who asked decides."""

from __future__ import annotations

import asyncio
import re

from gateway.pending.audit import people_by_pseudonym
from tests.e2e.house import House
from tests.e2e.test_confirming import code_of
from tests.fakes.openai import Say


async def test_only_who_asked_may_press(house: House) -> None:
    team, bob = house.telegram.group("Team"), house.telegram.person("Bob")
    prompt = await house.prompt(to=team, by=house.ana)
    assert "Only the person who asked can answer." in prompt.text
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


async def test_a_refusal_is_in_the_language_of_who_pressed(house: House) -> None:
    team, eva = house.telegram.group("Team"), house.telegram.person("Eva", language="es")
    prompt = await house.prompt(to=team, by=house.ana)
    press = await house.presses(prompt, by=eva)
    assert press.text == "No te toca a ti responder a esto."


async def test_a_bare_yes_decides_nothing_and_starts_no_turn(house: House) -> None:
    team, bob = house.telegram.group("Team"), house.telegram.person("Bob")
    await house.prompt(to=team, by=house.ana)
    for person in (house.ana, bob):
        for word in ("yes", "no"):
            await house.says(word, to=team, by=person)
    await house.idle()
    assert (house.shop.deleted, len(house.model.requests)) == ([], 1)
    asked, *answers = house.texts(team)
    assert [text.partition("\n")[0][:31] for text in answers] == ["That is not clear enough here. "] * 2, asked


async def test_code_counts_only_from_the_person_who_asked(house: House) -> None:
    team, bob = house.telegram.group("Team"), house.telegram.person("Bob")
    prompt = await house.prompt(to=team, by=house.ana)
    await house.says(f"OK {code_of(prompt)}", to=team, by=bob)
    await house.idle()
    assert house.shop.deleted == []
    await house.says(f"OK {code_of(prompt)}", to=team, by=house.ana)
    await house.until(lambda: not prompt.buttons)
    assert house.shop.deleted == ["INV-42"]


async def test_reply_counts_only_from_the_person_who_asked(house: House) -> None:
    team, bob = house.telegram.group("Team"), house.telegram.person("Bob")
    prompt = await house.prompt(to=team, by=house.ana)
    await house.says("yes", to=team, by=bob, reply_to=prompt)
    await house.idle()
    assert house.shop.deleted == []
    await house.says("yes", to=team, by=house.ana, reply_to=prompt)
    await house.until(lambda: not prompt.buttons)
    assert house.shop.deleted == ["INV-42"]


async def test_stop_is_for_the_turn_and_the_asks_of_who_says_it(house: House) -> None:
    team, bob, hold = house.telegram.group("Team"), house.telegram.person("Bob"), asyncio.Event()
    prompt = await house.prompt(to=team, by=house.ana)
    house.model.script([Say("Here I am.", hold=hold)])
    await house.says(f"@{house.telegram.bot.username} think", to=team, by=house.ana)
    await house.model.wait_for(2)
    stopped = await house.asks("/stop", to=team, by=bob)
    assert stopped.text == "There is nothing to stop."
    hold.set()
    await house.until(lambda: "Here I am." in house.texts(team))
    await house.presses(prompt)
    await house.until(lambda: house.shop.deleted == ["INV-42"])


async def test_the_model_is_told_who_speaks(house: House) -> None:
    team, bob = house.telegram.group("Team"), house.telegram.person("Bob")
    await house.asks("I like tea", "Good.", to=team, by=house.ana)
    await house.asks("I like coffee", "Good, too.", to=team, by=bob)
    said = [str(m) for m in house.model.requests[-1]["messages"] if m["role"] == "user"]
    assert re.search(r"\bAna\b", said[0]) and "tea" in said[0]
    assert re.search(r"\bBob\b", said[1]) and "coffee" in said[1]


async def test_an_anonymous_admin_and_a_bot_decide_nothing(house: House) -> None:
    team = house.telegram.group("Team")
    prompt = await house.prompt(to=team, by=house.ana)
    robot = {"id": house.ana.id, "is_bot": True, "first_name": "Robot"}
    await house.says(f"OK {code_of(prompt)}", to=team, by=house.ana, **{"from": robot})
    await house.says(f"OK {code_of(prompt)}", to=team, by=house.ana, sender_chat=team.to_json())
    await house.says(f"OK {code_of(prompt)}", to=team, by=house.ana, forward_origin={"type": "user"})
    await house.until(lambda: house.texts(team)[-1].startswith("That is not clear enough here."))
    await house.idle()
    assert (house.shop.deleted, prompt.buttons) == ([], ["Confirm", "Cancel", "Change"])
    assert len(house.model.requests) == 1
