"""The sender of outboxes: part by part, in order, with a receipt for each part.

A part is sent, then the receipt is committed. A retry never repeats a part with a receipt. `attempt_state` decides
about a part without a receipt that may have been sent.

A part to an opted-out person becomes a dead letter. A conversation refused by the platform costs a single call: all
other parts of the conversation become dead letters with the first.

The platform is asked about earlier calls of a part: by the received reports, or by a look-up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from channels import (
    Ambiguous,
    CanLookUp,
    CanStream,
    MissingSetting,
    OptedOut,
    Part,
    PlaceRefused,
    Receipt,
    Reply,
    SendError,
    Unavailable,
    Undeliverable,
    Unreachable,
)
from gateway.access.suppression import is_suppressed
from gateway.artifacts import NotKept
from gateway.engine.context import EngineContext
from gateway.engine.delivery import reports
from gateway.engine.delivery.attempt_state import (
    GIVE_UP_AFTER,
    AttemptRecord,
    AttemptState,
    Drop,
    GiveUp,
    PartFacts,
    Remember,
    Send,
    Suppress,
    TakeReceipt,
    Wait,
    Warn,
    plan,
    plan_after_failure,
    refused,
    repeating,
    unanswered,
    warned,
)
from gateway.engine.delivery.links import make_link
from gateway.engine.delivery.outbox import Outbox
from gateway.engine.delivery.outgoing import OutgoingPart
from gateway.engine.delivery.rerouting import next_place
from gateway.engine.leases import HeldLease, shielded_commit
from gateway.engine.retrying import attempts
from gateway.engine.telling import cause_of_part
from gateway.observe.events import DeliveryRetried
from gateway.pending.actions import OutgoingReply
from gateway.pending.seal import SEAL_FAILED
from gateway.store.errors import Fenced
from gateway.store.types import Lease, QueuedPart
from gateway.stored import keys
from gateway.stored.outbox import OutboxItem
from gateway.timing.deadlines import milliseconds_since
from gateway.wording import say

log = logging.getLogger("askfirst.delivery")


class PartSender:
    """Sends the parts of outboxes, each outbox under a lease."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._unwritten: dict[str, Receipt] = {}

    async def run(self, lease: Lease) -> None:
        """Send the parts of the leased outbox, until a part has to wait."""
        try:
            with HeldLease(self._context, lease) as held:
                await _Lane(self._context, lease, self._unwritten, held.make_sure).run()
        except Fenced:
            log.warning("outbox of %s: somebody else has taken over", lease.lane)
        finally:
            self._context.pacing.forget(lease.parts[0].part_id)


