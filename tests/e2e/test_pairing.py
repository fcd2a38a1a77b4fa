"""A stranger gets a code. The bot's operator admits the stranger by the code, and may revoke the admission."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from channels import Address, Json, Message, Person
from gateway.config.limits import Limits
from gateway.engine.reply_limits import stranger_replies
from gateway.engine.strangers import Newcomers, Strangers
from gateway.operations.base import NotDone
from gateway.operations.operator import Operator
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key
from tests.e2e.house import House, open_house
from tests.fakes.telegram import User

ALLOW = "pairing,telegram:7000001:1001"
HOUR = 3600.0


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(tmp_path, allow=ALLOW) as house:
        assert house.ana.id == 1001  # the operator
        yield house


def operator(house: House) -> Operator:
    shared = house.gateway.engine.context
    return Operator(shared.store, shared.channels, shared.keyring, bot=shared.bot.name)


async def people(house: House) -> Any:
    return await operator(house).people()


def newcomers(house: House) -> Newcomers:
    return Newcomers(house.gateway.engine.context.store, house.gateway.engine.context.keyring)


async def code_for(house: House, name: str) -> tuple[User, str]:
    person = house.telegram.person(name)
    told = await house.asks("hello?", to=person, by=person)
    found = re.search(r"[A-Z0-9]{4}-[A-Z0-9]{4}", told.text)
    assert found is not None, told.text
    return person, found[0]


async def test_allowed_person_admits_a_stranger_by_code(house: House) -> None:
    bob, code = await code_for(house, "Bob")
    assert house.model.requests == []
    done = await house.asks(f"/pair {code.lower()}")
    assert done.text == "Bob is in."
    await house.until(lambda: house.texts(bob)[-1] == "You are in: we can talk now.")
    answer = await house.asks("hello again", "Hi Bob!", to=bob, by=bob)
    assert answer.text == "Hi Bob!"
    again = await house.asks(f"/pair {code}")
    assert again.text == "There is no such code, or its hour is over."


async def test_operator_admits_and_expels_a_stranger(house: House) -> None:
    bob, code = await code_for(house, "Bob")
    person = f"telegram:7000001:{bob.id}"
    (away,) = (await people(house))["turned_away"]
    assert (away["person"], away["name"], away["code"]) == (person, "Bob", code)
    await operator(house).admit(code)
    await house.until(lambda: house.texts(bob)[-1] == "You are in: we can talk now.")
    await house.asks("hello again", "Hi Bob!", to=bob, by=bob)
    found = await people(house)
    assert found["turned_away"] == []
    assert [(each["person"], each["by"]) for each in found["admitted"]] == [(person, "operator")]
    await operator(house).expel(person)
    await house.later(24 * HOUR)
    asked = len(house.model.requests)
    told = await house.asks("and now?", to=bob, by=bob)
    assert "Give this code" in told.text
    assert len(house.model.requests) == asked
    with pytest.raises(NotDone, match="was not let in by a code"):
        await operator(house).expel(person)


async def test_a_code_counts_for_an_hour(house: House) -> None:
    _, code = await code_for(house, "Bob")
    await house.later(HOUR + 60)
    with pytest.raises(NotDone, match="no newcomer has the code"):
        await operator(house).admit(code)
    (away,) = (await people(house))["turned_away"]
    assert away["code"] is None


async def test_a_stranger_is_told_one_code_a_day(house: House) -> None:
    bob, code = await code_for(house, "Bob")
    for _ in range(2):
        await house.says("hello?", to=bob, by=bob)
    assert (await house.asks("/whoami", to=bob, by=bob)).text.endswith(f":{bob.id}.")
    await house.says("/whoami", to=bob, by=bob)
    await house.idle()
    assert len(house.texts(bob)) == 2
    await house.later(24 * HOUR)
    again = await house.asks("hello?", to=bob, by=bob)
    assert "Give this code" in again.text and code not in again.text


async def test_a_refused_newcomer_is_admitted_by_identity_too(house: House) -> None:
    bob, _ = await code_for(house, "Bob")
    await house.later(HOUR + 60)
    await operator(house).admit(f"telegram:7000001:{bob.id}")
    assert [each["name"] for each in (await people(house))["admitted"]] == ["Bob"]
    with pytest.raises(NotDone, match="no newcomer has the code"):
        await operator(house).admit("telegram:7000001:4711")


async def test_a_newcomer_is_answered_within_the_hour_of_a_flood(house: House) -> None:
    """A flood of strangers uses up a part of the hour, but not the day or the other channels."""
    strangers, store = Strangers(house.gateway.engine.context), house.gateway.store
    for number in range(900):
        person = Person(channel="telegram", account="7000001", user_id=str(10_000 + number))
        address = Address(channel="telegram", account="7000001", place=person.user_id)
        said = Message(event_ids=(str(number),), address=address, person=person, text="hello?")
        await strangers.turn_away(said, person)
        store.offset_seconds += 0.35
    eve = house.telegram.person("Eve")
    for _ in range(12):
        await house.says("hello?", to=eve, by=eve)
        await house.idle()
        await house.later(HOUR / 12)
    (told,) = house.texts(eve)
    assert "Give this code" in told
    other = Address.parse("sms:+15550001:+15550002")
    for number in range(2):
        person = Person(channel="sms", account="+15550001", user_id=f"+1555100{number}")
        rates = stranger_replies(person, other, Limits.usual().strangers, pairing=True)
        assert await store.acquire(rates) == 0


async def test_an_admitted_person_cannot_admit_others(house: House) -> None:
    bob, code = await code_for(house, "Bob")
    await operator(house).admit(code)
    _, other = await code_for(house, "Eve")
    await house.asks(f"/pair {other}", "What do you mean?", to=bob, by=bob)
    found = await people(house)
    assert [each["name"] for each in found["admitted"]] == ["Bob"]


async def test_a_group_gives_no_codes(house: House) -> None:
    team, bob = house.telegram.group("Team"), house.telegram.person("Bob")
    await house.says(f"@{house.telegram.bot.username} hello", to=team, by=bob)
    await house.idle()
    assert house.texts(team) == []
    assert (await people(house))["turned_away"] == []


async def test_codes_that_are_open_are_bounded_in_all_and_by_channel(house: House) -> None:
    """A crowd in the public web chat takes no code from the people of the other channels."""
    for channel, given in (("web", 16), ("slack", 16), ("telegram", 0)):
        where = Address.parse(f"{channel}:7000001:1")
        crowd = [Person(channel=channel, account="7000001", user_id=str(number)) for number in range(2000, 2018)]
        codes = [await newcomers(house).note(person, where, "en", pairing=True) for person in crowd]
        assert [code is not None for code in codes] == [True] * given + [False] * (18 - given)
    assert len((await people(house))["turned_away"]) == 32
    told = await house.asks("hello?", to=(eve := house.telegram.person("Eve")), by=eve)
    assert told.text == "Sorry, this bot talks only to people it knows."
    await house.later(HOUR)
    await code_for(house, "Mia")


async def test_forged_admission_row_admits_no_person(house: House) -> None:
    bob = house.telegram.person("Bob")
    store, person = house.gateway.engine.context.store, f"telegram:7000001:{bob.id}"
    key = Key(store.partition(person), f"admitted/{person}")
    forged: Json = {"person": person, "name": "Bob", "at": "2026-11-24T00:00:00+00:00", "by": "operator"}
    await store.commit(Transaction(partition=key.partition, puts={key.name: Put(forged)}))
    told = await house.asks("hello?", to=bob, by=bob)
    assert "Give this code" in told.text
    assert (await people(house))["admitted"] == []


async def test_whoami_shows_the_entry_for_the_allow_list(house: House) -> None:
    assert (await house.asks("/whoami")).text == "Here you are telegram:7000001:1001."
    bob = house.telegram.person("Bob", language="pt")
    told = await house.asks("/whoami", to=bob, by=bob)
    assert told.text == f"Aqui você é telegram:7000001:{bob.id}."


async def test_stranger_without_pairing_gets_no_code_but_is_listed(tmp_path: Path) -> None:
    async with open_house(tmp_path, allow="telegram:7000001:1001") as house:
        bob = house.telegram.person("Bob")
        told = await house.asks("hello?", to=bob, by=bob)
        assert told.text == "Sorry, this bot talks only to people it knows."
        (away,) = (await people(house))["turned_away"]
        assert (away["person"], away["code"]) == (f"telegram:7000001:{bob.id}", None)


async def test_an_admitted_person_is_a_stranger_when_pairing_is_off(house: House) -> None:
    bob, code = await code_for(house, "Bob")
    await operator(house).admit(code)
    house.gateway.engine.context.allowed.pairing = False
    told = await house.asks("hello?", to=bob, by=bob)
    assert house.model.requests == [], told.text
