"""The ids of runs. One that an event began is made from that event, so every process makes the same id."""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

__all__ = ["ACTION", "action_event_id", "new_run_id", "run_id_of"]

ACTION: Final = "action/"
"""The prefix of the id under which an action's end is told, and which its parts have as their cause."""


def run_id_of(conversation: str, event_id: str) -> str:
    """Return the id of the run that this event of a conversation begins: 32 hex digits, as a trace id has.

    A turn that another process takes over has the same id, and so have the parts of its reply.
    """
    return hashlib.sha256(f"{conversation}\n{event_id}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def new_run_id() -> str:
    """Return a random id for a run that no event began: 32 hex digits."""
    return secrets.token_hex(16)


def action_event_id(action_id: str) -> str:
    """Return the id under which the end of an action is told, in place of a platform's event id."""
    return f"{ACTION}{action_id}"
