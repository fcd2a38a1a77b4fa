"""The way out: a conversation's outbox, part by part, in order, each with its receipt.

A part is sent, then its receipt is committed; a retry never repeats what has a receipt. What becomes of a part that may
have been sent without one says `doubt`.

Nothing goes out to who has opted out: it is put aside. Where nothing gets through any more, one part finds out, and all
that waits there is put aside with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import cast

from channels import (
    Address,
    Ambiguous,
    Channel,
    MissingSetting,
    OptedOut,
    Part,
    RateLimited,
    Receipt,
    SendError,
    Unavailable,
    Undeliverable,
    Unreachable,
)
from gateway.access.suppression import is_suppressed, opt_out_key
from gateway.artifacts import NotKept, OfConversation
from gateway.engine import event_log
from gateway.engine.context import EngineContext
from gateway.engine.delivery import attempt_state
from gateway.engine.delivery.links import series_of
from gateway.engine.delivery.outbox import Outbox
from gateway.engine.leases import HeldLease, release_to_newer, shielded_commit
from gateway.engine.parts import address_from_json, part_from_json
from gateway.engine.retrying import attempts
from gateway.store.base import Fenced, Lease, QueuedPart
from gateway.store.form import NewerForm, check_form

__all__ = ["PartSender"]

log = logging.getLogger("askfirst.delivery")

_BACKOFF_SECONDS = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0)
_GIVE_UP_AFTER = timedelta(hours=24)


class PartSender:
    """Works off outboxes."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._unwritten: dict[str, Receipt] = {}

    async def run(self, lease: Lease) -> None:
        """Send what waits in the outbox this lease is for."""
        try:
            with HeldLease(self._context, lease) as held:
                await _Lane(self._context, lease, self._unwritten, held.make_sure).run()
        except NewerForm as newer:
            await self._context.commit(release_to_newer(lease, newer))
        except Fenced:
            log.warning("outbox of %s: somebody else has taken over", lease.lane)
        finally:
            self._context.pacing.forget(lease.parts[0].part_id)


