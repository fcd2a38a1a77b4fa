"""Reading and changing what is stored of an action, as somebody with the store but without the key could."""

from __future__ import annotations

import json
from typing import Any

from gateway.tools.pending_action import PendingAction

__all__ = ["action_of", "edited"]


def action_of(stored: Any) -> PendingAction:
    """The action of a stored record, whether its seal holds or not."""
    return PendingAction.from_text(stored["body"])


def edited(stored: Any, **changes: Any) -> Any:
    """The stored record with other fields; None leaves a field out."""
    fields = {**json.loads(stored["body"]), **changes}
    return {**stored, "body": json.dumps({name: value for name, value in fields.items() if value is not None})}
