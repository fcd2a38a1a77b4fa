"""The history of a turn: the genuine lines of the transcript that came with its lease."""

from __future__ import annotations

from gateway.engine.context import EngineContext
from gateway.memory import Transcripts, without_halves
from gateway.pending.lines import LineReader, read_entries, sealed_anew
from gateway.providers.base import ModelMessage
from gateway.store.transaction import Transaction
from gateway.store.types import Lease
from gateway.stored import keys


class HistoryReader:
    """Reads the histories of turns."""

    def __init__(self, context: EngineContext, transcripts: Transcripts) -> None:
        self._context, self._transcripts, self._lines = context, transcripts, LineReader(context.keyring)

    async def read(self, lease: Lease) -> list[ModelMessage]:
        """Return the messages of the transcript that the turn of this lease reads.

        Lines that were put in or changed without the key are left out, and told to the operator. The lines are sealed
        anew if an old key has sealed one of them. Raises Fenced and StoreUnavailable.
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
