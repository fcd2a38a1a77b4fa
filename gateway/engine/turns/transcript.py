"""The transcript: the lines read by a turn as history, and the lines added by the turn."""

from __future__ import annotations

from gateway.engine.context import EngineContext
from gateway.engine.turns.feature import Ending, TurnFeature
from gateway.engine.turns.notes import are_notes
from gateway.memory import RESET, Transcripts, without_halves
from gateway.pending.lines import LineReader, last_place, read_entries, seal_lines, sealed_anew
from gateway.providers.base import ModelMessage
from gateway.store.transaction import Transaction
from gateway.store.types import Lease
from gateway.stored import keys


class TranscriptLines(TurnFeature):
    """Appends the lines of a turn. Notes without other lines are kept for the next turn; see `Notes`.

    In groups and direct turns, each line names the person of the turn, so that forgetting the person finds the line.
    """

    async def contribute(self, ending: Ending) -> None:
        turn, lease, keyring = ending.turn, ending.turn.lease, self.context.keyring
        if are_notes(ending.lines):
            return
        named = {"person": str(turn.person)} if turn.address.group or turn.direct else {}
        told = [{**line, **named} if isinstance(line, dict) and line != RESET else line for line in ending.lines]
        after = last_place(keyring, lease.lane, lease.lines)
        sealed = seal_lines(keyring, lease.lane, told, after=after, now=lease.prefetched.now)
        ending.transaction.appends += [(keys.transcript(lease.lane), line) for line in sealed]


class HistoryReader:
    """Reads the histories of turns."""

    def __init__(self, context: EngineContext, transcripts: Transcripts) -> None:
        self._context, self._transcripts, self._lines = context, transcripts, LineReader(context.keyring)

    async def read(self, lease: Lease) -> list[ModelMessage]:
        """Return the transcript messages for the turn of this lease.

        Lines added or changed without the key are left out, and reported to the operator. The lines are sealed anew if
        any line has the seal of an old key. Raises Fenced and StoreUnavailable.
        """
        read = self._lines.read(lease.lane, lease.lines)
        if read.is_old:
            await self._seal_anew(lease)
        messages = self._transcripts.read(lease.lane, read.lines)
        if read.left_out:
            self._context.forgeries.tell(keys.transcript(lease.lane), lease.lane)
            messages = without_halves(messages)
        return messages

    async def _seal_anew(self, lease: Lease) -> None:
        context = self._context
        log = keys.key(context.store, lease.lane, keys.transcript)
        read = read_entries(context.keyring, lease.lane, await context.store.read(log, last=len(lease.lines)))
        rewrite = sealed_anew(context.keyring, lease.lane, log.name, read)
        await context.commit(Transaction(partition=lease.partition, lease=lease, rewrite=rewrite))
