"""Cost of an ask and a yes in one process, on a separate store, measured from within. Prints JSON.

python -m bench.contenders.confirming stash|desk|channel|growth ALONE TOGETHER, with ASKFIRST_STORE in the environment
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import secrets
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from bench.contenders.stash import open_stash
from gateway import ChannelAgent

__all__ = ["AT_ONCE", "CONFIRMED", "Figures", "grown", "measured"]

AT_ONCE = 64
CONFIRMED = 26
"""Number of confirmed actions in a conversation with a long history."""
_WARM_UP = 10
_ASKS_OF_ONE_PERSON = 20
"""A person is asked no more questions in 15 minutes."""

Figures = dict[str, float]
"""Measurement -> seconds each."""
Work = Callable[[int], Awaitable[object]]


async def measured(part: str, store: str, *, alone: int, together: int) -> Figures:
    """Measure asks, each with a yes, one after another and then `AT_ONCE` at a time, each in a separate
    conversation."""
    async with AsyncExitStack() as stack:
        work = await _work(part, store, stack)
        numbers = itertools.count(1)
        await _one_by_one(work, numbers, _WARM_UP)
        figures = await _timed("alone", alone, _one_by_one(work, numbers, alone))
        lines = min(AT_ONCE, together)
        at_once = asyncio.gather(*(_one_by_one(work, numbers, together // lines) for _ in range(lines)))
        return figures | await _timed("together", together // lines * lines, at_once)


async def grown(store: str, *, turns: int, asks: int) -> Figures:
    """Measure a plain reply, and an ask and a yes, in fresh conversations and in a conversation with `CONFIRMED`
    confirmations."""
    async with AsyncExitStack() as stack:
        bot = await _bot(store, stack)
        numbers = itertools.count(1)

        def works(place: str) -> tuple[Work, Work]:
            return (
                lambda number: _plain(bot, place.format(number)),
                lambda number: _ask_and_yes(bot, number, place.format(number)),
            )

        (fresh_reply, fresh_ask), (reply, ask) = works("c{}"), works("old")
        await _one_by_one(fresh_ask, numbers, _WARM_UP)
        await _one_by_one(ask, numbers, CONFIRMED)
        figures = await _timed("fresh reply", turns, _one_by_one(fresh_reply, numbers, turns))
        figures |= await _timed("fresh ask", asks, _one_by_one(fresh_ask, numbers, asks))
        figures |= await _timed("grown reply", turns, _one_by_one(reply, numbers, turns))
        return figures | await _timed("grown ask", asks, _one_by_one(ask, numbers, asks))


async def _timed(name: str, count: int, work: Awaitable[object]) -> Figures:
    cpu, wall = time.process_time(), time.perf_counter()
    await work
    used, took = time.process_time() - cpu, time.perf_counter() - wall
    return {f"{name} cpu": used / count, f"{name} wall": took / count}


async def _one_by_one(work: Work, numbers: itertools.count[int], count: int) -> None:
    for _ in range(count):
        await work(next(numbers))


async def _work(part: str, store: str, stack: AsyncExitStack) -> Work:
    match part:
        case "stash":
            stash = open_stash(store)

            async def stash_and_pop(number: int) -> None:
                token = secrets.token_urlsafe(16)
                await stash.put(token, json.dumps({"tool": "delete_invoice", "args": {"invoice_id": number}}).encode())
                json.loads(await stash.pop(token) or b"")

            return stash_and_pop
        case "desk":
            from bench.contenders.desk import Rules
            from bench.contenders.shop import TOOLS
            from gateway.assembly import open_store

            opened = open_store(store)
            await opened.open()
            stack.push_async_callback(opened.close)
            return Rules(opened, TOOLS[0]).ask_and_yes
        case _:
            bot = await _bot(store, stack)
            return lambda number: _ask_and_yes(bot, number, f"c{number}")


async def _bot(store: str, stack: AsyncExitStack) -> ChannelAgent:
    from bench.contenders.shop import shop

    return await stack.enter_async_context(shop(store))


async def _ask_and_yes(bot: ChannelAgent, number: int, conversation: str) -> None:
    person = f"ana{number // _ASKS_OF_ONE_PERSON}"
    asked = await bot.ask_channel(person, f"delete {number}", conversation_id=conversation)
    [action] = asked.pending
    told = await bot.decide(action.requester, "confirm", action_id=action.pending_action_id)
    if f"Invoice {number} is deleted." not in told.content:
        raise RuntimeError(f"it was not done: {told.content!r}")


async def _plain(bot: ChannelAgent, conversation: str) -> None:
    await bot.ask_channel("ana", "Which ones are open?", conversation_id=conversation)


def main(part: str, alone: int, together: int) -> None:
    store = os.environ["ASKFIRST_STORE"]
    if part == "growth":
        figures = asyncio.run(grown(store, turns=alone, asks=together))
    else:
        figures = asyncio.run(measured(part, store, alone=alone, together=together))
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
