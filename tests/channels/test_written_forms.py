"""Written forms of people and places: read back as what was written, so that no two of them are ever one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import Address, Person

ESCAPES = st.lists(st.sampled_from(["%", ":", "/", "25", "3A", "2F", "3a", "x"]), min_size=1, max_size=4)
PARTS = st.one_of(ESCAPES.map("".join), st.text(min_size=1, max_size=6))
ADDRESSES = st.builds(
    Address, channel=PARTS, account=PARTS, place=PARTS, thread=st.none() | PARTS, group=st.just(False)
)
PEOPLE = st.builds(Person, channel=PARTS, account=PARTS, user_id=PARTS)


@given(ADDRESSES)
def test_an_address_is_read_back_as_what_was_written(address: Address) -> None:
    assert Address.parse(str(address)) == address


@given(PEOPLE)
def test_a_person_is_read_back_as_who_was_written(person: Person) -> None:
    assert Person.parse(str(person)) == person


@pytest.mark.parametrize(
    ("account", "user_id", "written"),
    [
        ("a:b", "c", "app:a%3Ab:c"),
        ("a", "b:c", "app:a:b:c"),
        ("a%3Ab", "c", "app:a%253Ab:c"),
        ("a", "b%3Ac", "app:a:b%3Ac"),
        ("a/b", "c/d", "app:a/b:c/d"),
    ],
)
def test_only_ambiguous_ids_are_escaped_when_written(account: str, user_id: str, written: str) -> None:
    assert str(Person(channel="app", account=account, user_id=user_id)) == written


@pytest.mark.parametrize(
    "address",
    [
        Address(channel="telegram", account="123456", place="-1001234567890", thread="7"),
        Address(channel="slack", account="T024BE7LD", place="C024BE91L", thread="1712000000.000100"),
        Address(channel="sms", account="+15550006666", place="+15550005555"),
        Address(channel="whatsapp", account="+15550006666", place="+15550005555"),
        Address(channel="sms", account="ACME 100%", place="12345"),
        Address(channel="webchat", account="local", place="Zm9v-_Yg"),
        Address(channel="app", account="-", place="user:ana"),
        Address(channel="app", account="crm", place="case 5"),
        Address(channel="app", account="crm/eu", place="case%205", thread="a/b:c"),
        Address(channel="test", account="bot", place="#ops"),
    ],
    ids=str,
)
def test_plain_address_keeps_its_stored_form(address: Address) -> None:
    thread = f"/{address.thread}" if address.thread is not None else ""
    assert str(address) == f"{address.channel}:{address.account}:{address.place}{thread}"
    assert Address.parse(str(address)) == address


def test_a_place_with_a_slash_is_not_a_thread() -> None:
    place = Address(channel="app", account="-", place="a/b")
    thread = replace(place, place="a", thread="b")
    assert (str(place), str(thread)) == ("app:-:a%2Fb", "app:-:a/b")


@pytest.mark.parametrize("text", ["", "x", "x:y", ":y:z", "x::z", "x:y:", "user:ana"])
def test_what_has_not_three_parts_is_no_person(text: str) -> None:
    with pytest.raises(ValueError, match="not a person"):
        Person.parse(text)
