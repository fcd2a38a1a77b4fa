"""The way out: a conversation's outbox, part by part, in order, each with its receipt.

A part is sent, then its receipt is committed; a retry never repeats what has a receipt. A first part that an earlier
holder of the lane may have sent without writing a receipt, and a call that got no answer, are `Ambiguous`: prompts are
sent again (an old prompt's buttons stay good), anything else once more.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import cast

from channels import (
    Address,
    Ambiguous,
    Channel,
    Json,
    Part,
    RateLimited,
    Receipt,
    SendError,
    Undeliverable,
)
from gateway.artifacts import NotKept
from gateway.engine.leases import held
from gateway.engine.outgoing import address_from_json, part_from_json, queue
from gateway.engine.shared import Shared
from gateway.engine.visible import seen
from gateway.store.base import Cell, Conflict, Dead, Fenced, Lease, Put, QueuedPart, Transaction

__all__ = ["Delivery", "last_shown"]

log = logging.getLogger("askfirst.delivery")

_BACKOFF_SECONDS = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0)
_GIVE_UP_AFTER = timedelta(hours=24)
_RECEIPTS_KEPT = 10
_RECEIPTS_SECONDS = 86400.0


class Delivery:
    """Works off outboxes."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    async def run(self, lease: Lease) -> None:
        """Send what waits in the outbox this lease is for."""
        try:
            async with held(self._shared, lease):
                for part in lease.parts:
                    if not await self._deliver(lease, part, maybe_sent=lease.died and part is lease.parts[0]):
                        return
                await self._give_back(lease, "done")
        except Fenced:
            log.warning("outbox of %s: somebody else has taken over", lease.lane)

    async def _deliver(self, lease: Lease, queued: QueuedPart, *, maybe_sent: bool) -> bool:
        """Send one part. False when the lane had to be given back."""
        address = address_from_json(queued.body["address"])
        part = part_from_json(queued.body["part"])
        channel = self._shared.channels.get(address.channel)
        if channel is None:
            return await self._give_up(lease, queued, "its channel is off")
        if maybe_sent and not queued.body["shows"] and queued.tries > 1:
            return await self._give_up(lease, queued, "it may have been sent")
        wait = await self._shared.store.take(_cells(channel, address))
        if wait:
            await self._give_back(lease, "done", wait_seconds=wait)
            return False
        try:
            receipt = await channel.send(address, self._opened(part), key=queued.part_id)
        except NotKept:
            return await self._give_up(lease, queued, "its file is gone")
        except SendError as error:
            return await self._failed(lease, queued, part, error)
        await self._receipt(lease, queued, part, receipt)
        return True

    def _opened(self, part: Part) -> Part:
        if part.media is None:
            return part
        return Part(
            call=part.call,
            arguments=part.arguments,
            media=self._shared.artifacts.open(part.media),
            buttons=part.buttons,
            droppable=part.droppable,
        )

    async def _receipt(self, lease: Lease, queued: QueuedPart, part: Part, receipt: Receipt) -> None:
        """The part arrived: it leaves the outbox, and the windows of what it asks begin."""
        shared, conversation = self._shared, queued.conversation
        edits = cast("str | None", queued.body["edits"])
        shows = cast("list[str]", queued.body["shows"])
        address = address_from_json(queued.body["address"])
        while True:
            transaction = Transaction(
                partition=shared.store.partition(conversation), lease=lease, sent=[queued.part_id]
            )
            if edits is None and not part.droppable:
                key = shared.key(conversation, "receipts")
                snapshot = await shared.store.get([key])
                at = snapshot.now
                kept = cast("list[Json]", snapshot[key].value or [])
                line: Json = {"at": at.isoformat(), "shows": cast("Json", shows)}
                transaction.puts[key.name] = Put([*kept, line][-_RECEIPTS_KEPT:], _RECEIPTS_SECONDS)
                if shows:
                    desk = await shared.desk(conversation, "en")
                    desk.shown(shows, receipt.message_id, at)
                    desk.write(transaction)
                    transaction.parts = queue(shared.channels, conversation, address, desk.says)
            if shared.channels[address.channel].capabilities.visible:
                transaction.appends.append(seen(conversation, part, receipt.message_id, edits))
            try:
                await shared.store.commit(transaction)
            except Conflict:
                continue
            shared.feed.publish("delivered", conversation=conversation, call=part.call)
            return

    async def _failed(self, lease: Lease, queued: QueuedPart, part: Part, error: SendError) -> bool:
        log.warning("%s to %s: %s (%s)", part.call, lease.lane, type(error).__name__, error.code)
        match error:
            case RateLimited():
                await self._give_back(lease, "done", wait_seconds=error.retry_after_seconds)
                return False
            case Undeliverable():
                return await self._give_up(lease, queued, f"not deliverable: {error.code}")
            case Ambiguous() if queued.tries > 0 and not queued.body["shows"]:
                return await self._give_up(lease, queued, "it may have been sent")
        now = await self._shared.store.now()
        if part.droppable or (queued.stamp is not None and now - queued.stamp > _GIVE_UP_AFTER):
            return await self._give_up(lease, queued, error.code)
        wait = _BACKOFF_SECONDS[min(lease.tries, len(_BACKOFF_SECONDS) - 1)]
        await self._give_back(lease, "failed", wait_seconds=wait)
        return False

    async def _give_up(self, lease: Lease, queued: QueuedPart, reason: str) -> bool:
        """The part is put aside for a person; what comes after it goes on. What it asked was never asked."""
        shared, conversation = self._shared, queued.conversation
        part = part_from_json(queued.body["part"])
        while True:
            transaction = Transaction(
                partition=shared.store.partition(conversation), lease=lease, sent=[queued.part_id]
            )
            # A message that cannot be changed any more is no loss: what became of the action is said by itself.
            if not part.droppable and queued.body["edits"] is None:
                transaction.dead = [Dead(dead_id=queued.part_id, conversation=conversation, reason=reason, part=queued)]
            shows = cast("list[str]", queued.body["shows"])
            if shows:
                desk = await shared.desk(conversation, "en")
                for action_id in shows:
                    desk.undelivered(action_id, desk.now)
                desk.write(transaction)
            try:
                await shared.store.commit(transaction)
            except Conflict:
                continue
            log.error("a part for %s is put aside: %s", conversation, reason)
            return True

    async def _give_back(self, lease: Lease, how: str, *, wait_seconds: float = 0.0) -> None:
        due = await self._shared.store.now() + timedelta(seconds=wait_seconds) if wait_seconds else None
        await self._shared.store.commit(
            Transaction(partition=lease.partition, lease=lease, finish="failed" if how == "failed" else "done", due=due)
        )


def last_shown(receipts: Json, at: datetime) -> frozenset[str]:
    """The actions that the last message the bot sent before `at` asked for; empty when it was no prompt."""
    lines = [
        line
        for line in cast("list[Mapping[str, Json]]", receipts or [])
        if datetime.fromisoformat(str(line["at"])) <= at
    ]
    return frozenset(cast("list[str]", lines[-1]["shows"])) if lines else frozenset()


def _cells(channel: Channel, address: Address) -> list[Cell]:
    """What a platform lets us send, as rates shared by every instance."""
    pace, account = channel.capabilities.pace, f"{address.channel}:{address.account}"
    cells = []
    if pace.account_per_second is not None:
        cells.append(Cell(name=f"pace/{account}", burst=pace.account_per_second, period_seconds=1.0))
    if address.group and pace.group_per_minute is not None:
        cells.append(Cell(name=f"pace/{address}", burst=pace.group_per_minute, period_seconds=60.0))
    elif pace.place_per_second is not None:
        burst = max(pace.place_per_second, 3.0)
        cells.append(Cell(name=f"pace/{address}", burst=burst, period_seconds=burst / pace.place_per_second))
    return cells
