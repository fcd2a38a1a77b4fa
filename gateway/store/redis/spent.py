"""Counts of a Redis store with additions only. Each partition has separate counts; readers get the sums."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.store.redis import scripts, wire
from gateway.store.redis.connection import Server
from gateway.store.redis.keys import PARTITIONS, to_bytes

_NUMBER: Final = re.compile(rb"-?\d{1,16}")
_PAGE: Final = 500
"""The most counts of a partition read in a call, to keep calls short."""


async def read(server: Server, names: Sequence[str]) -> list[Mapping[str, int]]:
    """Return the counts under these names; an empty mapping for a name without additions."""
    sums: list[Counter[str]] = [Counter() for _ in names]
    if names:
        for answer in await server.run(scripts.SPENT, PARTITIONS, len(names), *map(to_bytes, names)):
            for count, shown in zip(sums, answer, strict=True):
                count.update(_amounts(shown))
    return list(sums)


async def read_all(server: Server, prefix: str) -> dict[str, Mapping[str, int]]:
    """Return the counts with this name prefix."""
    start = to_bytes(prefix)
    bounds = (b"[" + start, b"(" + start + b"\xff") if start else (b"-", b"+")
    firsts = dict.fromkeys(PARTITIONS, bounds[0])
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    while firsts:
        places = [(server.keys.base(partition), (first, bounds[1], _PAGE)) for partition, first in firsts.items()]
        answers = dict(zip(firsts, await server.run_at(scripts.ALL_SPENT, places), strict=True))
        for shown, _ in answers.values():
            for name, amounts in shown:
                sums[wire.text_of(name)].update(_amounts(amounts))
        firsts = {partition: b"(" + last for partition, (_, last) in answers.items() if last}
    return {name: amounts for name, amounts in sums.items() if amounts}


def _amounts(shown: Sequence[bytes]) -> Mapping[str, int]:
    """Return the amounts of a count. Anything but an integer is ignored."""
    pairs = zip(shown[::2], shown[1::2], strict=True)
    return {wire.text_of(field): int(amount) for field, amount in pairs if _NUMBER.fullmatch(amount)}
