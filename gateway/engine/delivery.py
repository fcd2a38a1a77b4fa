"""The way out: a conversation's outbox, part by part, in order, each with its receipt.

A part is sent, then its receipt is committed; a retry never repeats what has a receipt. A part that an earlier holder
of the lane may have sent without writing a receipt, and a call that got no answer, are in doubt: prompts are sent again
(an old prompt's buttons stay good), anything else once more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal, cast

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
from gateway.store.base import Cell, Conflict, Dead, Fenced, Key, Lease, Put, QueuedPart, Transaction

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
        self._unwritten: dict[str, Receipt] = {}

    async def run(self, lease: Lease) -> None:
        """Send what waits in the outbox this lease is for."""
        try:
            async with held(self._shared, lease):
                await _Lane(self._shared, lease, self._unwritten).run()
        except Fenced:
            log.warning("outbox of %s: somebody else has taken over", lease.lane)


class _Lane:
    """One lease of one outbox. The commit that deals with its last part also gives the lane back."""

    def __init__(self, shared: Shared, lease: Lease, unwritten: dict[str, Receipt]) -> None:
        self._shared, self._lease = shared, lease
        self._unwritten = unwritten
        """Receipts that the store did not take, by part: this process knows that it need not send those again."""
        self._receipts: list[Json] | None = None

    async def run(self) -> None:
        for queued in self._lease.parts:
            if not await self._deliver(queued):
                return

    async def _deliver(self, queued: QueuedPart) -> bool:
        """Send one part. False when the lane had to be given back before its end."""
        try:
            address, part = address_from_json(queued.body["address"]), part_from_json(queued.body["part"])
        except ValueError:
            return await self._give_up(queued, "it cannot be read")
        channel = self._shared.channels.get(address.channel)
        if channel is None:
            return await self._give_up(queued, "its channel is off")
        receipt = self._unwritten.get(queued.part_id)
        if receipt is None:
            if self._lease.died and queued is self._lease.parts[0] and not await self._may_repeat(queued):
                return await self._give_up(queued, "it may have been sent")
            if queued.tries and await self._is_late(queued):
                return await self._drop(queued)
            if wait := await self._pace(channel, address):
                await self._give_back("done", wait_seconds=wait)
                return False
            try:
                receipt = await channel.send(address, self._opened(part), key=queued.part_id)
            except NotKept:
                return await self._give_up(queued, "its file is gone")
            except SendError as error:
                return await self._failed(queued, part, error)
            except asyncio.CancelledError:
                await asyncio.shield(self._failed(queued, part, Ambiguous("stopped while sending")))
                raise
            except Exception as error:  # noqa: BLE001 - a channel that breaks must not hold up the outbox for ever
                return await self._failed(queued, part, Ambiguous(type(error).__name__))
        self._unwritten[queued.part_id] = receipt
        await self._arrived(queued, part, address, receipt)
        del self._unwritten[queued.part_id]
        return True

    async def _pace(self, channel: Channel, address: Address) -> float:
        cells = _cells(channel, address)
        return await self._shared.store.take(cells) if cells else 0.0

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

    # ── it arrived ──

    async def _arrived(self, queued: QueuedPart, part: Part, address: Address, receipt: Receipt) -> None:
        """The part leaves the outbox, and the windows of what it asks begin."""
        shared, conversation = self._shared, queued.conversation
        edits = cast("str | None", queued.body["edits"])
        while True:
            transaction = self._dealt_with(queued)
            receipts = None
            if edits is None and not part.droppable:
                receipts = await self._note(transaction, queued, address, receipt)
            if shared.channels[address.channel].capabilities.visible:
                transaction.appends.append(seen(conversation, part, receipt.message_id, edits))
            try:
                await shared.store.commit(transaction)
            except Conflict:
                continue
            self._receipts = receipts or self._receipts
            shared.feed.publish("delivered", conversation=conversation, call=part.call)
            return

    async def _note(
        self, transaction: Transaction, queued: QueuedPart, address: Address, receipt: Receipt
    ) -> list[Json]:
        """What was shown when; nobody else writes it while this lease is held."""
        shared, conversation = self._shared, queued.conversation
        key, shows = shared.key(conversation, "receipts"), cast("list[str]", queued.body["shows"])
        if self._receipts is None:
            snapshot = await shared.store.get([key])
            self._receipts, at = cast("list[Json]", snapshot[key].value or []), snapshot.now
        else:
            at = await shared.store.now()
        if shows:
            desk = await shared.desk(conversation, "en")
            desk.shown(shows, receipt.message_id, at)
            desk.write(transaction)
            transaction.parts = queue(shared.channels, conversation, address, desk.says)
        line: Json = {"at": at.isoformat(), "shows": cast("Json", shows)}
        receipts = [*self._receipts, line][-_RECEIPTS_KEPT:]
        transaction.puts[key.name] = Put(receipts, _RECEIPTS_SECONDS)
        return receipts

    # ── it did not ──

    async def _failed(self, queued: QueuedPart, part: Part, error: SendError) -> bool:
        log.warning("%s to %s: %s (%s)", part.call, self._lease.lane, type(error).__name__, error.code)
        if part.droppable or (isinstance(error, Undeliverable) and queued.body["edits"] is not None):
            return await self._drop(queued)  # a person who deleted a message misses no edit of it
        if isinstance(error, Undeliverable):
            return await self._give_up(queued, f"not deliverable: {error.code}")
        if isinstance(error, RateLimited):
            await self._give_back("done", wait_seconds=error.retry_after_seconds)
            return False
        if isinstance(error, Ambiguous) and not await self._may_repeat(queued):
            return await self._give_up(queued, "it may have been sent")
        if queued.stamp is not None and await self._shared.store.now() - queued.stamp > _GIVE_UP_AFTER:
            return await self._give_up(queued, error.code)
        wait = _BACKOFF_SECONDS[min(self._lease.tries, len(_BACKOFF_SECONDS) - 1)]
        await self._give_back("failed", wait_seconds=wait)
        return False

    async def _may_repeat(self, queued: QueuedPart) -> bool:
        """Whether what may have been sent may be sent again: a prompt always, anything else after its first doubt."""
        if await self._in_doubt(queued):
            return bool(queued.body["shows"])
        key, doubt = self._doubt(queued), Put(True, _GIVE_UP_AFTER.total_seconds())
        transaction = Transaction(partition=key.partition, lease=self._lease, puts={key.name: doubt})
        await self._shared.store.commit(transaction)
        return True

    async def _in_doubt(self, queued: QueuedPart) -> bool:
        """Whether it may have been sent before."""
        key = self._doubt(queued)
        return (await self._shared.store.get([key]))[key].version > 0

    def _doubt(self, queued: QueuedPart) -> Key:
        return self._shared.key(queued.conversation, f"doubt/{queued.part_id}")

    async def _is_late(self, queued: QueuedPart) -> bool:
        """Whether it is a prompt that never arrived, of what is settled by now.

        One that may have arrived is sent again, and changed at once: somebody who saw it learns what became of it.
        """
        shows = cast("list[str]", queued.body["shows"])
        if not shows:
            return False
        desk = await self._shared.desk(queued.conversation, "en")
        return not any(action.pending_action_id in shows for action in desk.open) and not await self._in_doubt(queued)

    async def _drop(self, queued: QueuedPart) -> bool:
        await self._shared.store.commit(self._dealt_with(queued))
        return True

    async def _give_up(self, queued: QueuedPart, reason: str) -> bool:
        """The part is put aside for a person; what comes after it goes on. What it asked was never asked."""
        shared, conversation = self._shared, queued.conversation
        while True:
            transaction = self._dealt_with(queued)
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

    def _dealt_with(self, queued: QueuedPart) -> Transaction:
        """The part leaves the outbox; with the last one the lane is given back."""
        lease = self._lease
        last = queued is lease.parts[-1]
        return Transaction(
            partition=lease.partition, lease=lease, sent=[queued.part_id], finish="done" if last else None
        )

    async def _give_back(self, how: Literal["done", "failed"], *, wait_seconds: float) -> None:
        due = await self._shared.store.now() + timedelta(seconds=wait_seconds)
        await self._shared.store.commit(
            Transaction(partition=self._lease.partition, lease=self._lease, finish=how, due=due)
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
    """What a platform lets us send, as rates shared by every instance; all threads of a place share its own."""
    pace, account = channel.capabilities.pace, f"{address.channel}:{address.account}"
    place = f"pace/{account}:{address.place}"
    cells = []
    if pace.account_per_second is not None:
        cells.append(Cell(name=f"pace/{account}", burst=pace.account_per_second, period_seconds=1.0))
    if address.group and pace.group_per_minute is not None:
        cells.append(Cell(name=place, burst=pace.group_per_minute, period_seconds=60.0))
    elif pace.place_per_second is not None:
        burst = max(pace.place_per_second, 3.0)
        cells.append(Cell(name=place, burst=burst, period_seconds=burst / pace.place_per_second))
    return cells
