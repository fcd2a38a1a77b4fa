"""The stored attempt state: read at most once a part, and each change committed under the lease of the outbox."""

from __future__ import annotations

from collections.abc import Callable

from gateway.engine.context import EngineContext
from gateway.engine.delivery.attempt_state import AttemptState, state_from_json
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key, Lease, QueuedPart
from gateway.stored import keys

__all__ = ["AttemptRecord", "forget"]

_KEPT_SECONDS = 86400.0
"""As long as a part is tried."""


class AttemptRecord:
    """The attempt state of one part, for as long as one worker delivers it."""

    def __init__(self, context: EngineContext, lease: Lease, queued: QueuedPart) -> None:
        self._context, self._lease, self.queued = context, lease, queued
        self._state: AttemptState | None = None

    async def state(self) -> AttemptState:
        """Return the state, which the first call reads from the store."""
        if self._state is None:
            key = _key(self._context, self.queued)
            self._state = state_from_json((await self._context.store.get([key]))[key].value)
        return self._state

    async def change(self, event: Callable[[AttemptState], AttemptState]) -> AttemptState:
        """Commit the state that the event leads to, in a transaction of its own, and return it.

        Without a change there is no commit. Raises Fenced when the lease is lost.
        """
        before = await self.state()
        after = event(before)
        if after != before:
            key = _key(self._context, self.queued)
            puts = {key.name: Put(after, _KEPT_SECONDS)}
            await self._context.commit(Transaction(partition=key.partition, lease=self._lease, puts=puts))
            self._state = after
        return after


def forget(transaction: Transaction, context: EngineContext, queued: QueuedPart) -> None:
    """Delete the state of a dead letter: an operator that replays it accepts a duplicate."""
    transaction.deletes.append(_key(context, queued).name)


def _key(context: EngineContext, queued: QueuedPart) -> Key:
    return keys.key(context.store, queued.conversation, keys.attempt_state, queued.part_id)
