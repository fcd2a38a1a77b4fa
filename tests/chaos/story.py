"""The messages of a run. The first word of a message tells the bot's act, the second is the message's name."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["HOPELESS", "Story", "make_story"]

HOPELESS = ("poison", "killer")
"""The kinds of messages without a committed turn: the turn always fails, or kills the worker."""


@dataclass(frozen=True)
class Story:
    """The messages of each conversation, in order."""

    conversations: list[list[str]] = field(default_factory=list)

    def spoken(self, chance: random.Random) -> Iterator[tuple[int, str]]:
        """Yield the conversation and the next message of everybody, in random turns."""
        for round_ in zip(*self.conversations, strict=True):
            turns = list(enumerate(round_))
            chance.shuffle(turns)
            yield from turns

    def of(self, *kinds: str) -> set[str]:
        return {text for texts in self.conversations for text in texts if text.partition(" ")[0] in kinds}


def make_story(conversations: int, messages: int, chance: random.Random) -> Story:
    """A third of the messages has an effect. Every third conversation has an action to confirm, every sixth an action
    to approve in other chats. One in 50 messages is a trouble, half of these only at the first try."""
    told = [[("note" if chance.random() < 1 / 3 else "plain") for _ in range(messages)] for _ in range(conversations)]
    for kinds in told[::3]:
        kinds[chance.randrange(messages)] = "pay"
    for kinds in told[1::6]:  # no more: the platform takes one message a second for a manager
        kinds[chance.randrange(messages)] = "wire"
    troubles = ["poison", "flaky", "flaky", "killer"] * round(conversations * messages / 200)
    for trouble in troubles:
        # The last ones would only make the end longer: it takes seconds until one is given up.
        chance.choice(told)[chance.randrange(messages * 2 // 3)] = trouble
    return Story(
        [[f"{kind} c{place}-{number}" for number, kind in enumerate(kinds)] for place, kinds in enumerate(told)]
    )
