"""Turns: one conversation at a time, its events in order, one atomic commit at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, islice

from channels import Address, CanType, Person, Reply, SendError
from channels.direct import DirectChannel
from gateway.access.suppression import has_opted_out, opt_out_key
from gateway.engine import event_log
from gateway.engine.calls import post_result
from gateway.engine.concurrency import DelayedTask, KeyedLimit
from gateway.engine.context import EngineContext
from gateway.engine.decisions import Decisions
from gateway.engine.delivery.links import end_links
from gateway.engine.leases import PREFETCH, HeldLease, release_to_newer, shielded_commit
from gateway.engine.retrying import attempts
from gateway.engine.strangers import Strangers
from gateway.engine.turns.asking_again import ask_again
from gateway.engine.turns.bare_replies import BareReplyHandler
from gateway.engine.turns.batch import Batch, choose
from gateway.engine.turns.checkpoint import StoreJournal, are_genuine, events_of
from gateway.engine.turns.failures import (
    AttemptHistory,
    FailurePolicy,
    append_transcript,
    finish_turn,
    note_acted,
    release,
    turn_owner,
    write_acted,
)
from gateway.engine.turns.interrupts import SignalInbox
from gateway.engine.turns.language import detect_language
from gateway.engine.turns.notes import gather, is_said, keep_folded
from gateway.memory import RESET, Transcripts, to_entries
from gateway.observe import describe_error
from gateway.options import WrongOption
from gateway.pending.actions import ConversationActions, OutgoingReply
from gateway.pending.deciding import withdraw
from gateway.pending.prompting import remind, show_again, show_once_more
from gateway.pending.settling import supersede
from gateway.providers.base import ModelMessage, ProviderError
from gateway.store.base import Chained, Fenced, Lease, Snapshot, StoreUnavailable, Transaction
from gateway.store.form import NewerForm, check_form
from gateway.tools import ToolContext
from gateway.turn import BUILT_IN, Outcome, Turn
from gateway.wording import say

__all__ = ["TurnRunner"]

log = logging.getLogger("askfirst.turns")

DEADLINE_SECONDS = 60.0
_CROWDED_SECONDS = 2.0
_CHANNEL_OFF_SECONDS = 60.0
_TEXTS_LOOKED_AT = 8
"""Of what a person wrote before, for its language."""
_TYPING_AFTER_SECONDS, _TYPING_SECONDS = 0.2, 4.0
"""An answer that is there at once is not announced: whoever is told is told again after so many seconds."""
_MOST_WINDOWS = 5
"""So many times the collect window after its first message a burst is answered, whether it has ended or not."""
_SUSPECT_SECONDS = 1.0
_EVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Running:
    """A turn under its lease."""

    lease: Lease
    batch: Batch
    steps: StoreJournal
    ears: SignalInbox
    address: Address
    person: Person
    seen: Snapshot | None
    """What was read with the lease, unless it could not be, or something was decided since."""

    @property
    def direct(self) -> bool:
        """The other side is the bot's own code, in a call of `ask_channel`."""
        return self.address.channel == DirectChannel.name


