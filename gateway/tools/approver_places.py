"""Places among the approvers of a rule: ``place:slack:T1:C2`` stands for the members who answer there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from channels import Address, Person

_PREFIX = "place:"
_WITHOUT_GROUPS = frozenset({"sms", "whatsapp", "webchat", "app", "place"})
_GROUPS_BEGIN: Mapping[str, tuple[str, ...]] = {"slack": ("C", "G"), "telegram": ("-",)}
"""Channel -> the beginnings of the ids of groups. https://core.telegram.org/bots/api#chat, and Slack's channel ids."""


def place_of(approver: str) -> Address | None:
    """Return the group named by an approver; None for a person."""
    if not approver.startswith(_PREFIX):
        return None
    place = Address.parse(approver.removeprefix(_PREFIX))
    return Address(channel=place.channel, account=place.account, place=place.place, group=True)


def channel_of(approver: str) -> str:
    """Return the channel of a person or a place."""
    place = place_of(approver)
    return place.channel if place is not None else Person.parse(approver).channel


def written(approver: str) -> str:
    """Return the written form of a person or a place. Raises ValueError for any other text."""
    if not approver.startswith(_PREFIX):
        if approver.lower().startswith(_PREFIX):
            raise ValueError(f"not a person: {approver!r} (a place begins with {_PREFIX!r})")
        return str(Person.parse(approver))
    place = place_of(approver)
    if place is None or not _is_group(place) or Address.parse(approver.removeprefix(_PREFIX)).thread:
        raise ValueError(f"not a place: {approver!r} (write place: and a Slack channel or a Telegram group)")
    return written_place(place)


def _is_group(place: Address) -> bool:
    begins = _GROUPS_BEGIN.get(place.channel)
    return place.channel not in _WITHOUT_GROUPS and (begins is None or place.place.startswith(begins))


def written_place(address: Address) -> str:
    """Return the written form of the group of an address, as in a rule."""
    return f"{_PREFIX}{replace(address, thread=None)}"


def is_place(approver: str, address: Address) -> bool:
    """Return True if an approver names the group of this address, in any of its threads."""
    place = place_of(approver)
    return place is not None and _group(place) == _group(address)


def place_around(approvers: Collection[str], address: Address | None, person: Person, conversation: str) -> str | None:
    """Return the approver naming the group of this conversation, if this person is a member with a vote there.

    Bots, anonymous admins, and guests of another workspace may not. A group that was moved keeps its conversation.
    """
    if address is None or person.is_bot or person.is_guest:
        return None
    if (person.channel, person.account) != (address.channel, address.account):
        return None
    around = f"{_PREFIX}{conversation.partition('/')[2]}/"
    return next((each for each in approvers if is_place(each, address) or around.startswith(f"{each}/")), None)


def are_enough(approvers: Collection[str], need: int) -> bool:
    """Return True if these approvers can give this number of votes. A place has any number of members."""
    return len(approvers) >= need or any(place_of(approver) is not None for approver in approvers)


def _group(address: Address) -> tuple[str, str, str]:
    return address.channel, address.account, address.place
