"""Notes: events for the model without a turn of their own, namely outcomes of actions and edits.

Notes wait in the mailbox for the next message. After ten minutes without a message, a fold moves the notes to a record
of the conversation and keeps the last lines. A fold is a turn without a model. A turn with no other lines for the
transcript, like the turn of a command, does the same. The next turn gives the notes to the model as a single message.
So any number of notes pushes no message of a person out of the window.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from channels import Json
from gateway.engine.turns.feature import Ending, RunningTurn, TurnFeature
from gateway.memory import from_entries
from gateway.providers.base import ModelMessage
from gateway.store.codec import encode
from gateway.store.transaction import Put
from gateway.store.types import Key, Lease
from gateway.stored import keys

_MOST_LINES = 20
_MOST_CHARACTERS = 1_000
"""The most characters of a line. The rest is left out."""


class Notes(TurnFeature):
    """Gives the folded notes to a turn together with new notes, and keeps the notes of a turn without other lines."""

    reads = (keys.FOLDED_NOTES,)

    async def begin(self, turn: RunningTurn) -> None:
        folded = self._folded(turn.lease)
        lines = [*folded, *(note.content for note in turn.batch.notes)]
        turn.batch.folded = bool(folded)
        turn.batch.notes = [ModelMessage(role="event", content="\n".join(_last(lines)))] if lines else []

    async def contribute(self, ending: Ending) -> None:
        lease, transaction = ending.turn.lease, ending.transaction
        name = self._key(lease).name
        if are_notes(ending.lines) and (notes := from_entries(ending.lines)):
            lines: list[Json] = [line for note in notes for line in note.content.split("\n")]
            kept = self.context.sealed(name, {"lines": lines[-_MOST_LINES:]})
            transaction.puts[name] = Put(kept, self.context.rules.retention.transcript_seconds)
        elif ending.turn.batch.folded:
            transaction.deletes.append(name)

    def _folded(self, lease: Lease) -> list[str]:
        """Return the lines of the folded notes, as read with the lease."""
        if not self.context.has_prefetch(lease):
            return []
        key = self._key(lease)
        match self.context.unsealed(key, lease.prefetched[key], lease.lane):
            case {"lines": list(lines)}:
                return [str(line) for line in lines]
        return []

    def _key(self, lease: Lease) -> Key:
        return keys.key(self.context.store, lease.lane, keys.folded_notes)


def are_notes(lines: Sequence[Json]) -> bool:
    """Return True if a turn has no lines for the transcript except notes.

    Otherwise a row of these turns would fill the lines read by a turn.
    """
    return all(isinstance(line, dict) and line.get("role") == "event" for line in lines)


def is_said(lines: Sequence[str], text: str) -> bool:
    """Return True when a person wrote exactly this text in these transcript lines, given as JSON text."""
    said = f'"content":{encode(text)}'
    return any(said in line and '"role":"user"' in line for line in lines)


def _last(lines: Iterable[str]) -> list[str]:
    """Return the last lines, cut to the most characters and without line breaks."""
    flat = [" ".join(line.split("\n")) for line in lines]
    return [line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}…" for line in flat[-_MOST_LINES:]]