class _Lane:
    """An outbox under a lease: asks `plan` about each part, and takes the planned step."""

    def __init__(
        self,
        context: EngineContext,
        lease: Lease,
        unwritten: dict[str, Receipt],
        make_sure: Callable[[], Awaitable[None]],
    ) -> None:
        self._context, self._lease, self._make_sure = context, lease, make_sure
        self._unwritten = unwritten
        """Part id -> a receipt not taken by the store yet. This process does not send the part again."""
        self._outbox = Outbox(context, lease)

    async def run(self) -> None:
        for queued in self._lease.parts:
            if queued.part_id not in self._outbox.gone:
                await self._deliver(AttemptRecord(self._context, self._lease, queued))
            if self._outbox.given_back:
                return

    async def _deliver(self, record: AttemptRecord) -> None:
        """Take a part out of the outbox, by sending or otherwise, or release the lane."""
        queued = record.queued
        if not self._context.is_genuine("part", queued.conversation, queued.body):
            await self._outbox.give_up(record, SEAL_FAILED, forged=True)
            return
        try:
            item = OutboxItem.from_json(queued.body)
            address, part = item.address, item.part
        except ValueError:
            await self._outbox.give_up(record, "it cannot be read")
            return
        channel = self._context.channels.get(address.channel)
        if channel is None:
            await self._outbox.give_up(record, "its channel is off")
            return
        out = OutgoingPart(record=record, item=item, address=address, part=part, channel=channel)
        receipt = self._unwritten.get(queued.part_id)
        if receipt is None:
            if self._is_overtaken(out):
                await self._outbox.drop(queued)
                return
            receipt = await self._receipt_of(out)
            if receipt is None:
                return
            self._unwritten[queued.part_id] = receipt
        await self._outbox.arrived(out, receipt)
        del self._unwritten[queued.part_id]

    def _is_overtaken(self, out: OutgoingPart) -> bool:
        """Return True for an edit if a later edit of the same message waits."""
        edits, since = out.item.edits, out.queued.stamp
        if edits is None or since is None:
            return False
        later = [each for each in self._lease.parts if each.stamp is not None and each.stamp > since]
        return any(
            OutboxItem.from_json(each.body).edits == edits
            and self._context.is_genuine("part", each.conversation, each.body)
            for each in later
        )

    async def _receipt_of(self, out: OutgoingPart) -> Receipt | None:
        """Return the receipt of a part, sent now or before. None if the part stays or leaves without a receipt."""
        state, facts = await self._facts(out)
        while True:
            match plan(state, facts):
                case TakeReceipt(receipt):
                    return receipt
                case GiveUp(reason):
                    await self._outbox.give_up(out.record, reason)
                    return None
                case Drop():
                    await self._outbox.drop(out.queued)
                    return None
                case Remember():
                    state = await out.record.change(unanswered)
                case Warn():
                    await self._warn(out)
                    if self._outbox.given_back:
                        return None
                    state = await out.record.change(warned)
                case Send(repeats):
                    return await self._send(out, repeats=repeats)

    async def _facts(self, out: OutgoingPart) -> tuple[AttemptState, PartFacts]:
        """Read the facts needed by `plan` in this state, and no others.

        A part without `tries` may have been tried. The store counts tries only for the first part of a lease. A failed
        lease may have sent the first parts and failed at this part.
        """
        context, queued = self._context, out.queued
        died = self._outbox.died(queued)
        tried = bool(queued.tries) or (self._lease.tries > 0 and queued is self._lease.parts[0])
        state: AttemptState = await out.record.state() if tried or died else "none"
        absent = False
        if died or state != "none":
            earlier = await find_earlier_call(context, out)
            if earlier.receipt is not None:
                return state, PartFacts(receipt=earlier.receipt)
            absent = earlier.absent
        if out.channel.capabilities.opt_out and await self._has_opted_out(queued):
            return state, PartFacts(opted_out=True)
        if queued.stamp is not None and context.clock.guess() - queued.stamp > GIVE_UP_AFTER:
            return state, PartFacts(too_old=True)
        return state, PartFacts(
            absent=absent,
            worker_died=died,
            settled=self._was_held_up and state == "none" and not died and await self._is_settled(out),
            harmless=out.is_harmless,
            may_repeat=context.bot.in_doubt == "repeat",
        )

    @property
    def _was_held_up(self) -> bool:
        """True if a part of this outbox was tried before. All later parts have waited too."""
        return self._lease.tries > 0 or any(queued.tries for queued in self._lease.parts)

    async def _has_opted_out(self, queued: QueuedPart) -> bool:
        key = keys.key(self._context.store, queued.conversation, keys.opted_out)
        return is_suppressed((await self._context.store.get([key]))[key], queued.part_id)

    async def _is_settled(self, out: OutgoingPart) -> bool:
        """Return True for a prompt without an open action."""
        if not out.item.shows:
            return False
        actions = await self._context.actions(out.queued.conversation)
        return all(action.pending_action_id not in out.item.shows for action in actions.open)

    async def _warn(self, out: OutgoingPart) -> None:
        """Send the warning of a duplicate, unless an earlier call of the warning may have arrived."""
        text = say("may_be_duplicate", out.item.language)
        notes = self._context.parts.render(
            out.queued.conversation,
            out.address,
            [OutgoingReply(reply=Reply(text=text))],
            cause=str(out.item.cause),
            language=out.item.language,
        )
        for number, note in enumerate(notes):
            named = replace(note, part_id=f"{out.queued.part_id}/note/{number}")
            record = AttemptRecord(self._context, self._lease, named)
            if await record.state() == "none":
                await self._deliver(record)
            if self._outbox.given_back:
                return

    async def _send(self, out: OutgoingPart, *, repeats: bool) -> Receipt | None:
        """Send a part when the pace allows. Return the receipt, or None after a failure or for a waiting part."""
        try:
            wait = await self._paced(out)
            link = await self._link(out)
        except asyncio.CancelledError:
            await shielded_commit(self._outbox.give_back("done"))
            raise
        if wait:
            await self._outbox.give_back("done", wait_seconds=wait)
            return None
        await self._make_sure()
        if repeats:
            await out.record.change(repeating)
        return await self._try(out, link)

    async def _paced(self, out: OutgoingPart) -> float:
        """Wait for the pace of the account. Return 0, or the seconds until the place allows a call.

        Waits while the store is unavailable. No call was made yet, so no attempt state is recorded.
        """
        wait = 0.0
        for attempt in attempts(patient=True):
            async with attempt:
                wait = await self._context.pacing.wait(out.queued.part_id, out.channel, out.address)
        return wait

    async def _link(self, out: OutgoingPart) -> str | None:
        """Return a link to the part's file. None for a part without a file, and without a public URL."""
        media, link = out.part.media, None
        if media is not None and self._context.artifacts.public_url is not None:
            for attempt in attempts(patient=True):
                async with attempt:
                    link = await make_link(self._context, out.queued.conversation, media)
        return link

    async def _try(self, out: OutgoingPart, link: str | None) -> Receipt | None:
        """Make the call. Return the receipt, or None after a handled failure."""
        try:
            return await self._call(out, self._opened(out.part, link))
        except NotKept:
            await self._outbox.give_up(out.record, "its file is gone")
        except Ambiguous as error:
            earlier = await look_up(self._context, out)
            if earlier.receipt is not None:
                return earlier.receipt
            await self._failed(out, error)
        except SendError as error:
            await out.record.change(refused)
            await self._failed(out, error)
        except asyncio.CancelledError:
            await shielded_commit(self._failed(out, Ambiguous("stopped while sending")))
            raise
        except Exception as error:  # noqa: BLE001 - a channel that breaks must not hold up the outbox for ever
            await self._failed(out, Ambiguous(type(error).__name__))
        return None

    async def _call(self, out: OutgoingPart, part: Part) -> Receipt:
        channel = out.channel
        began = asyncio.get_running_loop().time()
        try:
            receipt = await self._finished(out, part)
            if receipt is None:
                receipt = await channel.send(out.address, part, key=out.queued.part_id)
        except (Unavailable, Ambiguous) as error:
            self._context.down.add(channel.name)
            if isinstance(error, Unavailable) and error.mend is not None:
                self._log_refusal(channel.name, error.mend)
            raise
        finally:
            out.durations_ms.append(milliseconds_since(began))
        self._context.down.discard(channel.name)
        if channel.name in self._context.refused:
            self._context.refused.discard(channel.name)
            log.warning("%s takes what we send again", channel.name)
        return receipt

    async def _finished(self, out: OutgoingPart, part: Part) -> Receipt | None:
        """Replace a streamed message by the finished part, or take the message away. Return the receipt.

        None without a streamed message, or if the message is gone.
        """
        message_id, channel = out.item.finishes, out.channel
        if message_id is None or not isinstance(channel, CanStream):
            return None
        handle = await channel.stream(out.address, message_ids=[message_id])
        if out.item.takes_away:
            await handle.finish([])
            return Receipt(message_id=None)
        try:
            (receipt,) = await handle.finish([part])
        except (OptedOut, Unreachable):
            raise
        except Undeliverable:
            return None
        return receipt

    def _log_refusal(self, channel: str, mend: MissingSetting) -> None:
        """Log a platform's refusal of our token, once until a call of the channel succeeds again."""
        if channel not in self._context.refused:
            self._context.refused.add(channel)
            log.error("%s rejects our credentials: queued messages are retried for 24 hours. %s", channel, mend)

    def _opened(self, part: Part, link: str | None) -> Part:
        """Return the part with the file opened for sending. Raises NotKept."""
        if part.media is None:
            return part
        return Part(
            call=part.call,
            arguments=part.arguments,
            media=self._context.artifacts.open(part.media, link),
            buttons=part.buttons,
            droppable=part.droppable,
        )

    async def _failed(self, out: OutgoingPart, error: SendError) -> None:
        """Take the step of `plan_after_failure` after this error of a call."""
        queued, edits = out.queued, out.item.edits is not None or out.item.takes_away
        if isinstance(error, PlaceRefused | Unreachable) and not (edits or out.part.droppable):
            try:
                place = await next_place(self._context, out, error)
            except SendError as away:  # the next place may be found later
                error, place = away, None
            if place is not None:
                await self._outbox.move(out, place, error.code)
                return
        match plan_after_failure(
            error,
            droppable=out.part.droppable,
            edits=edits,
            failures=self._lease.tries,
            reports=out.channel.capabilities.reports,
        ):
            case Drop():
                await self._outbox.drop(queued)
            case Suppress(refusal):
                await self._outbox.suppress(refusal)
            case GiveUp(reason):
                await self._outbox.give_up(out.record, reason, nowhere=isinstance(error, PlaceRefused))
            case Wait(seconds=seconds, why=why, failed=failed):
                if isinstance(error, Ambiguous):
                    await out.record.change(unanswered)
                await self._tell_retry(out, why, seconds)
                await self._outbox.give_back("failed" if failed else "done", wait_seconds=seconds)

    async def _tell_retry(self, out: OutgoingPart, why: str, seconds: float) -> None:
        cause, run_id = cause_of_part(out.queued, out.item)
        await self._context.events.tell(
            DeliveryRetried,
            run_id,
            conversation=out.queued.conversation,
            channel=out.channel.name,
            part_id=out.queued.part_id,
            call=out.part.call,
            cause=cause,
            why=why,
            wait_seconds=seconds,
            duration_ms=sum(out.durations_ms[-1:]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierCall:
    """The platform's answer about an earlier call. Neither field is set while the platform cannot answer."""

    receipt: Receipt | None = None
    """The receipt of an arrived call."""
    absent: bool = False
    """No call arrived, by the messages visible on the platform now."""


async def find_earlier_call(context: EngineContext, out: OutgoingPart) -> EarlierCall:
    """Return the answer of the platform's reports about an earlier call of this part, else of a look-up."""
    if out.channel.capabilities.reports:
        message_id = await reports.message_of(context, out.queued)
        if message_id is not None:
            return EarlierCall(receipt=Receipt(message_id=message_id))
    return await look_up(context, out)


async def look_up(context: EngineContext, out: OutgoingPart) -> EarlierCall:
    """Look a part up on the platform, where possible.

    Right after a call `absent` is no proof: the message may show up later.
    """
    channel, queued = out.channel, out.queued
    if not isinstance(channel, CanLookUp) or queued.stamp is None:
        return EarlierCall()
    try:
        found = await channel.look_up(out.address, out.part, key=queued.part_id, since=queued.stamp)
    except SendError:
        return EarlierCall()
    if found is not None and found.message_id is not None and channel.capabilities.reports:
        is_another = await reports.is_known(context, queued.conversation, found.message_id)
        return EarlierCall(absent=True) if is_another else EarlierCall(receipt=found)
    return EarlierCall(receipt=found, absent=found is None)
