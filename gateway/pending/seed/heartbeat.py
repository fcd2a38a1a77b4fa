"""The heartbeat record: a process runs the executor of an action just now; see `running`."""

from __future__ import annotations

from datetime import datetime, timedelta

from channels import Json
from gateway.store.codec import micros
from gateway.store.transaction import Put
from gateway.tools.pending_action import PendingAction

__all__ = ["heartbeat_put", "is_alive"]

_ALIVE_SECONDS = 6.0
"""A process without a heartbeat for so long is dead."""
_KEPT_SECONDS = 30 * 86400.0


def heartbeat_put(action: PendingAction, now: datetime) -> Put:
    """Return the record to write now.

    It counts as alive for 6 s. It is kept for longer, so that `sweep_executors` finds the actions of a dead process.
    """
    until = micros(now + timedelta(seconds=_ALIVE_SECONDS))
    return Put({"conversation": action.conversation, "until": until}, _KEPT_SECONDS)


def is_alive(stored: Json, now: datetime) -> bool:
    """Return True if the process that runs the action wrote its heartbeat within the last 6 s."""
    until = stored.get("until") if isinstance(stored, dict) else None
    return isinstance(until, int) and until >= micros(now)
