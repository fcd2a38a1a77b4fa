"""Reading and changing the stored record of an action, as possible with the store but without the key."""

from __future__ import annotations

import json
from typing import Any

from gateway.tools.pending_action import PendingAction

__all__ = ["action_of", "edited"]


def action_of(stored: Any) -> PendingAction:
    """Return the action of a stored record, with or without a valid seal."""
    return PendingAction.from_text(stored["body"])


def edited(stored: Any, **changes: Any) -> Any:
    """Return the stored record with other fields; None leaves a field out."""
    fields = {**json.loads(stored["body"]), **changes}
    return {**stored, "body": json.dumps({name: value for name, value in fields.items() if value is not None})}
