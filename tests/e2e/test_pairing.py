"""A stranger gets a code, the bot's operator lets them in by it, and may take that back."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from channels import Address, Json, Person
from gateway.engine.strangers import Newcomers
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
        assert house.ana.id == 1001  # who runs the bot
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


async def test_stranger_keeps_one_code_and_is_told_three_times_an_hour(house: House) -> None:
    bob, code = await code_for(house, "Bob")
    for _ in range(2):
        assert code in (await house.asks("hello?", to=bob, by=bob)).text
    await house.says("hello?", to=bob, by=bob)
    await house.idle()
    assert len(house.texts(bob)) == 3


async def test_who_was_let_in_lets_nobody_in(house: House) -> None:
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


async def test_twenty_codes_are_open_at_most_and_ten_of_a_channel(house: House) -> None:
    """A crowd in the public web chat takes no code from the people of the other channels."""
    for channel, given in (("web", 10), ("slack", 10), ("telegram", 0)):
        where = Address.parse(f"{channel}:7000001:1")
        crowd = [Person(channel=channel, account="7000001", user_id=str(number)) for number in range(2000, 2012)]
        codes = [await newcomers(house).note(person, where, "en", pairing=True) for person in crowd]
        assert [code is not None for code in codes] == [True] * given + [False] * (12 - given)
    assert len((await people(house))["turned_away"]) == 20
    told = await house.asks("hello?", to=(eve := house.telegram.person("Eve")), by=eve)
    assert told.text == "Sorry, this bot talks only to people it knows."
    await house.later(HOUR)
    await code_for(house, "Mia")


async def test_forged_admission_row_admits_nobody(house: House) -> None:
    bob = house.telegram.person("Bob")
    store, person = house.gateway.engine.context.store, f"telegram:7000001:{bob.id}"
    key = Key(store.partition(person), f"admitted/{person}")
    forged: Json = {"person": person, "name": "Bob", "at": "2026-11-24T00:00:00+00:00", "by": "operator"}
    await store.commit(Transaction(partition=key.partition, puts={key.name: Put(forged)}))
    told = await house.asks("hello?", to=bob, by=bob)
    assert "Give this code" in told.text
    assert (await people(house))["admitted"] == []


async def test_whoami_says_what_the_allow_list_takes(house: House) -> None:
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


async def test_who_was_let_in_is_a_stranger_again_when_pairing_is_off(house: House) -> None:
    bob, code = await code_for(house, "Bob")
    await operator(house).admit(code)
    house.gateway.engine.context.allowed.pairing = False
    told = await house.asks("hello?", to=bob, by=bob)
    assert house.model.requests == [], told.text
