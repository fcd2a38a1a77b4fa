"""The allow-list admits the listed people, and never a bot."""

from __future__ import annotations

import pytest

from channels import Person
from gateway.access import AllowList

ANA = Person(channel="telegram", account="1", user_id="7")
BOB = Person(channel="telegram", account="1", user_id="8")
EVA = Person(channel="webchat", account="1", user_id="7")


@pytest.mark.parametrize(
    ("entries", "admitted"),
    [
        ([], []),
        (["telegram:1:7"], [ANA]),
        (["telegram:*"], [ANA, BOB]),
        (["telegram:1:8", "webchat:*"], [BOB, EVA]),
        (["*"], [ANA, BOB, EVA]),
        (["webchat:1:*"], [EVA]),
        (["webchat:2:*"], []),
        (["pairing"], []),
        (["pairing", "telegram:1:7"], [ANA]),
        (["telegram:2:7", "telegram", "tele:*", "telegram:1:*"], []),
    ],
)
def test_person_on_the_list_passes(entries: list[str], admitted: list[Person]) -> None:
    allowed = AllowList(entries)
    assert [person for person in (ANA, BOB, EVA) if allowed(person)] == admitted
    assert allowed(None), "what no person sent: a delivery report"


@pytest.mark.parametrize("entry", ["telegram:1:9", "telegram:*", "*"])
def test_a_bot_never_passes(entry: str) -> None:
    """Two bots answering each other would never stop."""
    assert not AllowList([entry])(Person(channel="telegram", account="1", user_id="9", is_bot=True))


def test_an_entry_of_their_own_names_a_person() -> None:
    allowed = AllowList(["telegram:1:7", "webchat:*", "pairing"])
    assert [person for person in (ANA, BOB, EVA) if allowed.names(person)] == [ANA]
    assert allowed.pairing and not AllowList(["*"]).pairing
