"""The end of a turn: a single commit with the additions of all features. It may also lease the first reply's outbox."""

from __future__ import annotations

from collections.abc import Sequence

from channels import Address
from gateway.bot.turn import Outcome
from gateway.engine.context import EngineContext
from gateway.engine.leases import prefetch
from gateway.engine.retrying import attempts
from gateway.engine.telling import tell_settled
from gateway.engine.turns.feature import Ending, RunningTurn, TurnFeatures
from gateway.memory.window import Cut
from gateway.observe.events import MemoryTrim, SessionSave
from gateway.pending.actions import OutgoingReply
from gateway.store.errors import StoreUnavailable
from gateway.store.transaction import Chained, Transaction
from gateway.store.types import Lease
from gateway.stored import keys


class TurnConcluder:
    """Makes the final commits of turns."""

    def __init__(self, context: EngineContext, features: TurnFeatures) -> None:
        self._context, self._features = context, features

    async def conclude(self, turn: RunningTurn, outcome: Outcome, language: str, cuts: Sequence[Cut] = ()) -> None:
        """Commit the outcome of a turn, and start to send the replies. Retried while the store is unavailable.

        `cuts`: the older messages pushed out of the memory of the conversation by the messages of the turn.

        If a commit was applied and only the answer was lost, the lease is already given back. The retry then raises
        Fenced.
        """
        at_first, events, place, lines = True, turn.events, turn.conversation, len(outcome.transcript)
        events.trace.step("session_save", summary=f"{lines} messages")  # the commit stores the trace, so it comes first
        for cut in cuts:
            events.trace.read(MemoryTrim(events.run_id, **cut._asdict()))
        for attempt in attempts(patient=True):
            async with attempt:
                ending = new_ending(self._context, turn, language)
                ending.outcome, ending.lines = outcome, outcome.transcript
                ending.says = [OutgoingReply(reply=reply) for reply in outcome.replies]
                transaction = await self._fill(ending)
                first, at_first = at_first, False
                with self._features.committing(turn, transaction):
                    await self._commit(transaction, turn.address, at_first=first)
                self._tell(ending, outcome.stop_reason)
        await self._context.events.tell(SessionSave, events.run_id, session_id=place, message_count=lines)
        for cut in cuts:
            await self._context.events.tell(MemoryTrim, events.run_id, **cut._asdict())

    async def end(self, ending: Ending, how: str) -> None:
        """Commit an ending without an outcome of the bot. `how`: a few words for the operator.

        Raises Conflict, Fenced and StoreUnavailable.
        """
        transaction = await self._fill(ending)
        with self._features.committing(ending.turn, transaction):
            await self._context.commit(transaction)
        self._tell(ending, how)

    async def _fill(self, ending: Ending) -> Transaction:
        """Return the transaction of an ending, with the additions of all features."""
        turn = ending.turn
        await self._features.contribute(ending)
        ending.transaction.parts += self._context.parts.render(
            turn.conversation,
            turn.address,
            ending.says,
            cause=turn.cause,
            language=ending.language,
            streamed=ending.streamed,
            in_place=ending.in_place,
            reader=str(turn.person),
        )
        return ending.transaction

    def _tell(self, ending: Ending, how: str) -> None:
        turn = ending.turn
        tell_settled(
            self._context.events, turn.events.run_id, turn.conversation, turn.batch.taken, ending.transaction, how
        )

    async def _commit(self, transaction: Transaction, address: Address, *, at_first: bool) -> None:
        """Commit, and send the first part at once if a worker of the channel is free.

        `at_first`: this is the first attempt at the commit.
        """
        context, pool = self._context, self._context.sending.get(address.channel)
        if pool is None or pool.is_busy or not transaction.parts:
            await context.commit(transaction)
            return
        first, long = transaction.parts[0], context.lease_seconds
        reads = prefetch(context, "out")
        transaction.chain = Chained(kind="out", lane=first.conversation, prefetch=reads, lease_seconds=long)

        async def committed() -> Lease | None:
            # Ask ahead only if no part of this outbox is being sent: this part would not be next. Ask once: a place in
            # the rate is used up even if the commit fails.
            if at_first and ("out", first.conversation) not in context.held:
                context.pacing.ask_ahead(first.part_id, context.channels[address.channel], address)
            lease = None
            try:
                lease = (await context.commit(transaction)).lease
            except StoreUnavailable:
                context.tasks.start(self._give_back(transaction), "give back")
                raise
            finally:
                if lease is None or lease.parts[0].part_id != first.part_id:
                    context.pacing.forget(first.part_id)
            return lease

        await pool.take(committed)

    async def _give_back(self, unanswered: Transaction) -> None:
        """Give back the outbox possibly leased by a commit without an answer.

        No worker sends this outbox. After a lapse of the lease, the next worker would have to treat the first part as
        possibly sent.
        """
        for attempt in attempts(patient=True):
            async with attempt:
                await self._context.store.give_back(unanswered)


def new_ending(context: EngineContext, turn: RunningTurn, language: str) -> Ending:
    """Return an ending that consumes the events of a turn and gives the lease back."""
    transaction = release(context, turn.lease)
    transaction.consume = [(turn.conversation, waiting.seq) for waiting in turn.batch.taken]
    return Ending(turn=turn, transaction=transaction, language=language)


def release(context: EngineContext, lease: Lease) -> Transaction:
    """Return the writes that give a lease back without a failure. The record of earlier failures is deleted."""
    deletes = [keys.failures(lease.lane)] if lease.tries else []
    return Transaction(partition=lease.partition, lease=lease, finish="done", deletes=deletes)
