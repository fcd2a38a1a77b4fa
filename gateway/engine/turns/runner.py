"""Turns: one at a time for each conversation, over the events in order, with a single atomic commit at the end.

The way of a turn: lease, batch, begin of the features, the features' changes to the input, the bot, and a commit with
the contributions of all features.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from functools import partial

from channels import Reply
from channels.direct import DirectChannel
from channels.formatting import finished
from gateway.access.suppression import has_opted_out
from gateway.agent.interceptors import InterceptorFailed
from gateway.bot.turn import ActionProposer, Outcome, Turn, answer_with_model
from gateway.config.options import WrongOption
from gateway.engine.context import EngineContext
from gateway.engine.decisions.lane import Decisions
from gateway.engine.leases import HeldLease, shielded_commit
from gateway.engine.signs_of_life import SignsOfLife
from gateway.engine.strangers import Strangers
from gateway.engine.telling import event_ids, was_received
from gateway.engine.turns.asking_again import ask_again
from gateway.engine.turns.bare_replies import BareReplyHandler
from gateway.engine.turns.batch import Batch, choose
from gateway.engine.turns.checkpoint import StoreJournal, are_genuine, events_of
from gateway.engine.turns.conclusion import TurnConcluder, new_ending, release
from gateway.engine.turns.failures import AttemptHistory, FailurePolicy
from gateway.engine.turns.feature import RunningTurn, TurnFeatures
from gateway.engine.turns.features import make_features
from gateway.engine.turns.interrupts import SignalInbox
from gateway.engine.turns.notes import is_said
from gateway.engine.turns.running import open_turn, tool_context, turn_input, turn_language
from gateway.engine.turns.shares import TurnShares
from gateway.engine.turns.transcript import HistoryReader
from gateway.logs import describe_error
from gateway.memory import Transcripts, to_entries
from gateway.observe.events import SessionLoad, TurnEnd, TurnFailed, TurnStart
from gateway.pending.seal import SEAL_FAILED
from gateway.providers.base import ModelMessage, ProviderError, ProviderFault
from gateway.store.errors import Fenced
from gateway.store.transaction import Transaction
from gateway.store.types import Lease
from gateway.stored import keys
from gateway.timing.deadlines import milliseconds_since
from gateway.wording import say

log = logging.getLogger("askfirst.turns")

DEADLINE_SECONDS = 60.0
"""The time limit of the model and its tools in one turn."""
_CHANNEL_OFF_SECONDS = 60.0
"""The wait of a turn while its channel is off in this process."""
_MOST_WINDOWS = 5
"""The longest time of collecting messages after the first message, in collect windows."""
_SUSPECT_SECONDS = 1.0
"""The wait of a suspect turn while another suspect turn runs in this process."""
_STOPPED = "The person stopped this turn with /stop. It has no answer."
_ANSWER_STOPPED = "The person stopped the answer here. What was to follow is not wanted."


class TurnRunner:
    """Runs the turns of leased conversations."""

    def __init__(
        self, context: EngineContext, decisions: Decisions, *, deadline_seconds: float = DEADLINE_SECONDS
    ) -> None:
        self._context, self._decisions, self._deadline_seconds = context, decisions, deadline_seconds
        self._features = TurnFeatures(make_features(context))
        self._concluder = TurnConcluder(context, self._features)
        self._failures, self._strangers = FailurePolicy(context, self._concluder), Strangers(context)
        self._bare_replies, self._life = BareReplyHandler(context, self._concluder), SignsOfLife(context)
        self._transcripts = Transcripts(context.bot.agent.memory, context.bot.agent.token_count)
        self._history = HistoryReader(context, self._transcripts)
        self._shares = TurnShares(context.rules.limits.turns, context.channels)
        self._suspect: str | None = None
        """The conversation of the running turn that may kill this process. Other suspect turns wait, to survive a death
        of the process."""

    # ── which turn, and if it may run now ──

    async def run(self, lease: Lease) -> Outcome | None:
        """Run a turn of the conversation of this lease. Returns None when no turn ended.

        A failed turn is retried or becomes a dead letter. The person is notified of an unreachable model and of a dead
        letter. In a call of the bot's own code, the error that ended the turn is raised instead.
        """
        signals = SignalInbox(lease)
        try:
            with HeldLease(self._context, lease, signals.on_signal), contextlib.ExitStack() as share:
                if wait := share.enter_context(self._shares.of_place(lease.lane)):
                    if self._shares.is_page(lease.lane):
                        self._context.reached.note("turns of the web chat", f"turns={self._context.rules.limits.turns}")
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
                turn = await open_turn(self._context, lease, batch, signals, prefetched)
                return await self._run(turn, history)
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
        """Return the end of this turn's wait for more messages; None without a wait."""
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

    async def _run(self, turn: RunningTurn, history: AttemptHistory) -> Outcome | None:
        """Run an attempt at a turn. A turn with a reason not to run becomes a dead letter."""
        context, lease = self._context, turn.lease
        try:
            if (reason := self._reason_not_to_run(turn, history)) is not None:
                await self._failures.dead_letter(turn, reason)
                return Outcome(stop_reason="cancelled")
            await self._features.begin(turn)
            if turn.batch.is_fold:
                return await self._fold(turn)
            if history.suspect:
                if self._suspect is not None:
                    await self._failures.hand_back(lease, history, wait_seconds=_SUSPECT_SECONDS)
                    return None
                self._suspect = lease.lane
            turn.journal = StoreJournal(context, lease, turn.batch, partial(self._features.committing, turn))
            turn.signals.person = context.turn_of[lease.lane] = str(turn.person)
            await turn.events.tell(
                TurnStart,
                conversation=lease.lane,
                event_ids=event_ids(turn.batch.taken),
                attempt=lease.tries + 1,
                cause=turn.cause,
                received=was_received(turn.batch.began_by),
            )
            return await self._attempt(turn, history)
        finally:
            self._features.ended(turn)
            context.turn_of.pop(lease.lane, None)
            if self._suspect == lease.lane:
                self._suspect = None

    def _reason_not_to_run(self, turn: RunningTurn, history: AttemptHistory) -> str | None:
        if turn.batch.unreadable:
            return "an event that this release cannot read"
        if turn.batch.forged:
            return SEAL_FAILED
        if not are_genuine(self._context, turn.lease):
            return f"a checkpoint: {SEAL_FAILED}"
        return "its turn killed its worker again and again" if history.deadly else None

    async def _attempt(self, turn: RunningTurn, history: AttemptHistory) -> Outcome | None:
        """Run a turn, and handle a failure. Raises Fenced, and all errors of a direct turn."""
        context, lease = self._context, turn.lease
        try:
            return await self._outcome(turn)
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
                turn.events.run_id,
                turn.cause,
            )
            await turn.events.tell(TurnFailed, conversation=lease.lane, error=error, why=str(error))
            if turn.direct:
                raise
            if isinstance(error, ProviderFault):
                log.error("a turn of %s failed: %s", lease.lane, describe_error(error))
                await self._failures.on_error(turn, history)
            elif error.refusal is not None:
                await self._failures.on_refusal(turn, error.refusal)
            else:
                await self._failures.on_model_down(turn, history)
        except Exception as error:
            # The texts of these two are the gateway's own, and say the remedy. Any other may be a person's.
            why = error if isinstance(error, WrongOption | InterceptorFailed) else describe_error(error)
            log.error("a turn of %s failed: %s", lease.lane, why, extra={"event": turn.cause})
            await turn.events.tell(TurnFailed, conversation=lease.lane, error=error, why=str(why))
            if turn.direct:
                await self._failures.dead_letter(turn, "its turn failed", raised=error)
                raise
            await self._failures.on_error(turn, history)
        return None

    async def _outcome(self, turn: RunningTurn) -> Outcome | None:
        """Answer the events of a turn, and commit. Return None if it is put off or opted out."""
        context, lease, batch = self._context, turn.lease, turn.batch
        began = asyncio.get_running_loop().time()
        channel = context.channels.get(turn.address.channel)
        if channel is None:  # no reply could be sent: the messages stay
            await self._postpone(lease, _CHANNEL_OFF_SECONDS)
            return None
        if channel.capabilities.opt_out and await self._has_opted_out(turn):
            return None
        if batch.messages and (answered := await self._bare_replies.take(turn)) is not None:
            return answered
        history = await self._history.read(lease)
        await turn.events.tell(SessionLoad, session_id=lease.lane, message_count=len(history))
        language = await turn_language(context, turn, history)
        await context.load_languages(language)
        if batch.again is not None:
            outcome = await ask_again(
                context,
                lease.lane,
                batch.again,
                person=turn.person,
                tool_context=tool_context(context, turn, language),
            )
            outcome.transcript = [*to_entries(batch.notes), *outcome.transcript]
        else:
            outcome = await self._run_bot(turn, language, history)
            if outcome.stop_reason == "cancelled" and turn.signals.stopped:
                _note_stop(turn, outcome, language)
        trim = self._transcripts.trim(history, outcome.transcript)
        await self._concluder.conclude(turn, outcome, language, trim.cuts if trim is not None else ())
        took = milliseconds_since(began)
        await turn.events.tell(TurnEnd, conversation=lease.lane, stop_reason=outcome.stop_reason, duration_ms=took)
        return outcome

    async def _fold(self, turn: RunningTurn) -> Outcome:
        """Take notes without a following message out of the mailbox. No model is called and no reply is sent."""
        ending = new_ending(self._context, turn, self._context.language(None))
        ending.lines = to_entries(turn.batch.notes)
        await self._concluder.end(ending, "noted for the next turn")
        return Outcome(stop_reason="answered")

    async def _has_opted_out(self, turn: RunningTurn) -> bool:
        """Return True if the person has opted out: the messages are then consumed without an answer.

        A message that opts in again is answered.
        """
        context, lease, batch = self._context, turn.lease, turn.batch
        if not await has_opted_out(context.store, lease.lane):
            return False
        if any(message.opts_in for message in batch.messages):
            deletes = [keys.opted_out(lease.lane)]
            await context.commit(Transaction(partition=lease.partition, lease=lease, deletes=deletes))
            return False
        ending = new_ending(context, turn, context.language(turn.person))
        ending.lines = to_entries(batch.notes)
        await self._concluder.end(ending, "not answered: they have opted out")
        return True

    # ── the bot's own turn ──

    async def _run_bot(self, turn: RunningTurn, language: str, history: Sequence[ModelMessage]) -> Outcome:
        """Run a command or the model within the time limit of the turn. Answers to open actions are handled before.

        Raises ProviderError when the model cannot be reached.
        """
        context = self._context
        actions = await context.actions(turn.conversation, seen=turn.prefetched)
        asked = turn_input(context, turn, self._strangers, language=language, history=history, actions=actions)
        deadline = asyncio.timeout(self._deadline_seconds)
        try:
            async with self._signs(turn, language), deadline:
                return await self._features.before(turn, asked) or await self._answer(asked)
        except TimeoutError:
            if not deadline.expired():
                raise
        except ProviderError as error:
            if turn.direct:
                await self._keep_progress(turn, asked, error)
            raise
        finally:
            await self._features.after(turn)
        return Outcome(
            stop_reason="timeout",
            transcript=to_entries(_progress(turn, asked)),
            replies=[Reply(text=say("turn_timeout", language))],
        )

    async def _answer(self, asked: Turn) -> Outcome:
        bot = self._context.bot
        if bot.commands.are_meant(asked):
            return await bot.commands.answer(asked, greeting=bot.greeting)
        proposer = ActionProposer(
            asked, answer_window_seconds=bot.answer_window_seconds, keep_stashed=bot.executors.keep
        )
        return await answer_with_model(asked, bot.agent, proposer, bot.interceptors)

    async def _keep_progress(self, turn: RunningTurn, asked: Turn, error: ProviderError) -> None:
        """End a direct turn after a failure of the model. The transcript keeps the messages, and the next turn
        continues from there."""
        ending = new_ending(self._context, turn, asked.language)
        ending.lines, ending.error = to_entries(_progress(turn, asked)), error
        await self._concluder.end(ending, "failed")

    @contextlib.asynccontextmanager
    async def _signs(self, turn: RunningTurn, language: str) -> AsyncIterator[None]:
        """Show the bot at work during the body."""
        if turn.direct:
            yield
            return
        written = [message.message_id for message in turn.batch.messages]
        is_shown = partial(bool, False) if turn.preview is None else turn.preview.is_shown
        async with (
            self._life.typing(turn.address, under=written[-1] if written else None),
            self._life.still_working(
                turn.conversation,
                turn.address,
                language,
                turn.events.run_id,
                is_shown=is_shown,
                decide=self._decisions.decide,
            ),
        ):
            yield


def _progress(turn: RunningTurn, asked: Turn) -> list[ModelMessage]:
    """Return the messages of a turn without an end, for the transcript."""
    return [*asked.notes, *asked.model_messages, *turn.journal.messages()]


def _note_stop(turn: RunningTurn, outcome: Outcome, language: str) -> None:
    """Note a stop for the model. After a press on the stop button, the words written so far are the answer."""
    if not turn.signals.keeps_answer:
        outcome.transcript += to_entries([ModelMessage(role="event", content=_STOPPED)])
        return
    preview = turn.preview
    words = finished(preview.words) if preview is not None else ""
    is_whole = preview is None or preview.is_whole  # of an earlier reply: it stands in the transcript already
    more = "" if is_whole else "\n\n…" if words.endswith(("```", "~~~", "|")) else "…"
    outcome.replies = [Reply(text=f"{words}{more}" if words else say("stopped", language)), *outcome.replies]
    said = [ModelMessage(role="assistant", content=words)] if words and not is_whole else []
    outcome.transcript += to_entries([*said, ModelMessage(role="event", content=_ANSWER_STOPPED)])
