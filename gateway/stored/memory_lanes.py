"""Memory lanes: one beside each conversation, and one for each person.

A memory lane is the mailbox of a conversation that no channel has. Its events are worked under an ordinary lease of a
turn, so that two workers never fill the same memory at once. The turns of the conversation itself do not wait for it.
The lane of a person also keeps which questions wait for them in groups.
"""

from __future__ import annotations

from typing import Final

from channels import Address

_CHANNEL: Final = "memory"


def conversation_lane(conversation: str) -> str:
    """Return the memory lane beside a conversation."""
    bot, _, _ = conversation.partition("/")
    return f"{bot}/{Address(channel=_CHANNEL, account='conversation', place=conversation)}"


def person_lane(bot: str, person: str) -> str:
    """Return the memory lane of a person with this bot."""
    return f"{bot}/{Address(channel=_CHANNEL, account='person', place=person)}"


def forget_lane(bot: str, person: str) -> str:
    """Return the lane in which a person is forgotten, because they asked for it."""
    return f"{bot}/{Address(channel=_CHANNEL, account='forget', place=person)}"


def is_memory_lane(lane: str) -> bool:
    """Return True for the name of a memory lane."""
    return lane.partition("/")[2].startswith(f"{_CHANNEL}:")
