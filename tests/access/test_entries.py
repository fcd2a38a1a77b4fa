"""Entries of the allow-list without any admitted person are reported with the remedy."""

from __future__ import annotations

import pytest

from gateway.access.entries import vain_entries

ACCOUNTS = {"telegram": "123", "slack": None, "pager": None}
NOBODY = "ASKFIRST_ALLOW: nobody can talk to this bot, for none of its entries admits anybody"


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        (["*"], []),
        (["telegram:*", "telegram:123:7", "slack:T1:U7", "pager:service:4711", "app:-:ana"], []),
        (
            ["telegram:8:7", "slack:*"],
            ["ASKFIRST_ALLOW: telegram:8:7 admits nobody: our account is 123; write telegram:123:7, or remove it"],
        ),
        (
            ["sms:*"],
            ["ASKFIRST_ALLOW: sms:* admits nobody: sms is not on; set it up, or remove the entry", NOBODY],
        ),
    ],
)
def test_entry_that_admits_no_person_is_told(entries: list[str], told: list[str]) -> None:
    assert list(vain_entries(entries, ACCOUNTS)) == told