class TurnRunner:
    """Runs the bot over what waits."""

    def __init__(
        self, context: EngineContext, decisions: Decisions, *, deadline_seconds: float = DEADLINE_SECONDS
    ) -> None:
        self._context, self._decisions, self._deadline_seconds = context, decisions, deadline_seconds
        self._answers, self._strangers = BareReplyHandler(context), Strangers(context)
        self._failures = FailurePolicy(context)
        self._can_type = {name: channel for name, channel in context.channels.items() if isinstance(channel, CanType)}
        self._transcripts = Transcripts()
        self._places, self._people = KeyedLimit(context.limits.turns.place), KeyedLimit(context.limits.turns.person)
        self._suspect: str | None = None
        """The one turn under way that may kill this process: another one has to wait, else it would die with it."""

    async def run(self, lease: Lease) -> Outcome | None:
        """Run one turn of the conversation this lease is for. None when there was none to run.

        A failure is told, kept and tried again. Where the bot's own code is the other side, nobody is told and nothing
        is tried again behind its back: what ended the turn is raised.
        """
        ears, place = SignalInbox(lease), _place(lease)
        try:
            with HeldLease(self._context, lease, ears.hear), contextlib.ExitStack() as share:
                if place is not None and self._places.are_taken(place):
                    await self._later(lease, _CROWDED_SECONDS)
                    return None
                if place is not None:
                    share.enter_context(self._places.one(place))
                undecided = not lease.steps and any(waiting.pointed for waiting in lease.events)
                if undecided:
                    await self._decisions.decide(lease.lane)
                for step in lease.steps:
                    check_form(step)
                tries = await self._failures.before(lease)
                batch = choose(
                    lease.events,
                    language=self._context.bot.language or "en",
                    one=tries.one_by_one and not lease.steps,
                    only=events_of(lease) if are_genuine(self._context, lease) else (),
                    genuine=lambda waiting: self._context.is_genuine("event", lease.lane, waiting.body),
                    is_said=lambda text: is_said(lease.lines, text),
                )
                until = None if lease.tries or lease.steps else await self._collects_until(batch)
                if until is not None or not batch.taken:
                    transaction = release(self._context, lease)
                    transaction.collect_until = until
                    await self._context.commit(transaction)
                    return None
                if batch.messages and batch.messages[0].address.channel != DirectChannel.name:
                    person = str(batch.messages[0].person)
                    if self._people.are_taken(person):
                        await self._later(lease, _CROWDED_SECONDS)
                        return None
                    share.enter_context(self._people.one(person))
                seen = lease.prefetched if self._context.has_prefetch(lease) and not undecided else None
                return await self._guarded(lease, batch, ears, tries, seen)
        except NewerForm as newer:
            await self._context.commit(release_to_newer(lease, newer))
            return None
        except Fenced:
            log.warning("turn of %s: somebody else has taken over", lease.lane)
            return None

    async def _collects_until(self, batch: Batch) -> datetime | None:
        """The moment up to which this turn waits for more of its burst, if that is still to come."""
        window = timedelta(seconds=self._context.bot.collect_seconds)
        if not (window and batch.collects and batch.began):
            return None
        until = min(batch.at + window, batch.began + _MOST_WINDOWS * window)
        return until if until > await self._context.store.now() else None

    async def _guarded(
        self, lease: Lease, batch: Batch, ears: SignalInbox, tries: AttemptHistory, seen: Snapshot | None
    ) -> Outcome | None:
        if batch.unreadable:
            await self._failures.put_aside(lease, batch, "an event that this release cannot read")
            return Outcome(stop_reason="cancelled")
        if batch.forged:
            await self._failures.put_aside(lease, batch, "an event that somebody without the key has made or changed")
            return Outcome(stop_reason="cancelled")
        if not are_genuine(self._context, lease):
            await self._failures.put_aside(lease, batch, "a checkpoint that somebody without the key has changed")
            return Outcome(stop_reason="cancelled")
        if tries.deadly:
            await self._failures.put_aside(lease, batch, "its turn killed its worker again and again")
            return Outcome(stop_reason="cancelled")
        gather(self._context, lease, batch)
        if batch.is_fold:
            return await self._fold(lease, batch)
        address, person = await turn_owner(self._context, lease.lane, batch)
        if tries.suspect:
            if self._suspect is not None:
                await self._failures.stopped(lease, tries, wait_seconds=_SUSPECT_SECONDS)
                return None
            self._suspect = lease.lane
        running = _Running(lease, batch, StoreJournal(self._context, lease, batch), ears, address, person, seen)
        ears.person = self._context.turn_of[lease.lane] = str(person)
        event_log.begun(lease.lane, batch.taken, lease.tries)
        try:
            return await self._turn(running)
        except (Fenced, NewerForm):
            raise
        except asyncio.CancelledError:
            await shielded_commit(self._failures.stopped(lease, tries))
            raise
        except ProviderError as error:
            log.error("the model of %s: %s", self._context.bot.name, error)
            self._context.feed.publish("turn.failed", conversation=lease.lane, error=str(error))
            if running.direct:
                raise
            if error.refusal is not None:
                await self._failures.refused(lease, batch, error.refusal)
            else:
                await self._failures.model_down(lease, batch, tries)
        except Exception as error:
            # The text of a wrong option is ours, and says how to mend it; any other may be a person's.
            why = error if isinstance(error, WrongOption) else describe_error(error)
            about = {"event": event_log.event_of(batch.taken[-1])}
            log.error("a turn of %s failed: %s", lease.lane, why, extra=about)
            self._context.feed.publish("turn.failed", conversation=lease.lane, error=type(error).__name__, cause=error)
            if running.direct:
                await self._failures.put_aside(lease, batch, "its turn failed", raised=error)
                raise
            await self._failures.failed(lease, batch, tries)
        finally:
            self._context.turn_of.pop(lease.lane, None)
            if self._suspect == lease.lane:
                self._suspect = None
        return None

    async def _turn(self, running: _Running) -> Outcome | None:
        context, lease, batch = self._context, running.lease, running.batch
        channel = self._context.channels.get(running.address.channel)
        if channel is None:  # what was written is kept: nobody could be told anything
            await self._later(lease, _CHANNEL_OFF_SECONDS)
            return None
        if channel.capabilities.opt_out and await self._unheard(running):
            return None
        if batch.messages and (answered := await self._answers.take(lease, batch)) is not None:
            return answered
        history = self._transcripts.read(lease.lane, lease.lines)
        language = self._language(running, history)
        if batch.again is not None:
            tool_context = self._tool_context(running, language)
            outcome = await ask_again(
                context, lease.lane, batch.again, person=running.person, tool_context=tool_context
            )
            outcome.transcript = [*to_entries(batch.notes), *outcome.transcript]
        else:
            outcome = await self._run_bot(running, language, history)
        await self._conclude(running, outcome, language)
        self._context.feed.publish("turn.finished", conversation=lease.lane, stop_reason=outcome.stop_reason)
        return outcome

    async def _fold(self, lease: Lease, batch: Batch) -> Outcome:
        """Take notes out of the mailbox that nobody has written after: no model is called and nothing is said."""
        transaction = release(self._context, lease)
        transaction.consume = [(lease.lane, waiting.seq) for waiting in batch.taken]
        keep_folded(transaction, self._context, lease, batch)
        await self._context.commit(transaction)
        return Outcome(stop_reason="answered")

    def _was_stopped(self, running: _Running) -> bool:
        """Return True for what was written before its person said /stop: it is answered, and asks nothing."""
        read = self._context.index_of(running.lease)
        return read is not None and read.index.has_stopped(str(running.person), running.batch.at)

    async def _later(self, lease: Lease, seconds: float) -> None:
        """Not here and now. What an earlier attempt has done, and how it ended, stays known."""
        if lease.steps or lease.tries:
            await self._failures.stopped(lease, await self._failures.before(lease), wait_seconds=seconds)
            return
        transaction = release(self._context, lease)
        transaction.due = await self._context.store.now() + timedelta(seconds=seconds)
        await self._context.commit(transaction)

    async def _unheard(self, running: _Running) -> bool:
        """Whether whoever wrote this has opted out: nothing could be told them, unless this takes it back."""
        context, lease, batch = self._context, running.lease, running.batch
        if not await has_opted_out(context.store, lease.lane):
            return False
        welcome = any(message.opts_in for message in batch.messages)
        transaction = (
            Transaction(partition=lease.partition, lease=lease) if welcome else finish_turn(context, lease, batch)
        )
        if welcome:
            transaction.deletes = [opt_out_key(context.store, lease.lane).name]
        else:
            append_transcript(transaction, context, lease.lane, batch.notes)
        await context.commit(transaction)
        if not welcome:
            event_log.committed(lease.lane, batch.taken, transaction, "not answered: they have opted out")
        return not welcome

    # ── the bot's own turn ──

    async def _run_bot(self, running: _Running, language: str, history: Sequence[ModelMessage]) -> Outcome:
        context, conversation = self._context, running.lease.lane
        actions = await context.actions(conversation, seen=running.seen)
        turn = self._prepared(running, language, history, actions)
        deadline = asyncio.timeout(self._deadline_seconds)
        typing = self._typing(running.address)
        try:
            async with deadline:
                return await self._context.bot.turn(turn)
        except TimeoutError:
            if not deadline.expired():
                raise
        except ProviderError as error:
            if running.direct:
                await self._keep(running, turn, error)
            raise
        finally:
            if typing is not None:
                await typing.ended()
        return Outcome(
            stop_reason="timeout",
            transcript=to_entries([*turn.notes, *turn.model_messages, *running.steps.messages()]),
            replies=[Reply(text=say("turn_timeout", turn.language))],
        )

    async def _keep(self, running: _Running, turn: Turn, error: ProviderError) -> None:
        """What was written, and done about it so far, stands in the transcript: the next turn goes on from it."""
        transaction = finish_turn(self._context, running.lease, running.batch)
        await write_acted(transaction, self._context, running.lease, running.batch)
        append_transcript(
            transaction,
            self._context,
            running.lease.lane,
            [*turn.notes, *turn.model_messages, *running.steps.messages()],
        )
        post_result(transaction, self._context, running.lease.lane, running.batch, error)
        await self._context.commit(transaction)

    def _prepared(
        self, running: _Running, language: str, history: Sequence[ModelMessage], actions: ConversationActions
    ) -> Turn:
        context, batch, person = self._context, running.batch, running.person
        conversation = running.lease.lane
        just_read = [actions]

        async def read_actions() -> ConversationActions:
            return just_read.pop() if just_read else await context.actions(conversation)

        return Turn(
            conversation=conversation,
            address=running.address,
            person=person,
            language=language,
            messages=batch.messages,
            notes=batch.notes,
            history=history,
            started=batch.at if batch.messages else actions.index.acted.get(str(person), _EVER),
            context=self._tool_context(running, language),
            journal=running.steps,
            keep=partial(context.keep, person=str(person)),
            actions=read_actions,
            admit=partial(self._strangers.admit, by=person) if self._strangers.may_admit(person) else None,
            publish=partial(event_log.happened, context.feed, event_log.event_of(batch.taken[-1])),
        )

    def _language(self, running: _Running, history: Sequence[ModelMessage]) -> str:
        """Return the language of the turn: as named, else as the person writes now, wrote before, or was asked in.

        A single word says little: what is longer, and was written last, decides.
        """
        context = self._context
        named = context.named_language(running.person)
        if named is not None:
            return named
        written = (message.text for message in reversed(running.batch.messages) if message.command is None)
        before = (each.content for each in reversed(history) if each.role == "user")
        return (
            detect_language(chain(written, islice(before, _TEXTS_LOOKED_AT)))
            or context.language_asked(running.lease)
            or "en"
        )

    def _tool_context(self, running: _Running, language: str) -> ToolContext:
        context, conversation = self._context, running.lease.lane
        return ToolContext(
            person=str(running.person),
            address=None if running.direct else running.address,
            conversation=conversation,
            language=language,
            deps=context.bot.deps,
            idempotency_key=f"{conversation}/{running.batch.taken[0].seq}",
            now=context.wall_clock,
            shared=context.store.shared,
            stopping=running.ears.stopping,
        )

    def _typing(self, address: Address) -> DelayedTask | None:
        """Shown as typing until this is ended, where the platform can."""
        channel = self._can_type.get(address.channel)
        if channel is None:
            return None

        async def keep_typing() -> None:
            while True:
                with contextlib.suppress(SendError):
                    await channel.typing(address)
                await asyncio.sleep(_TYPING_SECONDS)

        return DelayedTask(_TYPING_AFTER_SECONDS, keep_typing, "typing")

    # ── the one atomic step at the end ──

    async def _conclude(self, running: _Running, outcome: Outcome, language: str) -> None:
        context, conversation, person = self._context, running.lease.lane, running.person
        cause = event_log.event_of(running.batch.taken[-1])
        at_first = True
        for attempt in attempts(patient=True):  # a commit that was made after all has given the lease back
            async with attempt:
                transaction = finish_turn(context, running.lease, running.batch)
                post_result(transaction, context, conversation, running.batch, outcome)
                log_name = context.key(conversation, "transcript").name
                transaction.appends += [(log_name, line) for line in outcome.transcript]
                if RESET in outcome.transcript:
                    end_links(context, conversation, transaction)
                says = [OutgoingReply(reply=reply) for reply in outcome.replies]
                if (
                    outcome.asked
                    or outcome.unrelated
                    or (outcome.replies and context.is_open(running.lease))
                    or (running.batch.messages and context.hears(running.lease, person))
                ):
                    asked = [action.pending_action_id for action in outcome.asked]
                    actions = await context.actions(conversation, *asked)
                    note_acted(actions, running.batch)
                    if outcome.asked or outcome.unrelated:
                        self._ask(
                            actions,
                            outcome,
                            person,
                            language,
                            stopped=running.ears.stopped or self._was_stopped(running),
                        )
                    elif outcome.replies and not _is_built_in(running.batch):
                        remind(actions, actions.open_for(str(person)))
                    await context.keep_files(actions)
                    actions.write(transaction)
                    says += actions.says
                transaction.parts += context.parts.render(
                    conversation, running.address, says, cause=cause, language=language
                )
                first, at_first = at_first, False
                await self._commit(transaction, running.address, at_first=first)
                event_log.committed(conversation, running.batch.taken, transaction, outcome.stop_reason)

    async def _commit(self, transaction: Transaction, address: Address, *, at_first: bool) -> None:
        """And go on at once with what is to be sent, if somebody is free for it."""
        context, crew = self._context, self._context.sending.get(address.channel)
        if crew is None or crew.is_busy or not transaction.parts:
            await context.commit(transaction)
            return
        first, long = transaction.parts[0], context.lease_seconds
        transaction.chain = Chained(kind="out", lane=first.conversation, prefetch=PREFETCH["out"], lease_seconds=long)

        async def committed() -> Lease | None:
            # Where parts are being sent this one is not the next; and what comes to nothing is counted once at most.
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

        await crew.take(committed)

    async def _give_back(self, unheard: Transaction) -> None:
        """The outbox that a commit may have taken is nobody's: once it has lapsed, what is in it might be doubted."""
        for attempt in attempts(patient=True):
            async with attempt:
                await self._context.store.give_back(unheard)

    def _ask(
        self, actions: ConversationActions, outcome: Outcome, person: Person, language: str, *, stopped: bool
    ) -> None:
        """What the turn asks is open from here on; what was open before is shown again, or dropped."""
        asked = {action.pending_action_id: action for action in outcome.asked}
        known = [found for action_id in asked if (found := actions.get(action_id)) is not None]
        new = [actions.ask(action) for action_id, action in asked.items() if actions.get(action_id) is None]
        for action in new:
            supersede(actions, action)
        if asked and stopped:
            withdraw(actions, str(person), actions.now)
        elif asked:
            show_once_more(actions, [action for action in known if action.open], new=new)
            others = [action for action in actions.open_for(str(person)) if action.pending_action_id not in asked]
            remind(actions, others)
        elif self._context.bot.on_unrelated == "drop":
            withdraw(actions, str(person), actions.now)
            actions.says.insert(0, OutgoingReply(reply=Reply(text=say("dropped", language))))
        else:
            show_again(actions, str(person))


def _place(lease: Lease) -> str | None:
    """Where the conversation is, if others may be there too: it is a thread."""
    _, _, address = lease.lane.partition("/")
    place, in_thread, _ = address.partition("/")
    return place if in_thread else None


def _is_built_in(batch: Batch) -> bool:
    """Return True for a command of every bot's, whose answer says nothing of what was done."""
    return bool(batch.messages) and batch.messages[0].command in BUILT_IN
