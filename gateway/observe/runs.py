"""Run ids. The id of a run begun by an event is a hash of the event, so every process computes the same id."""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

ACTION: Final = "action/"
"""The prefix of an action's event id. The messages about the end of the action have this id as their cause."""


def run_id_of(conversation: str, event_id: str) -> str:
    """Return the id of the run begun by this event of a conversation: 32 hex digits, like a trace id.

    A turn taken over by another process keeps the id, and so do the parts of its reply.
    """
    return hashlib.sha256(f"{conversation}\n{event_id}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def new_run_id() -> str:
    """Return a random id for a run without an event: 32 hex digits."""
    return secrets.token_hex(16)


def action_event_id(action_id: str) -> str:
    """Return the event id for the end of an action, in place of a platform's event id."""
    return f"{ACTION}{action_id}"
