"""Turns: one at a time for each conversation, over its events in order, with one atomic commit at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from channels import Address, CanStream, Reply
from channels.direct import DirectChannel
from gateway.access.suppression import has_opted_out
from gateway.agent.interceptors import InterceptorFailed
from gateway.engine.calls import post_result
from gateway.engine.context import EngineContext
from gateway.engine.decisions.lane import Decisions
from gateway.engine.leases import HeldLease, shielded_commit
from gateway.engine.memory.records import remembered
from gateway.engine.signs_of_life import SignsOfLife
from gateway.engine.strangers import Strangers
from gateway.engine.telling import event_ids, run_of, tell_settled, was_received
from gateway.engine.turns.asking_again import ask_again
from gateway.engine.turns.attachments import fetch_attachments
from gateway.engine.turns.bare_replies import BareReplyHandler
from gateway.engine.turns.batch import Batch, choose
from gateway.engine.turns.checkpoint import StoreJournal, are_genuine, events_of
from gateway.engine.turns.commits import append_lines, finish_turn, release, turn_owner, write_acted
from gateway.engine.turns.conclusion import TurnConcluder
from gateway.engine.turns.expenses import PersonExpenses
from gateway.engine.turns.failures import AttemptHistory, FailurePolicy
from gateway.engine.turns.history import HistoryReader
from gateway.engine.turns.interception import drop_vetoed_edits, vetoes_of
from gateway.engine.turns.interrupts import SignalInbox
from gateway.engine.turns.live import StreamedText, streamed_text
from gateway.engine.turns.notes import gather, is_said, keep_folded
from gateway.engine.turns.running import RunningTurn, begin_turn, tool_context, turn_input, turn_language
from gateway.engine.turns.shares import TurnShares
from gateway.logs import describe_error
from gateway.memory import Transcripts, to_entries
from gateway.observe.events import SessionLoad, TurnEnd, TurnFailed, TurnStart, milliseconds_since
from gateway.options import WrongOption
from gateway.providers.base import ModelMessage, ProviderError, ProviderFault
from gateway.store.errors import Fenced
from gateway.store.transaction import Transaction
from gateway.store.types import Lease, Snapshot
from gateway.stored import keys
from gateway.turn import ActionProposer, Outcome, Turn, answer_with_model
from gateway.wording import say

log = logging.getLogger("askfirst.turns")

DEADLINE_SECONDS = 60.0
"""The time limit of the model and its tools in one turn."""
_CHANNEL_OFF_SECONDS = 60.0
"""The wait of a turn whose channel is off in this process."""
_MOST_WINDOWS = 5
"""The longest time that messages are collected after the first one, in collect windows."""
_SUSPECT_SECONDS = 1.0
"""The wait of a suspect turn while another suspect one runs in this process."""
_STOPPED = "The person stopped this turn with /stop. It has no answer."


class TurnRunner:
    """Runs the turns of leased conversations."""

    def __init__(
        self, context: EngineContext, decisions: Decisions, *, deadline_seconds: float = DEADLINE_SECONDS
    ) -> None:
        self._context, self._decisions, self._deadline_seconds = context, decisions, deadline_seconds
        self._bare_replies, self._strangers = BareReplyHandler(context), Strangers(context)
        self._failures, self._concluder = FailurePolicy(context), TurnConcluder(context)
        self._life = SignsOfLife(context)
        self._can_stream = {
            name: channel
            for name, channel in context.channels.items()
            if isinstance(channel, CanStream) and channel.capabilities.stream
        }
        self._transcripts = Transcripts(context.bot.agent.memory, context.bot.agent.token_count)
        self._history = HistoryReader(context, self._transcripts)
        self._shares = TurnShares(context.limits.turns, context.channels)
        self._suspect: str | None = None
        """The conversation of the running turn that may kill this process. Other suspect turns wait, so that they do
        not die with it."""

    # ── which turn, and if it may run now ──

    async def run(self, lease: Lease) -> Outcome | None:
        """Run one turn of the conversation of this lease. Returns None when no turn ended.

        The person is told of a failure, and the turn is retried or becomes a dead letter. In a call of the bot's own
        code, the error that ended the turn is raised instead.
        """
        signals = SignalInbox(lease)
        try:
            with HeldLease(self._context, lease, signals.on_signal), contextlib.ExitStack() as share:
                if wait := share.enter_context(self._shares.of_place(lease.lane)):
                    if self._shares.is_page(lease.lane):
                        self._context.reached.note("turns of the web chat", f"turns={self._context.limits.turns}")
                    await self._postpone(lease, wait)
                    return None
                undecided = not lease.steps and any(waiting.pointed for waiting in lease.events)
                if undecided:
                    await self._decisions.decide(lease.lane)
                history = await self._failures.history(lease)
                batch = self._choose(lease, history)
                until = None if lease.tries or lease.steps else await self._collects_until(batch)
                if until is not None or not batch.taken:
                    transaction = release(self._context, lease)
                    transaction.collect_until = until
                    await self._context.commit(transaction)
                    return None
                counts = batch.messages and batch.messages[0].address.channel != DirectChannel.name
                person = str(batch.messages[0].person) if counts else None
                if wait := share.enter_context(self._shares.of_person(person)):
                    await self._postpone(lease, wait)
                    return None
                prefetched = lease.prefetched if self._context.has_prefetch(lease) and not undecided else None
                return await self._run_batch(lease, batch, signals, history, prefetched)
        except Fenced:
            log.warning(
                "turn of %s: the lease is no longer ours: somebody else has taken over, or our commit was applied and "
                "its answer lost",
                lease.lane,
            )
            return None

    def _choose(self, lease: Lease, history: AttemptHistory) -> Batch:
        context = self._context
        read = context.prefetched_index(lease) if len(lease.events) > 1 else None  # a single event joins no other
        return choose(
            lease.events,
            language=context.language(None),
            one=history.one_by_one and not lease.steps,
            begun=bool(lease.tries),
            several=read is not None and len(read.index.open) > 1,
            only=events_of(lease) if are_genuine(context, lease) else (),
            genuine=lambda waiting: context.is_genuine("event", lease.lane, waiting.body),
            is_said=lambda text: is_said(lease.lines, text),
        )

    async def _collects_until(self, batch: Batch) -> datetime | None:
        """Return the time until which this turn waits for more messages; None when it does not wait."""
        window = batch.window(self._context.bot.collect_seconds)
        if not (window and batch.collects and batch.began):
            return None
        until = min(batch.at + window, batch.began + _MOST_WINDOWS * window)
        return until if until > await self._context.store.now() else None

    async def _postpone(self, lease: Lease, seconds: float) -> None:
        """Give the lease back for some seconds. The recorded steps and the history of the attempts stay."""
        if lease.steps or lease.tries:
            await self._failures.hand_back(lease, await self._failures.history(lease), wait_seconds=seconds)
            return
        transaction = release(self._context, lease)
        transaction.due = await self._context.store.now() + timedelta(seconds=seconds)
        await self._context.commit(transaction)

    # ── one attempt, and its failures ──

    async def _run_batch(
        self,
        lease: Lease,
        batch: Batch,
        signals: SignalInbox,
        history: AttemptHistory,
        prefetched: Snapshot | None,
    ) -> Outcome | None:
        context = self._context
        if (reason := self._reason_not_to_run(lease, batch, history)) is not None:
            await self._failures.dead_letter(lease, batch, reason)
            return Outcome(stop_reason="cancelled")
        await drop_vetoed_edits(context, batch)
        gather(context, lease, batch)
        if batch.is_fold:
            return await self._fold(lease, batch)
        address, person = await turn_owner(context, lease.lane, batch)
        if history.suspect:
            if self._suspect is not None:
                await self._failures.hand_back(lease, history, wait_seconds=_SUSPECT_SECONDS)
                return None
            self._suspect = lease.lane
        events = begin_turn(context, batch, address, person)
        expenses = PersonExpenses(context, lease.lane, person, events, continues=lease.tries > 0)
        journal = StoreJournal(context, lease, batch, expenses)
        live = await self._live(lease, batch, address)
        running = RunningTurn(lease, batch, journal, signals, address, person, prefetched, events, expenses, live)
        signals.person = context.turn_of[lease.lane] = str(person)
        await events.tell(
            TurnStart,
            conversation=lease.lane,
            event_ids=event_ids(batch.taken),
            attempt=lease.tries + 1,
            cause=running.cause,
            received=was_received(batch.began_by),
        )
        try:
            return await self._attempt(running, history)
        finally:
            expenses.end()
            context.turn_of.pop(lease.lane, None)
            if self._suspect == lease.lane:
                self._suspect = None

    def _reason_not_to_run(self, lease: Lease, batch: Batch, history: AttemptHistory) -> str | None:
        if batch.unreadable:
            return "an event that this release cannot read"
        if batch.forged:
            return "an event that somebody without the key has made or changed"
        if not are_genuine(self._context, lease):
            return "a checkpoint that somebody without the key has changed"
        return "its turn killed its worker again and again" if history.deadly else None

    async def _attempt(self, running: RunningTurn, history: AttemptHistory) -> Outcome | None:
        """Run a turn, and see to its failure. Raises Fenced, and all errors of a direct turn."""
        context, lease, batch = self._context, running.lease, running.batch
        try:
            return await self._turn(running)
        except Fenced:
            raise
        except asyncio.CancelledError:
            await shielded_commit(self._failures.hand_back(lease, history))
            raise
        except ProviderError as error:
            log.error(
                "the model of %s: %s (turn of %s, run %s, event %s)",
                context.bot.name,
                error,
                lease.lane,
                running.events.run_id,
                running.cause,
            )
            await running.events.tell(TurnFailed, conversation=lease.lane, error=error, why=str(error))
            if running.direct:
                raise
            if isinstance(error, ProviderFault):
                log.error("a turn of %s failed: %s", lease.lane, describe_error(error))
                await self._failures.on_error(lease, batch, history)
            elif error.refusal is not None:
                await self._failures.on_refusal(lease, batch, error.refusal)
            else:
                await self._failures.on_model_down(lease, batch, history)
        except Exception as error:
            # The texts of these two are the gateway's own, and say the remedy. Any other may be a person's.
            why = error if isinstance(error, WrongOption | InterceptorFailed) else describe_error(error)
            log.error("a turn of %s failed: %s", lease.lane, why, extra={"event": running.cause})
            await running.events.tell(TurnFailed, conversation=lease.lane, error=error, why=str(why))
            if running.direct:
                await self._failures.dead_letter(lease, batch, "its turn failed", raised=error)
                raise
            await self._failures.on_error(lease, batch, history)
        return None

    async def _turn(self, running: RunningTurn) -> Outcome | None:
        context, lease, batch = self._context, running.lease, running.batch
        began = asyncio.get_running_loop().time()
        channel = context.channels.get(running.address.channel)
        if channel is None:  # no reply could be sent: the messages stay
            await self._postpone(lease, _CHANNEL_OFF_SECONDS)
            return None
        if channel.capabilities.opt_out and await self._has_opted_out(running):
            return None
        if batch.messages and (answered := await self._bare_replies.take(lease, batch)) is not None:
            return answered
        history = await self._history.read(lease)
        await running.events.tell(SessionLoad, session_id=lease.lane, message_count=len(history))
        language = turn_language(context, running, history)
        if batch.again is not None:
            outcome = await ask_again(
                context,
                lease.lane,
                batch.again,
                person=running.person,
                tool_context=tool_context(context, running, language),
            )
            outcome.transcript = [*to_entries(batch.notes), *outcome.transcript]
        else:
            outcome = await self._run_bot(running, language, history)
            if outcome.stop_reason == "cancelled" and running.signals.stopped:
                outcome.transcript += to_entries([ModelMessage(role="event", content=_STOPPED)])
        trim = self._transcripts.trim(history, outcome.transcript)
        await self._concluder.conclude(running, outcome, language, trim.cuts if trim is not None else ())
        took = milliseconds_since(began)
        await running.events.tell(TurnEnd, conversation=lease.lane, stop_reason=outcome.stop_reason, duration_ms=took)
        return outcome

    async def _fold(self, lease: Lease, batch: Batch) -> Outcome:
        """Take notes that no message followed out of the mailbox. No model is called and no reply is sent."""
        transaction = release(self._context, lease)
        transaction.consume = [(lease.lane, waiting.seq) for waiting in batch.taken]
        keep_folded(transaction, self._context, lease, batch.notes)
        await self._context.commit(transaction)
        return Outcome(stop_reason="answered")

    async def _has_opted_out(self, running: RunningTurn) -> bool:
        """Return True if the person has opted out: the messages are then consumed without an answer.

        A message that opts in again is answered.
        """
        context, lease, batch = self._context, running.lease, running.batch
        if not await has_opted_out(context.store, lease.lane):
            return False
        if any(message.opts_in for message in batch.messages):
            deletes = [keys.opted_out(lease.lane)]
            await context.commit(Transaction(partition=lease.partition, lease=lease, deletes=deletes))
            return False
        transaction = finish_turn(context, lease, batch)
        keep_folded(transaction, context, lease, batch.notes)
        await context.commit(transaction)
        how, run_id = "not answered: they have opted out", running.events.run_id
        tell_settled(context.events, run_id, lease.lane, batch.taken, transaction, how)
        return True

    # ── the bot's own turn ──

    async def _run_bot(self, running: RunningTurn, language: str, history: Sequence[ModelMessage]) -> Outcome:
        context = self._context
        actions = await context.actions(running.conversation, seen=running.prefetched)
        turn = turn_input(context, running, self._strangers, language=language, history=history, actions=actions)
        vetoes = await vetoes_of(context, running, turn)
        passed = [message for place, message in enumerate(turn.messages) if place not in vetoes]
        if vetoes and not passed and not running.batch.resumes:
            outcome = Outcome(stop_reason="vetoed", transcript=to_entries(turn.notes))
        else:
            outcome = await self._answer(running, replace(turn, messages=passed))
        outcome.replies[:0] = [Reply(text=answer) for answer in vetoes.values() if answer]
        return outcome

    async def _answer(self, running: RunningTurn, turn: Turn) -> Outcome:
        """Run a command or the model within the deadline of the turn. Answers to open actions are handled before.

        Raises ProviderError when the model cannot be reached.
        """
        context, bot = self._context, self._context.bot
        deadline = asyncio.timeout(self._deadline_seconds)
        try:
            async with self._signs(running, turn.language), deadline:
                if bot.commands.are_meant(turn):
                    return await bot.commands.answer(turn, greeting=bot.greeting)
                seen = replace(turn.context, attachments=await fetch_attachments(context, turn.messages))
                turn = replace(turn, context=seen, remembered=await remembered(context, turn))
                proposer = ActionProposer(
                    turn, answer_window_seconds=bot.answer_window_seconds, keep_stashed=bot.executors.keep
                )
                return await answer_with_model(turn, bot.agent, proposer, bot.interceptors)
        except TimeoutError:
            if not deadline.expired():
                raise
        except ProviderError as error:
            if running.direct:
                await self._keep_progress(running, turn, error)
            raise
        finally:
            if running.live is not None:
                await running.live.ended()
        return Outcome(
            stop_reason="timeout",
            transcript=to_entries(_progress(running, turn)),
            replies=[Reply(text=say("turn_timeout", turn.language))],
        )

    async def _keep_progress(self, running: RunningTurn, turn: Turn, error: ProviderError) -> None:
        """End a direct turn whose model failed. The next turn continues from its messages, which the transcript
        keeps."""
        context, lease, batch = self._context, running.lease, running.batch
        transaction = finish_turn(context, lease, batch)
        await write_acted(transaction, context, lease, batch)
        append_lines(transaction, context, running, to_entries(_progress(running, turn)))
        post_result(transaction, context, lease.lane, batch.messages, error)
        await context.commit(transaction)

    @contextlib.asynccontextmanager
    async def _signs(self, running: RunningTurn, language: str) -> AsyncIterator[None]:
        """Show during the body that the bot is at work."""
        if running.direct:
            yield
            return
        live, written = running.live, [message.message_id for message in running.batch.messages]
        is_shown = partial(bool, False) if live is None else live.is_shown
        async with (
            self._life.typing(running.address, under=written[-1] if written else None),
            self._life.still_working(
                running.conversation,
                running.address,
                language,
                running.events.run_id,
                is_shown=is_shown,
                decide=self._decisions.decide,
            ),
        ):
            yield

    async def _live(self, lease: Lease, batch: Batch, address: Address) -> StreamedText | None:
        """Return what shows the answer while it is written; None where it comes whole."""
        channel = self._can_stream.get(address.channel)
        if channel is None or not self._context.bot.agent.config.streams_on(address.channel):
            return None
        return await streamed_text(self._context, lease, channel, address, run_of(batch.began_by))


def _progress(running: RunningTurn, turn: Turn) -> list[ModelMessage]:
    """Return the messages of a turn that has no end, for the transcript."""
    return [*turn.notes, *turn.model_messages, *running.journal.messages()]
