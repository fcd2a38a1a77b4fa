"""Notes: events that the model must know of and that start no turn, which are outcomes of actions and edits.

Notes wait in the mailbox for the next message. After ten minutes without one, a fold, which is a turn without a model,
takes them out of it and keeps the last lines in one record of the conversation. So does a turn that adds nothing else
to the transcript, such as one of a command. The next turn gives them to the model as one message, so that any number of
them pushes no message of a person out of the window.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from channels import Json
from gateway.engine.context import EngineContext
from gateway.engine.turns.batch import Batch
from gateway.providers.base import ModelMessage
from gateway.store.codec import encode
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key, Lease
from gateway.stored import keys

_MOST_LINES = 20
_MOST_CHARACTERS = 1_000
"""The most characters of a line. The rest is left out."""


def gather(context: EngineContext, lease: Lease, batch: Batch) -> None:
    """Join the folded notes and the batch's own in one message of the batch."""
    folded = _folded(context, lease)
    lines = [*folded, *(note.content for note in batch.notes)]
    batch.folded = bool(folded)
    batch.notes = [ModelMessage(role="event", content="\n".join(_last(lines)))] if lines else []


def keep_folded(transaction: Transaction, context: EngineContext, lease: Lease, notes: Sequence[ModelMessage]) -> None:
    """Keep these notes for the turn of the next message, in the place of the folded ones that `gather` has joined."""
    lines: list[Json] = [line for note in notes for line in note.content.split("\n")]
    if lines:
        name = _key(context, lease).name
        kept = context.sealed(name, {"lines": lines[-_MOST_LINES:]})
        transaction.puts[name] = Put(kept, context.retention.transcript_seconds)
        transaction.deletes = [each for each in transaction.deletes if each != name]


def forget_folded(transaction: Transaction, context: EngineContext, lease: Lease, batch: Batch) -> None:
    """Delete the record of the folded notes if the turn of this batch has read it."""
    if batch.folded:
        transaction.deletes.append(_key(context, lease).name)


def is_said(lines: Sequence[str], text: str) -> bool:
    """Return True when a person said exactly this in these lines of a transcript, which are JSON text."""
    said = f'"content":{encode(text)}'
    return any(said in line and '"role":"user"' in line for line in lines)


def _folded(context: EngineContext, lease: Lease) -> list[str]:
    """Return the lines of the folded notes, as they were read with the lease."""
    if not context.has_prefetch(lease):
        return []
    key = _key(context, lease)
    match context.unsealed(key, lease.prefetched[key], lease.lane):
        case {"lines": list(lines)}:
            return [str(line) for line in lines]
    return []


def _key(context: EngineContext, lease: Lease) -> Key:
    return keys.key(context.store, lease.lane, keys.folded_notes)


def _last(lines: Iterable[str]) -> list[str]:
    """Return the last lines, cut to their most characters and without line breaks."""
    flat = [" ".join(line.split("\n")) for line in lines]
    return [line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}…" for line in flat[-_MOST_LINES:]]
