"""The record that says that some process runs an executor just now; see `seed_run`."""

from __future__ import annotations

from datetime import datetime, timedelta

from channels import Json
from gateway.store.base import Put
from gateway.store.codec import micros
from gateway.tools.pending_action import PendingAction

__all__ = ["ALIVE", "alive", "alive_put", "is_alive"]

ALIVE = "alive/"
_ALIVE_SECONDS = 6.0
"""A process that has not said for so long that it runs an executor is dead."""
_KEPT_SECONDS = 30 * 86400.0


def alive(action_id: str) -> str:
    """Return the name of the record that says that some process runs this action."""
    return f"{ALIVE}{action_id}"


def alive_put(action: PendingAction, now: datetime) -> Put:
    """Return that record as it is written now: it holds for a few seconds, and stays until somebody has seen to it."""
    until = micros(now + timedelta(seconds=_ALIVE_SECONDS))
    return Put({"conversation": action.conversation, "until": until}, _KEPT_SECONDS)


def is_alive(stored: Json, now: datetime) -> bool:
    """Return True when a process has said a moment ago that it runs an action."""
    until = stored.get("until") if isinstance(stored, dict) else None
    return isinstance(until, int) and until >= micros(now)
