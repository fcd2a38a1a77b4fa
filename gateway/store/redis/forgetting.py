"""Removal of all data of lanes, or named after a subject, in a Redis store; see `Store.forget`.

The names are found by a scan of the keys: no write pays for an index.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from gateway.store.codec import conversation_of, incoming_from_text, moment
from gateway.store.errors import Conflict
from gateway.store.redis import dead_letters, scripts, wire
from gateway.store.redis.client import Value
from gateway.store.redis.connection import Server
from gateway.store.redis.keys import PARTITIONS, partition_of, to_bytes
from gateway.store.transaction import Timer
from gateway.store.types import Forgotten

_KEYS: Final = 1000
"""The most keys, of any kind, scanned by the server in a call."""
_PAGE: Final = 500
"""The most timers of a partition read in a call."""
_COUNTED: Final = ("records", "lines", "events", "parts", "timers", "dead letters", "counts")


@dataclass(slots=True)
class _Chosen:
    """The names of a base to remove, in the order of the arguments of forget.lua."""

    lanes: set[str] = field(default_factory=set)
    records: set[str] = field(default_factory=set)
    logs: set[str] = field(default_factory=set)
    counts: set[str] = field(default_factory=set)
    timers: set[str] = field(default_factory=set)
    letters: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)

    def arguments(self) -> list[Value]:
        sent: list[Value] = []
        for names in (
            self.lanes,
            self.records,
            self.logs,
            self.counts,
            self.timers,
            self.letters,
            self.others,
        ):
            sent += [len(names), *map(to_bytes, sorted(names))]
        return sent


async def forget(server: Server, forgotten: Forgotten) -> Mapping[str, int]:
    """Remove this data. Raises Conflict while a lane is leased."""
    chosen: defaultdict[str, _Chosen] = defaultdict(_Chosen)
    for lane in forgotten.lanes:
        for partition in PARTITIONS:  # the lane of an action is in the partition of its conversation
            chosen[server.keys.base(partition)].lanes.add(lane)
    async for base, kind, name in _names(server):
        _choose(chosen, base, kind, name, forgotten)
    for partition in PARTITIONS:
        async for timer_id, _, held in _timers(server, partition):
            if forgotten.names(timer_id) or conversation_of(held) in forgotten.lanes:
                chosen[server.keys.base(partition)].timers.add(timer_id)
    for letter in await dead_letters.read(server, 0, None):
        if letter.conversation in forgotten.lanes:
            chosen[server.keys.base(partition_of(letter.conversation))].letters.add(letter.dead_id)
    gone: Counter[str] = Counter()
    answers = await server.run_at(scripts.FORGET, [(base, each.arguments()) for base, each in chosen.items()])
    held_lanes = [wire.text_of(lane) for lane, *_ in answers if lane]
    if held_lanes:
        raise Conflict(f"{held_lanes[0]} is leased")
    for _, *counts in answers:
        gone.update(dict(zip(_COUNTED, counts, strict=True)))
    return {what: count for what, count in gone.items() if count}


async def timers(server: Server, conversation: str | None) -> list[Timer]:
    """Return the timers with an event of a conversation, or all timers. Unreadable timers are left out."""
    found: list[Timer] = []
    for partition in PARTITIONS:
        async for timer_id, due, held in _timers(server, partition):
            with suppress(ValueError):
                incoming = incoming_from_text(held)
                if conversation in (None, incoming.conversation):
                    found.append(Timer(timer_id=timer_id, due=moment(due), incoming=incoming))
    return found


def _choose(chosen: defaultdict[str, _Chosen], base: str, kind: str, name: str, forgotten: Forgotten) -> None:
    if kind == "seen" and forgotten.names_event(name):
        chosen[base].others.add(f"seen:{name}")
    elif kind not in ("record", "log", "spent", "cell") or not forgotten.names(name):
        return
    elif kind == "record":
        chosen[base].records.add(name)
    elif kind == "log":
        chosen[base].logs.add(name)
    elif kind == "spent":
        chosen[base].counts.add(name)
    else:
        chosen[base].others.add(f"cell:{name}")


async def _names(server: Server) -> AsyncIterator[tuple[str, str, str]]:
    """Yield the named keys: base, kind and name. A key may come twice."""
    cursor = 0
    while True:
        cursor, found = await server.scan_keys(cursor, server.keys.all(), _KEYS, None)
        for key in found:
            if (named := server.keys.named(key)) is not None:
                yield named
        if not cursor:
            return


async def _timers(server: Server, partition: str) -> AsyncIterator[tuple[str, int, bytes]]:
    """Yield the timers of a partition: id, due and event."""
    rank = 0
    while True:
        [page] = await server.run(scripts.TIMERS, [partition], rank, _PAGE)
        for timer_id, due, held in page:
            yield wire.text_of(timer_id), int(due), held
        if len(page) < _PAGE:
            return
        rank += _PAGE
