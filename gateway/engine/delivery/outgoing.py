"""A part in the hands of its sender: as the outbox holds it, as it was read, and its channel."""

from __future__ import annotations

from dataclasses import dataclass, field

from channels import Address, Channel, Part
from gateway.engine.delivery.attempt_record import AttemptRecord
from gateway.store.types import QueuedPart
from gateway.stored.outbox import OutboxItem

__all__ = ["OutgoingPart"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingPart:
    """One part that is being delivered. `address` and `part` are those of the item, decoded once."""

    record: AttemptRecord
    item: OutboxItem
    address: Address
    part: Part
    channel: Channel
    durations_ms: list[float] = field(default_factory=list)
    """The durations of the calls that this worker made of the part."""

    @property
    def queued(self) -> QueuedPart:
        """The part as the outbox holds it."""
        return self.record.queued

    @property
    def is_harmless(self) -> bool:
        """True if a duplicate misleads no one: all buttons of a prompt stay good, and a change of a message shows the
        same."""
        return bool(self.item.shows) or self.item.edits is not None or self.item.finishes is not None
