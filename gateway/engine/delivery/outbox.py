"""An outbox under its lease, and how its parts leave it: with a receipt, put aside, or not yet.

The commit that deals with the last part also gives the lane back.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, cast

from channels import Address, OptedOut, Part, Receipt, Unreachable
from gateway.engine import event_log
from gateway.engine.context import EngineContext
from gateway.engine.delivery import attempt_state, reports
from gateway.engine.delivery.dead_letters import dead_letter
from gateway.engine.delivery.visible_log import bot_line
from gateway.engine.parts import address_from_json
from gateway.engine.retrying import attempts
from gateway.pending.index import Showing
from gateway.pending.prompting import note_arrived
from gateway.store.base import Lease, QueuedPart, Transaction

__all__ = ["Outbox"]

_MOST_ASIDE = 500
"""Parts that one commit puts aside."""


class Outbox:
    """One conversation's. What is asked of it answers whether the lane is still held, to go on with the next part."""

    def __init__(self, context: EngineContext, lease: Lease) -> None:
        self._context, self._lease = context, lease

    def died(self, queued: QueuedPart) -> bool:
        """Whether the holder before this one may have been sending it when it died."""
        return self._lease.died and queued is self._lease.parts[0]

    async def arrived(self, queued: QueuedPart, part: Part, address: Address, receipt: Receipt) -> None:
        """The part leaves the outbox, and the windows of what it asks begin."""
        context, conversation = self._context, queued.conversation
        edits = cast("str | None", queued.body["edits"])
        capabilities = context.channels[address.channel].capabilities
        matters = bool(queued.body["shows"]) or context.reply_matters(self._lease)
        for attempt in attempts(patient=True):
            async with attempt:
                if attempt.outcome_unknown and await self._has_left(queued):
                    break  # the commit was made, and only its answer was lost
                transaction = self._dealt_with(queued)
                if capabilities.reports and receipt.message_id is not None:
                    failed = await reports.receipt(context, transaction, queued, receipt.message_id)
                    if failed is not None:
                        await self.give_up(queued, failed)
                        return
                if edits is None and not part.droppable and matters:
                    await self._note(transaction, queued, receipt)
                if capabilities.visible:
                    transaction.appends.append(bot_line(conversation, part, receipt.message_id, edits, _shows(queued)))
                await context.commit(transaction)
        event_log.delivered(queued, part.call)
        context.feed.publish("delivered", conversation=conversation, call=part.call)

    async def _has_left(self, queued: QueuedPart) -> bool:
        waiting = await self._context.store.outbox(queued.conversation)
        return all(queued.part_id != each.part_id for each in waiting)

    async def _note(self, transaction: Transaction, queued: QueuedPart, receipt: Receipt) -> None:
        """Write down that this part has arrived; what it asks begins to count."""
        context, conversation, body = self._context, queued.conversation, queued.body
        shows = _shows(queued)
        actions = await context.actions(conversation, *shows)
        showing = Showing(
            at=actions.now,
            queued=queued.stamp or actions.now,
            shows=frozenset(shows),
            tells=frozenset(cast("list[str]", body.get("tells", []))),
            alone=body.get("alone") is True,
            message_id=receipt.message_id,
            sent_at=receipt.sent_at,
        )
        note_arrived(actions, showing)
        actions.write(transaction)
        address, cause = address_from_json(body["address"]), str(body.get("cause"))
        transaction.parts += context.parts.render(
            conversation, address, actions.says, cause=cause, language=actions.language
        )

    async def drop(self, queued: QueuedPart) -> bool:
        await self._context.commit(self._dealt_with(queued))
        return True

    async def give_up(self, queued: QueuedPart, reason: str, *, forged: bool = False) -> bool:
        """The part is put aside for a person; what comes after it goes on."""
        for attempt in attempts():
            async with attempt:
                transaction = self._dealt_with(queued)
                edit = queued.body.get("edits") is not None
                perhaps_seen = not edit and await attempt_state.known(self._context, queued) is not None
                await dead_letter(
                    transaction, self._context, [queued], reason, perhaps_seen=perhaps_seen, forged=forged
                )
                await self._context.commit(transaction)
        event_log.dead_lettered(queued, reason)
        self._context.sound_undelivered([queued])
        return True

    async def fall_silent(self, shut: OptedOut | Unreachable) -> bool:
        """Nothing gets through there: what waits behind this part is not tried, and the lane is given back."""
        context, lease, reason = self._context, self._lease, f"not deliverable: {shut.code}"
        for attempt in attempts():
            async with attempt:
                parts = (await context.store.outbox(lease.lane))[:_MOST_ASIDE]
                transaction = Transaction(partition=lease.partition, lease=lease, finish="done")
                transaction.sent = [queued.part_id for queued in parts]
                await dead_letter(transaction, context, parts, reason, shut=shut)
                await context.commit(transaction)
                for queued in parts:
                    event_log.dead_lettered(queued, reason, suppressed=True)
                context.sound_undelivered(parts)
        return False

    def _dealt_with(self, queued: QueuedPart) -> Transaction:
        """The part leaves the outbox; with the last one the lane is given back."""
        lease = self._lease
        last = queued is lease.parts[-1]
        return Transaction(
            partition=lease.partition, lease=lease, sent=[queued.part_id], finish="done" if last else None
        )

    async def give_back(self, how: Literal["done", "failed"], *, wait_seconds: float = 0.0) -> None:
        due = await self._context.store.now() + timedelta(seconds=wait_seconds)
        await self._context.commit(Transaction(partition=self._lease.partition, lease=self._lease, finish=how, due=due))


def _shows(queued: QueuedPart) -> list[str]:
    return cast("list[str]", queued.body["shows"])
