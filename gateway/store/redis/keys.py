"""The keys of a Redis store: sixteen partitions, each in a single slot of a cluster.

A script touches the keys of a single partition, all with the same hash tag. The tags are chosen with a slot in each
sixteenth of the slot space: any number of masters with even shares of the slots has even shares of the partitions.
"""

from __future__ import annotations

import re
from typing import Final
from zlib import crc32

from gateway.store.types import Key

_TAGS: Final = (
    "00dd", "01dc", "02fd", "03fc", "04ac", "05ad", "06bd", "07bc",
    "08bb", "09ba", "10ab", "11aa", "12bd", "13bc", "14da", "15db",
)  # fmt: skip
"""Part of every stored key: never changed."""

PARTITIONS: Final = tuple(tag[:2] for tag in _TAGS)


def to_bytes(text: str) -> bytes:
    """Return the stored form of a name. Half of a surrogate pair is kept."""
    return text.encode("utf-8", "surrogatepass")


class Keys:
    """The names of the keys under a prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._bases = {tag[:2]: f"{prefix}:{{{tag}}}" for tag in _TAGS}
        self.rates = f"{prefix}:{{rates}}"
        self.format = f"{prefix}:format"
        self.notifications = f"{prefix}:news"
        self.looks = f"{prefix}:looks"
        self.ahead = f"{prefix}:ahead"
        """The key of the server clock's lead since a step forward, in microseconds."""
        self.nothing = f"{prefix}:nothing"
        """A key that never exists. `ping` deletes the key, to check for accepted writes."""

    def base(self, partition: str) -> str:
        """Return the beginning of all keys of a partition. Raises ValueError for an unknown partition."""
        try:
            return self._bases[partition]
        except KeyError:
            raise ValueError(f"there is no partition {partition!r}") from None

    def log(self, partition: str, name: str) -> bytes:
        """Return the key of a log, also the topic of the log's notifications."""
        return to_bytes(f"{self.base(partition)}:log:{name}")

    def logs(self, prefix: str) -> bytes:
        """Return the pattern of the keys of all logs with this name prefix."""
        return to_bytes(f"{_literal(self._prefix)}:{{????}}:log:{_literal(prefix)}*")

    def all(self) -> bytes:
        """Return the pattern of the keys of all partitions and of the rates."""
        return to_bytes(f"{_literal(self._prefix)}:{{*}}:*")

    def named(self, key: bytes) -> tuple[str, str, str] | None:
        """Return the base, the kind and the name of a key with the pattern of `all`, or None for another key."""
        text = key.decode("utf-8", "surrogatepass")
        base, brace, rest = text[len(self._prefix) :].partition("}:")
        kind, colon, name = rest.partition(":")
        base = f"{self._prefix}{base}}}"
        is_ours = brace and colon and (base == self.rates or base in self._bases.values())
        return (base, kind, name) if is_ours else None

    def log_of(self, key: bytes) -> Key | None:
        """Return the log of a key with the pattern of `logs`, or None for a key of another program."""
        base, _, name = key[len(to_bytes(self._prefix)) :].decode("utf-8", "surrogatepass").partition(":log:")
        place = base[2:4]
        return Key(place, name) if self._bases.get(place) == f"{self._prefix}{base}" else None


def _literal(text: str) -> str:
    """Return a pattern of Redis for this text alone."""
    return re.sub(r"([*?\[\]\\])", r"\\\1", text)


def partition_of(conversation: str) -> str:
    """Return the partition of a conversation, fixed for ever."""
    return PARTITIONS[crc32(to_bytes(conversation)) % len(PARTITIONS)]
