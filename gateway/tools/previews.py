"""Previews: their frozen form in the record, and their comparison.

Values are compared as canonical JSON (RFC 8785), never by Python's equality: a tuple equals a list, and 1 is not True.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic_core import to_jsonable_python

from gateway.tools.confirm import Preview
from gateway.tools.pending_action import PendingAction, canonical_json

__all__ = ["LAUNCH_PREVIEW_SECONDS", "asked_with", "changed", "differing", "frozen"]

LAUNCH_PREVIEW_SECONDS = 10.0
"""The timeout of the preview that is made again right before a launch, in seconds."""


def frozen(preview: Preview) -> Preview:
    """Return a copy with only text and plain JSON: a tuple in the precondition becomes a list.

    Raises ValueError when canonical JSON cannot hold it, or when its table has rows other than a name and a value.
    """
    try:
        rows = [(str(name), str(value)) for name, value in preview.table or ()]
    except (TypeError, ValueError):
        raise ValueError("the table of a preview must be rows of a name and a value") from None
    text, table = str(preview.text), rows if preview.table is not None else None
    canonical_json([text, rows, preview.precondition])
    return replace(preview, text=text, table=table, precondition=to_jsonable_python(preview.precondition))


def asked_with(action: PendingAction) -> Preview:
    """Return the preview that an action was asked with."""
    return Preview(text=action.preview, table=action.table, precondition=action.precondition)


def differing(before: Preview, now: Preview) -> list[str]:
    """Return the names of the parts (text, table, precondition) that differ."""
    one, other = _parts(before), _parts(now)
    return [name for name in one if one[name] != other[name]]


def changed(before: Preview, now: Preview) -> list[str]:
    """Return the names of the parts of a preview that changed between the question and the launch.

    Only the precondition counts when either preview has one; otherwise text and table count.
    """
    names = differing(before, now)
    if before.precondition is None and now.precondition is None:
        return names
    return [name for name in names if name == "precondition"]


def _parts(preview: Preview) -> dict[str, bytes]:
    return {
        "text": canonical_json(preview.text),
        "table": canonical_json([list(row) for row in preview.table or ()]),
        "precondition": canonical_json(preview.precondition),
    }
