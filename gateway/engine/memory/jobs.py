"""The work of memory lanes, after the reply of a turn: a model reads the new lines of the transcript.

An event of a lane only reports possible work. The record of a memory names the last line read. The commit that consumes
the event writes this record. So a process may die at any step: the next process reads the same lines again, and no line
is left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from channels import Person
from gateway.engine.context import EngineContext
from gateway.engine.leases import HeldLease, shielded_commit
from gateway.engine.memory.filling import MemoryFiller
from gateway.engine.turns.expenses import PersonExpenses
from gateway.engine.turns.traces import keep_trace
from gateway.engine.waiting import keep_waiting
from gateway.logs import describe_error
from gateway.memory import NotedFact
from gateway.observe.runs import run_id_of
from gateway.observe.teller import RunTeller, begin_run
from gateway.pending.seal import SEAL_FAILED
from gateway.privacy.forgetting import forget
from gateway.privacy.scope import NotForgotten
from gateway.providers.base import ProviderError
from gateway.store.embedded import is_embedded
from gateway.store.errors import Fenced, StoreUnavailable
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Lease
from gateway.stored import keys
from gateway.stored.memory_events import FactsNoted, ForgetDue, MemoryDue, MemoryEvent, QuestionWaits, memory_event_of

log = logging.getLogger("askfirst.memory")

_BACKOFF_SECONDS: Final = (30.0, 120.0, 600.0, 3600.0)
"""The waits after consecutive failures. After the last retry the events are consumed. The event of the next turn then
does the work."""
_FORGET_SECONDS: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 120.0, 600.0)
"""The waits before a forgetting is retried, while an answer is unsent, a turn or an action of the person runs, or the
store is unavailable."""
_ANSWER_TRIES: Final = 4
"""The number of tries after which a forgetting no longer waits for the answer to be sent."""


class MemoryRunner:
    """Works the events of memory lanes: at most a quarter of the limit of concurrent turns at once."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self.most = max(1, (context.rules.limits.turns.all or 4) // 4)
        self._room = asyncio.Semaphore(self.most)

    async def run(self, lease: Lease) -> None:
        """Work all events of this lane. After a failure the events stay for a later retry."""
        try:
            with HeldLease(self._context, lease):
                async with self._room:
                    await self._work(lease)
        except Fenced:
            log.warning("the memory lane %s is worked by another worker", lease.lane)

    async def _work(self, lease: Lease) -> None:
        events = self._events(lease)
        transaction = _given_back(lease)
        transaction.consume = [(lease.lane, waiting.seq) for waiting in lease.events]
        facts = [event for event in events if isinstance(event, FactsNoted)]
        due = [event for event in events if isinstance(event, MemoryDue)]
        asked = [event for event in events if isinstance(event, ForgetDue)]
        try:
            if asked:
                await self._forget(lease, asked[0], transaction)
                return
            if facts:
                await self._note(lease, facts, transaction)
            if waits := [event for event in events if isinstance(event, QuestionWaits)]:
                await keep_waiting(transaction, self._context, lease, waits)
            if due:
                await self._fill(lease, due[-1], transaction)
            else:
                await self._context.commit(transaction)
        except asyncio.CancelledError:
            await shielded_commit(self._context.commit(_given_back(lease)))
            raise

    def _events(self, lease: Lease) -> list[MemoryEvent]:
        """Return the genuine events of the lane. Others are consumed without work."""
        found = []
        for waiting in lease.events:
            try:
                if not self._context.keyring.is_genuine("event", lease.lane, waiting.body):
                    raise ValueError(SEAL_FAILED)
                found.append(memory_event_of(waiting.body))
            except ValueError as error:
                log.error("an event of the memory lane %s is dropped: %s", lease.lane, error)
        return found

    async def _note(self, lease: Lease, events: Sequence[FactsNoted], transaction: Transaction) -> None:
        """Add the noted facts to the known facts about the person of this lane."""
        context, knowledge = self._context, self._context.bot.agent.config.knowledge_memory
        if knowledge is None:  # the bot no longer has this memory
            return
        key = keys.key(context.store, lease.lane, keys.knowledge)
        record = (await context.store.get([key]))[key]
        facts = [
            NotedFact(
                content=str(fact.get("content", "")),
                category=str(fact.get("category", "")),
                persistent=fact.get("persistent") is True,
            )
            for event in events
            for fact in event.facts
        ]
        before = context.unsealed(key, record, lease.lane)
        known = context.sealed(key.name, knowledge.added(before, facts, await context.store.now()))
        transaction.puts[key.name] = Put(known, context.rules.retention.transcript_seconds)

    async def _forget(self, lease: Lease, asked: ForgetDue, transaction: Transaction) -> None:
        """Forget a person, after the end of the asking turn and the sending of the answer."""
        context, store = self._context, self._context.store
        seconds = _FORGET_SECONDS[min(lease.tries, len(_FORGET_SECONDS) - 1)]
        try:
            if lease.tries < _ANSWER_TRIES and await store.has_work(asked.conversation):
                raise NotForgotten("the answer is not sent yet")
            await forget(store, context.keyring, context.bot.name, asked.person, context.artifacts)
        except (NotForgotten, StoreUnavailable) as error:
            if lease.tries >= len(_FORGET_SECONDS):
                log.error("a person has asked to be forgotten, which does not succeed so far: %s", error)
            due = await store.now() + timedelta(seconds=seconds)
            again = Transaction(partition=lease.partition, lease=lease, finish="failed", due=due)
            await context.commit(again)
            return
        await context.commit(transaction)
        if is_embedded(store):
            with contextlib.suppress(StoreUnavailable):
                await store.scrub()

    async def _fill(self, lease: Lease, due: MemoryDue, transaction: Transaction) -> None:
        """Fill the memories of a conversation, and commit the filled ones. The expenses are booked in any case."""
        context, events = self._context, self._begun(lease, due)
        person, continues = Person.parse(due.person), lease.tries > 0
        expenses = PersonExpenses(context, due.conversation, person, events, lane=lease.lane, continues=continues)
        filled: Mapping[str, Put] = {}
        failure: Exception | None = None
        try:
            if await expenses.used_up() is None:
                filled, failure = await MemoryFiller(context, due.conversation, events, expenses).fill()
        except Fenced:
            raise
        except Exception as error:  # noqa: BLE001 - a memory must not end the loop of the turns
            failure = error
        if failure is not None:
            transaction = await self._after_failure(lease, failure)
        transaction.puts |= filled
        if filled:
            keep_trace(transaction, context, lease.lane, events.trace.trace("answered"))
        with expenses.booked_by(transaction):
            await context.commit(transaction)
        expenses.end()

    def _begun(self, lease: Lease, due: MemoryDue) -> RunTeller:
        """Return the teller of this work, with the requesting turn as the parent run."""
        context = self._context
        return begin_run(
            context.events,
            run_id_of(lease.lane, due.event_id),
            clock=context.wall_clock,
            parent_run_id=due.run_id,
            metadata={"bot": context.bot.name, "person": context.keyring.pseudonym(due.person)},
        )

    async def _after_failure(self, lease: Lease, error: Exception) -> Transaction:
        """Return the transaction that gives the lane back: for a later retry, or without the events after the last
        retry."""
        why = str(error) if isinstance(error, ProviderError) else describe_error(error)
        if lease.tries >= len(_BACKOFF_SECONDS):
            log.error("the memory lane %s waits for the next turn: %s", lease.lane, why)
            transaction = _given_back(lease)
            transaction.consume = [(lease.lane, waiting.seq) for waiting in lease.events]
            return transaction
        seconds = _BACKOFF_SECONDS[lease.tries]
        log.warning("the memory lane %s is tried again in %.0f s: %s", lease.lane, seconds, why)
        due = await self._context.store.now() + timedelta(seconds=seconds)
        return Transaction(partition=lease.partition, lease=lease, finish="failed", due=due)


def _given_back(lease: Lease) -> Transaction:
    """Return the transaction that gives a lease back at once. The events of the lane stay."""
    return Transaction(partition=lease.partition, lease=lease, finish="done")
