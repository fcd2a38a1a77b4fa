"""An outbox under its lease, and how its parts leave it: with a receipt, put aside, or not yet.

The commit that deals with the last part also gives the lane back.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, cast

from channels import Address, Json, OptedOut, Part, Receipt, Unreachable
from gateway.engine import doubt, receipts, reports, trail
from gateway.engine.aside import put_aside
from gateway.engine.outgoing import queue
from gateway.engine.patience import wait_for_store, waits
from gateway.engine.shared import Shared
from gateway.engine.visible import seen
from gateway.store.base import Conflict, Lease, Put, QueuedPart, StoreUnavailable, Transaction

__all__ = ["Outbox"]

_MOST_ASIDE = 500
"""Parts that one commit puts aside."""


class Outbox:
    """One conversation's. What is asked of it answers whether the lane is still held, to go on with the next part."""

    def __init__(self, shared: Shared, lease: Lease) -> None:
        self._shared, self._lease = shared, lease
        # Without those that cannot be read no bare word is an answer to what they were of.
        kept = lease.seen[receipts.key(shared, lease.lane)].value if shared.is_shown(lease) else None
        self._receipts = cast("list[Json]", kept or [])

    def died(self, queued: QueuedPart) -> bool:
        """Whether the holder before this one may have been sending it when it died."""
        return self._lease.died and queued is self._lease.parts[0]

    async def arrived(self, queued: QueuedPart, part: Part, address: Address, receipt: Receipt) -> None:
        """The part leaves the outbox, and the windows of what it asks begin."""
        shared, conversation = self._shared, queued.conversation
        edits = cast("str | None", queued.body["edits"])
        capabilities = shared.channels[address.channel].capabilities
        left, noted, unsure = waits(), self._receipts, False
        while True:
            try:
                if unsure and all(queued.part_id != each.part_id for each in await shared.store.outbox(conversation)):
                    break  # the commit was made, and only its answer was lost
                transaction = self._dealt_with(queued)
                if capabilities.reports and receipt.message_id is not None:
                    failed = await reports.receipt(shared, transaction, queued, receipt.message_id)
                    if failed is not None:
                        await self.give_up(queued, failed)
                        return
                if edits is None and not part.droppable and self._matters(queued):
                    noted = await self._note(transaction, queued, address, receipt)
                if capabilities.visible:
                    transaction.appends.append(seen(conversation, part, receipt.message_id, edits))
                await shared.commit(transaction)
            except Conflict:
                continue
            except StoreUnavailable as error:
                unsure = True
                await wait_for_store(left, error)
                continue
            break
        self._receipts = noted
        trail.delivered(queued, part.call)
        shared.feed.publish("delivered", conversation=conversation, call=part.call)

    def _matters(self, queued: QueuedPart) -> bool:
        """Whether when it was shown may decide what a bare word answers: it is a prompt, or comes after one.

        What is asked while this lease is held waits behind what it sends.
        """
        return bool(queued.body["shows"]) or self._shared.was_asked(self._lease)

    async def _note(
        self, transaction: Transaction, queued: QueuedPart, address: Address, receipt: Receipt
    ) -> list[Json]:
        shared, conversation = self._shared, queued.conversation
        shows = cast("list[str]", queued.body["shows"])
        lines, at = await self._line(transaction, queued, shows)
        if shows:
            desk = await shared.desk(conversation, "en")
            desk.shown(shows, receipt.message_id, at)
            desk.write(transaction)
            transaction.parts = queue(
                shared.channels, conversation, address, desk.says, cause=str(queued.body.get("cause"))
            )
        return lines

    async def _line(
        self, transaction: Transaction, queued: QueuedPart, shows: Sequence[str]
    ) -> tuple[list[Json], datetime]:
        """What was shown when, with this message, and when that is; nobody else writes it while this lease is held."""
        at = await self._shared.store.now()
        lines = receipts.added(self._receipts, at, shows, queued=queued.stamp or at)
        transaction.puts[receipts.key(self._shared, queued.conversation).name] = Put(lines, receipts.KEPT_SECONDS)
        return lines, at

    async def drop(self, queued: QueuedPart) -> bool:
        await self._shared.commit(self._dealt_with(queued))
        return True

    async def give_up(self, queued: QueuedPart, reason: str) -> bool:
        """The part is put aside for a person; what comes after it goes on."""
        while True:
            transaction, lines = self._dealt_with(queued), None
            if queued.body["edits"] is None and await doubt.known(self._shared, queued):
                lines, _ = await self._line(transaction, queued, ())  # it may stand there all the same
            await put_aside(self._shared, transaction, [queued], reason)
            try:
                await self._shared.commit(transaction)
            except Conflict:
                continue
            self._receipts = lines or self._receipts
            trail.put_aside(queued, reason)
            return True

    async def fall_silent(self, shut: OptedOut | Unreachable) -> bool:
        """Nothing gets through there: what waits behind this part is not tried, and the lane is given back."""
        shared, lease, reason = self._shared, self._lease, f"not deliverable: {shut.code}"
        while True:
            parts = (await shared.store.outbox(lease.lane))[:_MOST_ASIDE]
            transaction = Transaction(partition=lease.partition, lease=lease, finish="done")
            transaction.sent = [queued.part_id for queued in parts]
            await put_aside(shared, transaction, parts, reason, shut=shut)
            try:
                await shared.commit(transaction)
            except Conflict:
                continue
            for queued in parts:
                trail.put_aside(queued, reason)
            return False

    def _dealt_with(self, queued: QueuedPart) -> Transaction:
        """The part leaves the outbox; with the last one the lane is given back."""
        lease = self._lease
        last = queued is lease.parts[-1]
        return Transaction(
            partition=lease.partition, lease=lease, sent=[queued.part_id], finish="done" if last else None
        )

    async def give_back(self, how: Literal["done", "failed"], *, wait_seconds: float = 0.0) -> None:
        due = await self._shared.store.now() + timedelta(seconds=wait_seconds)
        await self._shared.commit(Transaction(partition=self._lease.partition, lease=self._lease, finish=how, due=due))
