"""Dead letters of a Redis store, kept in all partitions and read in pages."""

from __future__ import annotations

from typing import Final

from gateway.store.codec import dead_from_text
from gateway.store.redis import scripts, wire
from gateway.store.redis.client import Value
from gateway.store.redis.connection import Server
from gateway.store.redis.keys import PARTITIONS, to_bytes
from gateway.store.types import Dead

_PAGE: Final = 500
"""The most dead letters of a partition read in a call, to keep calls short."""


async def read(server: Server, after: int, limit: int | None) -> list[Dead]:
    """Return dead letters after a `seq`, the oldest first; at most `limit`."""
    most = _PAGE if limit is None else min(_PAGE, limit)
    behind = dict.fromkeys(PARTITIONS, after) if most else {}
    found: list[Dead] = []
    while behind:
        places = [(server.keys.base(partition), (place, most)) for partition, place in behind.items()]
        pages = dict(zip(behind, await server.run_at(scripts.DEAD_LETTERS, places), strict=True))
        found += [wire.read_letter(letter) for page in pages.values() for letter in page]
        behind = {partition: int(page[-1][0]) for partition, page in pages.items() if len(page) == most}
        read_to = min(behind.values(), default=None)  # later ones were not read in every partition
        if limit is not None and read_to is not None and sum(_place(dead) <= read_to for dead in found) >= limit:
            break
    return sorted(found, key=_place)[:limit]


async def drop_all(server: Server, reason: str | None) -> int:
    """Delete all dead letters, or the letters with `reason` within the reason. Return the number."""
    behind: dict[str, Value] = dict.fromkeys(PARTITIONS, 0)
    dropped = 0
    while behind:
        sent = "" if reason is None else to_bytes(reason)
        places = [(server.keys.base(partition), (place, _PAGE, sent)) for partition, place in behind.items()]
        answers = dict(zip(behind, await server.run_at(scripts.DROP_SOME, places), strict=True))
        dropped += sum(many for many, _ in answers.values())
        behind = {partition: place for partition, (_, place) in answers.items() if place != b"-1"}
    return dropped


async def replay(server: Server, dead_id: str) -> bool:
    """Put the event or part of a dead letter back. Return False if there is none of this id."""
    found = await server.run(scripts.GET_DEAD, PARTITIONS, to_bytes(dead_id))
    for partition, held in zip(PARTITIONS, found, strict=True):
        if held is not None:
            becomes: list[Value] = ["nothing"]
            incoming, part = dead_from_text(held)
            if incoming is not None:
                becomes = ["event", *wire.event_arguments(incoming)]
            elif part is not None:
                becomes = ["part", *wire.part_arguments(part)]
            [was_there] = await server.run(scripts.REPLAY_DEAD, [partition], to_bytes(dead_id), held, *becomes)
            return bool(was_there)
    return False


async def drop(server: Server, dead_id: str) -> bool:
    """Delete a dead letter. Return False if there is none of this id."""
    return any(await server.run(scripts.REPLAY_DEAD, PARTITIONS, to_bytes(dead_id), "", "nothing"))


def _place(dead: Dead) -> int:
    return dead.seq or 0
