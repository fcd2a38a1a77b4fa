"""A part of an outbox during its delivery."""

from __future__ import annotations

from dataclasses import dataclass, field

from channels import Address, Channel, Part
from gateway.engine.delivery.attempt_state import AttemptRecord
from gateway.store.types import QueuedPart
from gateway.stored.outbox import OutboxItem


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingPart:
    """A part during delivery. `address` and `part` are decoded once from the item."""

    record: AttemptRecord
    item: OutboxItem
    address: Address
    part: Part
    channel: Channel
    durations_ms: list[float] = field(default_factory=list)
    """The durations of this worker's calls for the part."""

    @property
    def queued(self) -> QueuedPart:
        """The part as stored in the outbox."""
        return self.record.queued

    @property
    def is_harmless(self) -> bool:
        """True if a duplicate does no harm: all buttons of a prompt stay valid, and a repeated edit shows the same."""
        return bool(self.item.shows) or self.item.edits is not None or self.item.finishes is not None
