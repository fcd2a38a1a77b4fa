"""The end of a turn: one commit of its replies, its transcript and the actions that it asks about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from channels import Address, Reply
from gateway.commands import BUILT_IN
from gateway.engine.calls import post_result
from gateway.engine.context import EngineContext
from gateway.engine.delivery.links import end_links
from gateway.engine.leases import prefetch
from gateway.engine.memory.handing import hand_to_memory
from gateway.engine.retrying import attempts
from gateway.engine.telling import tell_settled
from gateway.engine.turns.batch import Batch
from gateway.engine.turns.commits import append_lines, finish_turn, note_acted, note_streamed
from gateway.engine.turns.follow_ups import accept_follow_ups
from gateway.engine.turns.long_answers import with_files
from gateway.engine.turns.raw_results import keep_raw_results
from gateway.engine.turns.running import RunningTurn
from gateway.engine.turns.traces import keep_trace
from gateway.engine.waiting import hand_to_people
from gateway.memory import RESET
from gateway.memory.window import Cut
from gateway.observe.events import MemoryTrim, SessionSave
from gateway.pending.actions import ConversationActions, OutgoingReply
from gateway.pending.ballots import ask_ballots
from gateway.pending.deciding import withdraw
from gateway.pending.prompting import remind_now_and_then, show_again, show_once_more
from gateway.pending.settling import close_replaced, take_back
from gateway.pending.standing import use
from gateway.store.errors import StoreUnavailable
from gateway.store.transaction import Chained, Transaction
from gateway.store.types import Lease
from gateway.stored import keys
from gateway.tools.pending_action import PendingAction
from gateway.turn import Outcome
from gateway.wording import say


class TurnConcluder:
    """Commits the outcomes of turns, and starts to send their replies."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context

    async def conclude(self, running: RunningTurn, outcome: Outcome, language: str, cuts: Sequence[Cut] = ()) -> None:
        """Commit the outcome of a turn. Retried while the store is unavailable. Raises Fenced.

        `cuts`: how its messages push older ones out of the memory of the conversation.

        If a commit was applied and only its answer was lost, the lease is already given back. The retry then raises
        Fenced.
        """
        at_first, events, place, lines = True, running.events, running.conversation, len(outcome.transcript)
        events.trace.step("session_save", summary=f"{lines} messages")  # the commit stores the trace, so it comes first
        for cut in cuts:
            events.trace.read(MemoryTrim(events.run_id, **cut._asdict()))
        for attempt in attempts(patient=True):
            async with attempt:
                transaction = await self._transaction(running, outcome, language)
                first, at_first = at_first, False
                with running.expenses.booked_by(transaction):
                    await self._commit(transaction, running.address, at_first=first)
                taken, how = running.batch.taken, outcome.stop_reason
                tell_settled(self._context.events, events.run_id, place, taken, transaction, how)
        await self._context.events.tell(SessionSave, events.run_id, session_id=place, message_count=lines)
        for cut in cuts:
            await self._context.events.tell(MemoryTrim, events.run_id, **cut._asdict())

    async def _transaction(self, running: RunningTurn, outcome: Outcome, language: str) -> Transaction:
        context, conversation, batch = self._context, running.conversation, running.batch
        transaction = finish_turn(context, running.lease, batch)
        post_result(transaction, context, conversation, batch.messages, outcome)
        append_lines(transaction, context, running, outcome.transcript)
        if outcome.loop is not None:
            keep_trace(transaction, context, conversation, outcome.loop.trace)
        await accept_follow_ups(transaction, context, running, outcome, language)
        keep_raw_results(transaction, context, conversation, outcome)
        if RESET in outcome.transcript:
            end_links(transaction, context, conversation)
        await hand_to_memory(transaction, context, running, outcome)
        replies = await with_files(context, running.address, outcome.replies, str(running.person), language)
        says = [OutgoingReply(reply=reply) for reply in replies]
        if self._concerns_actions(running, outcome):
            asked = [action.pending_action_id for action in outcome.asked]
            actions = await context.actions(conversation, *asked, *outcome.withdrawn)
            note_acted(actions, batch)
            self._note_streamed(actions, running)
            if outcome.changing is not None:
                actions.index = actions.index.changed_by(str(running.person), outcome.changing)
            if outcome.asked or outcome.unrelated or outcome.withdrawn:
                new = self._ask(actions, running, outcome, language)
                await hand_to_people(transaction, context, running.address, new)
            elif outcome.replies and not _is_built_in(batch):
                person = str(running.person)
                remind_now_and_then(actions, person, actions.open_for(person))
            await context.files.keep_for_questions(actions)
            await actions.write(transaction)
            says += actions.says
        streamed = running.live.message_ids if running.live is not None else ()
        if streamed:
            transaction.deletes.append(keys.streamed(conversation))
        transaction.parts += context.parts.render(
            conversation,
            running.address,
            says,
            cause=running.cause,
            language=language,
            streamed=streamed,
            in_place=running.live is None or not running.live.in_doubt,
        )
        return transaction

    def _concerns_actions(self, running: RunningTurn, outcome: Outcome) -> bool:
        """Return True if the commit must read the conversation's actions."""
        context, lease = self._context, running.lease
        return bool(
            outcome.asked
            or outcome.unrelated
            or outcome.withdrawn
            or (outcome.replies and context.may_be_open(lease))
            or (running.batch.messages and context.message_matters(lease, running.person))
            or (running.live is not None and context.reply_matters(lease))
        )

    def _note_streamed(self, actions: ConversationActions, running: RunningTurn) -> None:
        """Note from when on the text of this turn may have been seen. It is not known of an earlier attempt's."""
        if running.live is None or not actions.index.heeds(actions.now):
            return
        if running.lease.tries:
            note_streamed(actions, running.batch.taken[0].stamp, actions.now)
        elif (since := running.live.since) is not None:
            note_streamed(actions, since, since)

    async def _commit(self, transaction: Transaction, address: Address, *, at_first: bool) -> None:
        """Commit, and send the first part at once if a worker of its channel is free.

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
        """Give back the outbox that a commit without an answer may have leased.

        No worker sends this outbox. If its lease lapsed, the next worker would have to assume that the first part may
        have been sent.
        """
        for attempt in attempts(patient=True):
            async with attempt:
                await self._context.store.give_back(unanswered)

    def _ask(
        self, actions: ConversationActions, running: RunningTurn, outcome: Outcome, language: str
    ) -> Sequence[PendingAction]:
        """Open the actions that the turn asks about, and return the new ones.

        Those that were open before are shown again, or withdrawn.
        """
        asked = {action.pending_action_id: action for action in outcome.asked}
        known = [action_id for action_id in asked if actions.get(action_id) is not None]
        mine = [replace(action, run_id=running.events.run_id) for action in asked.values()]
        fresh = [action for action in mine if action.pending_action_id not in known]
        new = [actions.ask(action) for action in fresh if not self._is_permitted(actions, running, action)]
        person = str(running.person)
        changed = [action for action in new if close_replaced(actions, action)]
        changed += take_back(actions, outcome.withdrawn, person, new)
        intro = say("changed_it", changed[0].language, actions.letters) if changed else None
        for action in new:
            ask_ballots(actions, action, actions.now)
        if asked and self._was_stopped(running):
            withdraw(actions, person, actions.now)
        elif asked:
            others = [action for action in actions.open_for(person) if action.pending_action_id not in asked]
            remind_now_and_then(actions, person, others)  # before the new ones: words and numbers answer the last
            still_open = [found for action_id in known if (found := actions.by_id[action_id]).open]
            show_once_more(actions, still_open, new=new, intro=intro)
        elif self._context.bot.on_unrelated == "drop":
            withdraw(actions, person, actions.now)
            actions.says.insert(0, OutgoingReply(reply=Reply(text=say("dropped", language))))
        else:
            show_again(actions, person)
        return new

    def _is_permitted(self, actions: ConversationActions, running: RunningTurn, action: PendingAction) -> bool:
        """Decide a new action by a standing permission.

        Returns False if it has to be asked. A question that a person has asked again always has to.
        """
        batch = running.batch
        heard = batch.at if batch.messages else None
        return batch.again is None and use(actions, action, self._context.bot.tool_for(action), heard=heard)

    def _was_stopped(self, running: RunningTurn) -> bool:
        """Return True if the person said /stop after these messages. The turn answers them, and asks no question."""
        if running.signals.stopped:
            return True
        read = self._context.prefetched_index(running.lease)
        return read is not None and read.index.has_stopped(str(running.person), running.batch.at)


def _is_built_in(batch: Batch) -> bool:
    """Return True for a command of every bot, whose answer tells of no action."""
    return bool(batch.messages) and batch.messages[0].command in BUILT_IN
