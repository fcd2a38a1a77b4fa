"""Where things live: sixteen partitions, each in one slot of a cluster.

A script touches the keys of one partition only, and all of them share its hash tag. The tags are chosen so that their
slots lie one in each sixteenth of the slot space: however many masters share it evenly, so are the partitions.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

__all__ = ["PARTITIONS", "Keys", "partition_of", "to_bytes"]

_TAGS: Final = (
    "00dd", "01dc", "02fd", "03fc", "04ac", "05ad", "06bd", "07bc",
    "08bb", "09ba", "10ab", "11aa", "12bd", "13bc", "14da", "15db",
)  # fmt: skip
"""Where people's data is: never to be changed."""

PARTITIONS: Final = tuple(tag[:2] for tag in _TAGS)


def to_bytes(text: str) -> bytes:
    """A name as Redis keeps it; half of a surrogate pair survives."""
    return text.encode("utf-8", "surrogatepass")


class Keys:
    """The keys under a prefix."""

    def __init__(self, prefix: str) -> None:
        self._bases = {tag[:2]: f"{prefix}:{{{tag}}}" for tag in _TAGS}
        self.rates = f"{prefix}:{{rates}}"
        self.format = f"{prefix}:format"
        self.notifications = f"{prefix}:news"
        self.looks = f"{prefix}:looks"
        self.ahead = f"{prefix}:ahead"
        """By how much the server's clock is ahead since it was set forward."""
        self.nothing = f"{prefix}:nothing"
        """No key of this name is ever there."""

    def base(self, partition: str) -> str:
        """What all keys of a partition begin with. Raises ValueError for one that is not there."""
        try:
            return self._bases[partition]
        except KeyError:
            raise ValueError(f"there is no partition {partition!r}") from None

    def log(self, partition: str, name: str) -> bytes:
        """The key of a log, which is also the topic of its news."""
        return to_bytes(f"{self.base(partition)}:log:{name}")


def partition_of(conversation: str) -> str:
    """The partition of a conversation, for ever the same."""
    return PARTITIONS[crc32(to_bytes(conversation)) % len(PARTITIONS)]