class _Lane:
    """One lease of one outbox: whether, when and how often its parts are sent."""

    def __init__(
        self,
        context: EngineContext,
        lease: Lease,
        unwritten: dict[str, Receipt],
        make_sure: Callable[[], Awaitable[None]],
    ) -> None:
        self._context, self._lease, self._make_sure = context, lease, make_sure
        self._unwritten = unwritten
        """Receipts that the store did not take, by part: this process knows that it need not send those again."""
        self._outbox = Outbox(context, lease)

    async def run(self) -> None:
        for queued in self._lease.parts:
            if not await self._deliver(queued):
                return

    async def _deliver(self, queued: QueuedPart) -> bool:
        """Send one part. False when the lane had to be given back before its end. Raises NewerForm."""
        check_form(queued.body)
        if not self._context.is_genuine("part", queued.conversation, queued.body):
            return await self._outbox.give_up(queued, "it was changed by somebody without the key", forged=True)
        try:
            address, part = address_from_json(queued.body["address"]), part_from_json(queued.body["part"])
        except ValueError:
            return await self._outbox.give_up(queued, "it cannot be read")
        channel = self._context.channels.get(address.channel)
        if channel is None:
            return await self._outbox.give_up(queued, "its channel is off")
        receipt = self._unwritten.get(queued.part_id)
        if receipt is None:
            if self._is_overtaken(queued):
                return await self._outbox.drop(queued)
            sent = await self._sent(channel, address, part, queued)
            if isinstance(sent, bool):
                return sent
            receipt = self._unwritten[queued.part_id] = sent
        await self._outbox.arrived(queued, part, address, receipt)
        del self._unwritten[queued.part_id]
        return True

    def _is_overtaken(self, queued: QueuedPart) -> bool:
        """Return True for an edit when a later one of the same message waits behind it."""
        edits, since = queued.body["edits"], queued.stamp
        if edits is None or since is None:
            return False
        later = [each for each in self._lease.parts if each.stamp is not None and each.stamp > since]
        return any(
            each.body.get("edits") == edits and self._context.is_genuine("part", each.conversation, each.body)
            for each in later
        )

    async def _sent(self, channel: Channel, address: Address, part: Part, queued: QueuedPart) -> Receipt | bool:
        """The receipt of this part, sent now or before; else whether the lane goes on without it."""
        context, died = self._context, self._outbox.died(queued)
        unsure, absent = (await attempt_state.known(context, queued) if queued.tries else None), False
        if died or unsure:
            receipt, absent = await attempt_state.sent_before(context, channel, address, part, queued)
            if receipt is not None:
                return receipt
        if channel.capabilities.opt_out and await self._silenced(queued):
            return await self._outbox.give_up(queued, "not sent: they have opted out")
        if queued.stamp is not None and context.clock.guess() - queued.stamp > _GIVE_UP_AFTER:
            return await self._outbox.give_up(queued, "it waited for too long")
        if died:
            unsure = await attempt_state.arises(context, self._lease, queued)
        if queued.tries and await self._is_late(queued):
            return await self._outbox.drop(queued)
        repeats = bool(unsure) and not absent and not attempt_state.is_harmless(queued)
        if repeats:
            if unsure == "repeated" or context.bot.in_doubt == "drop":
                return await self._outbox.give_up(queued, "it may have been sent")
            if unsure == "sent" and not await self._say_so(queued, address):
                return False
        try:
            wait = await self._paced(channel, address, queued)
            holder = await self._holder(part, queued)
        except asyncio.CancelledError:
            await shielded_commit(self._outbox.give_back("done"))
            raise
        if wait:
            await self._outbox.give_back("done", wait_seconds=wait)
            return False
        await self._make_sure()
        if repeats:
            await attempt_state.repeats(context, self._lease, queued)
        return await self._try(channel, address, part, queued, holder)

    async def _paced(self, channel: Channel, address: Address, queued: QueuedPart) -> float:
        """Until it may be sent; else seconds after which to ask again. Nothing was sent yet: a store that does not
        answer leaves no attempt_state."""
        wait = 0.0
        for attempt in attempts(patient=True):
            async with attempt:
                wait = await self._context.pacing.wait(queued.part_id, channel, address)
        return wait

    async def _holder(self, part: Part, queued: QueuedPart) -> OfConversation | None:
        """Whose the link to its file is; None when it has no file."""
        series = ""
        if part.media is None:
            return None
        for attempt in attempts(patient=True):
            async with attempt:
                series = await series_of(self._context, queued.conversation)
        return OfConversation(queued.conversation, series)

    async def _try(
        self, channel: Channel, address: Address, part: Part, queued: QueuedPart, holder: OfConversation | None
    ) -> Receipt | bool:
        try:
            return await self._send(channel, address, self._opened(part, holder), queued.part_id)
        except NotKept:
            return await self._outbox.give_up(queued, "its file is gone")
        except Ambiguous as error:
            receipt, _ = await attempt_state.looked_up(self._context, channel, address, part, queued)
            return receipt or await self._failed(queued, part, error)
        except SendError as error:
            await attempt_state.refused(self._context, self._lease, queued)
            return await self._failed(queued, part, error)
        except asyncio.CancelledError:
            await shielded_commit(self._failed(queued, part, Ambiguous("stopped while sending")))
            raise
        except Exception as error:  # noqa: BLE001 - a channel that breaks must not hold up the outbox for ever
            return await self._failed(queued, part, Ambiguous(type(error).__name__))

    async def _say_so(self, queued: QueuedPart, address: Address) -> bool:
        """Before it is sent again: that it may be a duplicate, once. False when the lane had to be given back."""
        for part in attempt_state.note(self._context, address, queued):
            if await attempt_state.known(self._context, part) is None and not await self._deliver(part):
                return False
        await attempt_state.noted(self._context, self._lease, queued)
        return True

    async def _silenced(self, queued: QueuedPart) -> bool:
        key = opt_out_key(self._context.store, queued.conversation)
        return is_suppressed((await self._context.store.get([key]))[key], queued.part_id)

    async def _send(self, channel: Channel, address: Address, part: Part, key: str) -> Receipt:
        try:
            receipt = await channel.send(address, part, key=key)
        except (Unavailable, Ambiguous) as error:
            self._context.down.add(channel.name)
            if isinstance(error, Unavailable) and error.mend is not None:
                self._say_refused(channel.name, error.mend)
            raise
        self._context.down.discard(channel.name)
        if channel.name in self._context.refused:
            self._context.refused.discard(channel.name)
            log.warning("%s takes what we send again", channel.name)
        return receipt

    def _say_refused(self, channel: str, mend: MissingSetting) -> None:
        """Once for a channel, until something is taken again: all that waits is refused likewise."""
        if channel not in self._context.refused:
            self._context.refused.add(channel)
            log.error("%s takes nothing from us; what waits is tried again for 24 hours. %s", channel, mend)

    def _opened(self, part: Part, holder: OfConversation | None) -> Part:
        if part.media is None:
            return part
        return Part(
            call=part.call,
            arguments=part.arguments,
            media=self._context.artifacts.open(part.media, holder),
            buttons=part.buttons,
            droppable=part.droppable,
        )

    async def _failed(self, queued: QueuedPart, part: Part, error: SendError) -> bool:
        shut = isinstance(error, OptedOut | Unreachable)
        if part.droppable or (isinstance(error, Undeliverable) and queued.body["edits"] is not None and not shut):
            return await self._outbox.drop(queued)  # a person who deleted a message misses no edit of it
        if isinstance(error, OptedOut | Unreachable):
            return await self._outbox.fall_silent(error)
        if isinstance(error, Undeliverable):
            return await self._outbox.give_up(queued, f"not deliverable: {error.code}")
        if isinstance(error, RateLimited):
            event_log.tried_again(queued, part.call, error.code, error.retry_after_seconds)
            await self._outbox.give_back("done", wait_seconds=error.retry_after_seconds)
            return False
        if isinstance(error, Ambiguous):
            await attempt_state.arises(self._context, self._lease, queued)
        wait = _BACKOFF_SECONDS[min(self._lease.tries, len(_BACKOFF_SECONDS) - 1)]
        channel = self._context.channels[address_from_json(queued.body["address"]).channel]
        if isinstance(error, Ambiguous) and channel.capabilities.reports:
            wait = max(wait, attempt_state.REPORTED_WITHIN_SECONDS)
        event_log.tried_again(queued, part.call, f"{type(error).__name__}: {error.code}", wait)
        await self._outbox.give_back("failed", wait_seconds=wait)
        return False

    async def _is_late(self, queued: QueuedPart) -> bool:
        """Whether it is a prompt that never arrived, of what is settled by now.

        One that may have arrived is sent again, and changed at once: somebody who saw it learns what became of it.
        """
        shows = cast("list[str]", queued.body["shows"])
        if not shows:
            return False
        actions = await self._context.actions(queued.conversation)
        if any(action.pending_action_id in shows for action in actions.open):
            return False
        return await attempt_state.known(self._context, queued) is None
