"""Timers of a Redis store: the events of due timers are accepted."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from gateway.store.codec import incoming_from_text, moment
from gateway.store.redis import scripts, wire
from gateway.store.redis.connection import Server
from gateway.store.redis.keys import PARTITIONS

log = logging.getLogger("askfirst.store")

_TIMERS: Final = 500
"""The most timers of a partition read in a call."""


class RedisTimers:
    """Timers of all partitions, and the regular checks of the server."""

    def __init__(self, partition: Callable[[str], str]) -> None:
        self._partition = partition
        self._no_decision = (-math.inf, 0)
        """The last moment without a pending decision (time.monotonic()), and the clock's offset then."""

    def had_no_decision(self, within_seconds: float, offset: int) -> bool:
        """Return True if no decision was pending within the last seconds, by a clock with the same offset."""
        at, then = self._no_decision
        return then == offset and time.monotonic() - at < within_seconds

    async def run(self, server: Server) -> float | None:
        """Accept the events of due timers. Return the seconds to the next timer, or None.

        The call also looks for lost data, follows the server's clock and deletes expired records.
        """
        await server.look_for_losses()
        await server.keep_clock()
        began = time.monotonic(), server.offset
        answers = await server.run(scripts.DUE_TIMERS, PARTITIONS, _TIMERS)
        if not any(pointed for *_, pointed in answers):
            self._no_decision = began
        for partition, (timers, *_) in zip(PARTITIONS, answers, strict=True):
            if timers:
                await self._fire(server, partition, timers)
        return min((wait / 1_000_000 for _, wait, _ in answers if wait >= 0), default=None)

    async def fire(self, server: Server, partition: str) -> None:
        """Accept the events of a partition's due timers, as after a commit with handed over events."""
        [[timers, *_]] = await server.run(scripts.DUE_TIMERS, [partition], _TIMERS)
        if timers:
            await self._fire(server, partition, timers)

    async def _fire(self, server: Server, partition: str, timers: Sequence[tuple[bytes, bytes, bytes]]) -> None:
        sent: list[Any] = [len(timers)]
        for timer_id, due, held in timers:
            sent += [timer_id, due, held]
            try:
                event = replace(incoming_from_text(held), stamp=moment(int(due)))
            except ValueError:
                log.error("timer %s cannot be read, and was removed", wire.text_of(timer_id))
                sent.append(0)
                continue
            if self._partition(event.conversation) == partition:
                sent += [1, *wire.event_arguments(event)]
            else:  # stored in its own partition first, with an id of the timer, so that a repeat is a twin
                once = f"timer:{partition}:{wire.text_of(timer_id)}:{int(due)}"
                event = replace(event, event_ids=(*event.event_ids, once), refusable=False)
                alone = [0, 0, 0, 1, 1, *wire.event_arguments(event)]
                await server.run(scripts.ACCEPT, [self._partition(event.conversation)], *alone)
                sent.append(0)
        await server.run(scripts.FIRE_TIMERS, [partition], *sent)
