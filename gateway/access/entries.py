"""Checks of the allow-list at start: entries without a matching person, and the entry for everybody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from channels import Person
from channels.direct import DirectChannel
from gateway.access import PAIRING

EVERYBODY = "ASKFIRST_ALLOW has *: whoever finds the bot may talk to it, on every channel"


def vain_entries(entries: Sequence[str], accounts: Mapping[str, str | None]) -> Iterator[str]:
    """Yield a sentence with the remedy for each entry that admits no person here, and another if no entry does.

    `accounts` maps each channel in use to the bot's account there, or to None while the account is unknown.
    """
    vain = 0
    for entry in entries:
        channel, _, rest = entry.partition(":")
        if entry in ("*", PAIRING) or channel == DirectChannel.name:
            continue
        if channel not in accounts:
            vain += 1
            yield f"ASKFIRST_ALLOW: {entry} admits nobody: {channel} is not on; set it up, or remove the entry"
        elif rest != "*" and accounts[channel] not in (None, (person := Person.parse(entry)).account):
            vain += 1
            right = f"{channel}:{accounts[channel]}:{person.user_id}"
            ours = f"our account is {accounts[channel]}; write {right}, or remove it"
            yield f"ASKFIRST_ALLOW: {entry} admits nobody: {ours}"
    if entries and vain == len(entries):
        yield "ASKFIRST_ALLOW: nobody can talk to this bot, for none of its entries admits anybody"
