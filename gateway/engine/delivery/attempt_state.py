"""What may have been sent already: a part whose call got no answer, or whose sender died over it.

Where the platform reports on what it took, or lets us look for it, that comes first: what it has is not sent again, and
what it has not is. Where nobody can tell, a prompt is sent again (an old prompt's buttons stay good), and an edit;
anything else once more, after a note that says so, or not at all, as the bot chooses.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

from channels import Address, CanLookUp, Channel, Part, Receipt, Reply, SendError
from gateway.engine.context import EngineContext
from gateway.engine.delivery import reports
from gateway.pending.actions import OutgoingReply
from gateway.store.base import Key, Lease, Put, QueuedPart, Transaction
from gateway.wording import say

__all__ = [
    "REPORTED_WITHIN_SECONDS",
    "Doubt",
    "arises",
    "forget",
    "is_harmless",
    "known",
    "looked_up",
    "note",
    "noted",
    "refused",
    "repeats",
    "sent_before",
]

Doubt: TypeAlias = Literal["sent", "noted", "repeated"]
"""It may have been sent; its person knows that it may come again; it may have come again."""

REPORTED_WITHIN_SECONDS = 10.0
"""A platform that reports says within so many that it took what it did not answer."""
_KEPT_SECONDS = 86400.0
"""As long as a part is tried."""


async def sent_before(
    context: EngineContext, channel: Channel, address: Address, part: Part, queued: QueuedPart
) -> tuple[Receipt | None, bool]:
    """The receipt of an earlier call that was never answered, when the platform knows its message.

    If not, whether it is known that there is none: by then it has had its time to show it.
    """
    if channel.capabilities.reports:
        message_id = await reports.known_as(context, queued)
        if message_id is not None:
            return Receipt(message_id=message_id), False
    return await looked_up(context, channel, address, part, queued)


async def looked_up(
    context: EngineContext, channel: Channel, address: Address, part: Part, queued: QueuedPart
) -> tuple[Receipt | None, bool]:
    """The same, just now: where there is none yet, there may still be one."""
    if not isinstance(channel, CanLookUp) or queued.stamp is None:
        return None, False
    try:
        found = await channel.look_up(address, part, key=queued.part_id, since=queued.stamp)
    except SendError:
        return None, False
    if found is not None and found.message_id is not None and channel.capabilities.reports:
        others = await reports.is_known(context, queued, found.message_id)
        return (None, True) if others else (found, False)
    return found, found is None


async def known(context: EngineContext, queued: QueuedPart) -> Doubt | None:
    """How far the doubt of this part has come; None: there is none. One that is not known counts as the last."""
    key = _key(context, queued)
    match (await context.store.get([key]))[key].value:
        case None:
            return None
        case "sent":
            return "sent"
        case "noted":
            return "noted"
        case _:
            return "repeated"


async def arises(context: EngineContext, lease: Lease, queued: QueuedPart) -> Doubt:
    """It may have been sent, from now on. Raises Fenced when the lease is lost."""
    return await known(context, queued) or await _write(context, lease, queued, "sent")


async def noted(context: EngineContext, lease: Lease, queued: QueuedPart) -> None:
    """Its person knows that it may come twice. Raises Fenced when the lease is lost."""
    await _write(context, lease, queued, "noted")


async def repeats(context: EngineContext, lease: Lease, queued: QueuedPart) -> None:
    """It is about to be sent again, not before: whoever dies earlier has not. Raises Fenced when the lease is lost."""
    await _write(context, lease, queued, "repeated")


async def refused(context: EngineContext, lease: Lease, queued: QueuedPart) -> None:
    """The platform did not take it this time. Raises Fenced when the lease is lost."""
    if await known(context, queued) == "repeated":
        await noted(context, lease, queued)


def forget(context: EngineContext, transaction: Transaction, queued: QueuedPart) -> None:
    """Who has it sent again by hand knows what they do."""
    if queued.tries:
        transaction.deletes.append(_key(context, queued).name)


def note(context: EngineContext, address: Address, queued: QueuedPart) -> list[QueuedPart]:
    """What tells them so."""
    text = say("may_be_duplicate", str(queued.body.get("language", "en")))
    says, cause = [OutgoingReply(reply=Reply(text=text))], str(queued.body.get("cause"))
    parts = context.parts.render(queued.conversation, address, says, cause=cause)
    return [replace(part, part_id=f"{queued.part_id}/note/{number}") for number, part in enumerate(parts)]


def is_harmless(queued: QueuedPart) -> bool:
    """Whether a second one misleads nobody: a question's buttons all stay good, and an edit shows the same."""
    return bool(queued.body["shows"]) or queued.body["edits"] is not None


async def _write(context: EngineContext, lease: Lease, queued: QueuedPart, doubt: Doubt) -> Doubt:
    key = _key(context, queued)
    puts = {key.name: Put(doubt, _KEPT_SECONDS)}
    await context.commit(Transaction(partition=key.partition, lease=lease, puts=puts))
    return doubt


def _key(context: EngineContext, queued: QueuedPart) -> Key:
    return context.key(queued.conversation, f"doubt/{queued.part_id}")
