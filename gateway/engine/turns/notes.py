"""Notes: what the model has to know of, and nobody has to answer: outcomes of actions, edits of earlier messages.

They wait in the mailbox for the next message. Where nobody writes for ten minutes a turn without a model, a fold, takes
them out of it and keeps the last lines in one record of the conversation. The next turn tells them in one message, so
that however many there were, they push no words of people out of the window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from channels import Json, MessageEdited
from gateway.engine.context import EngineContext
from gateway.engine.turns.batch import Batch
from gateway.providers.base import ModelMessage
from gateway.store.base import Lease, Put, Transaction
from gateway.store.codec import encode
from gateway.store.form import check_form

__all__ = ["NOTES", "forget_folded", "gather", "is_note", "is_said", "keep_folded"]

NOTES = "notes"
"""The record of a conversation's folded notes; a turn reads it with its lease."""
_MOST_LINES = 20
_MOST_CHARACTERS = 1_000
"""Of each line, with what follows left out."""


def gather(context: EngineContext, lease: Lease, batch: Batch) -> None:
    """Make one message of what was folded before and what this batch brings. Raises NewerForm."""
    folded = _folded(context, lease)
    lines = [*folded, *(note.content for note in batch.notes)]
    batch.folded = bool(folded)
    batch.notes = [ModelMessage(role="event", content="\n".join(_last(lines)))] if lines else []


def keep_folded(transaction: Transaction, context: EngineContext, lease: Lease, batch: Batch) -> None:
    """Keep the notes of this batch for the turn of the next message."""
    lines: list[Json] = [line for note in batch.notes for line in note.content.split("\n")]
    transaction.puts[context.key(lease.lane, NOTES).name] = Put({"lines": lines[-_MOST_LINES:]})


def forget_folded(transaction: Transaction, context: EngineContext, lease: Lease, batch: Batch) -> None:
    """Drop the record of what this batch's turn has taken over."""
    if batch.folded:
        transaction.deletes.append(context.key(lease.lane, NOTES).name)


def is_note(body: Mapping[str, Json]) -> bool:
    """Return True for the body of an event that wakes nobody."""
    return body.get("kind") == MessageEdited.__name__ or (body.get("kind") == "settled" and not body.get("resume"))


def is_said(lines: Sequence[str], text: str) -> bool:
    """Return True when a person said exactly this in these lines of a transcript, which are JSON text."""
    said = f'"content":{encode(text)}'
    return any(said in line and '"role":"user"' in line for line in lines)


def _folded(context: EngineContext, lease: Lease) -> list[str]:
    if not context.has_prefetch(lease):
        return []
    value = lease.prefetched[context.key(lease.lane, NOTES)].value
    check_form(value)
    return cast("list[str]", value["lines"]) if isinstance(value, dict) else []


def _last(lines: Iterable[str]) -> list[str]:
    """Return the last of them on a line each, none of them long."""
    flat = [" ".join(line.split("\n")) for line in lines]
    return [line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}…" for line in flat[-_MOST_LINES:]]
