"""The decision lane: works the stored deciding events in order, ahead of any turn.

Each event is a single idempotent commit: the action, the replies, the event consumed and the pointer dropped. Two
processes may work the same pointer. The later commit meets a Conflict, and the retry finds the pointer gone.
"""

from __future__ import annotations

import asyncio
import logging

from channels import Address, AnswerStopped, ButtonPress, CanAnswer, Event, Feedback, Message
from gateway.access.suppression import update_suppression
from gateway.engine.context import EngineContext
from gateway.engine.decisions.judging import Judge, Judgement
from gateway.engine.delivery.visible_log import person_line
from gateway.engine.event_bodies import replay_body
from gateway.engine.reply_limits import note_refusal
from gateway.engine.retrying import attempts
from gateway.engine.telling import event_id_of, run_of, tell_failed, tell_lost, tell_settled
from gateway.logs import describe_error
from gateway.observe.events import DecisionJudged, DoubtRaised, FeedbackGiven
from gateway.pending.actions import ConversationActions
from gateway.pending.seal import SEAL_FAILED
from gateway.store.errors import StoreError
from gateway.store.transaction import Transaction
from gateway.store.types import Dead, Incoming, Waiting
from gateway.stored.events import (
    FollowUp,
    InternalEvent,
    NewsMissed,
    Notification,
    PartMoved,
    PersonWrote,
    event_of,
)

log = logging.getLogger("askfirst.decisions")


class Decisions:
    """The decision lane of this process's store."""

    def __init__(self, context: EngineContext) -> None:
        self._context, self._judge = context, Judge(context)
        self._locks: dict[str, asyncio.Lock] = {}

    async def decide(self, conversation: str) -> None:
        """Work the pointers of a conversation, oldest first.

        Raises StoreError. An unworked event keeps the pointer.
        """
        lock = self._locks.setdefault(conversation, asyncio.Lock())
        try:
            async with lock:
                for waiting in await self._context.store.pending_decisions(conversation):
                    await self._work(waiting)
        finally:
            if not lock.locked():
                self._locks.pop(conversation, None)

    async def sweep(self, older_than_seconds: float) -> None:
        """Work the pointers older than this, left behind by the storing process."""
        found = await self._context.store.pending_decisions(older_than_seconds=older_than_seconds)
        for conversation in dict.fromkeys(waiting.conversation for waiting in found):
            await self.decide(conversation)

    async def _work(self, waiting: Waiting) -> None:
        first = True
        for attempt in attempts():
            async with attempt:
                if not first and not await self._has_pointer(waiting):
                    return
                first = False
                transaction, event, judgement = await self._judged(waiting)
                if judgement.rated is not None and isinstance(event, Feedback):
                    # Before the commit: told twice is better than never.
                    place, message_id = waiting.conversation, event.message_id
                    await self._context.events.tell(
                        FeedbackGiven, judgement.rated, conversation=place, message_id=message_id, value=event.value
                    )
                await self._context.commit(transaction)
                if judgement.decided:
                    how = f"decided by {judgement.way}" if judgement.way else "decided"
                    events, place = self._context.events, waiting.conversation
                    tell_settled(events, run_of(waiting), place, [waiting], transaction, how)
                self._report(waiting, event, judgement)

    async def _has_pointer(self, waiting: Waiting) -> bool:
        found = await self._context.store.pending_decisions(waiting.conversation)
        return any(other.seq == waiting.seq for other in found)

    async def _judged(self, waiting: Waiting) -> tuple[Transaction, Event | None, Judgement]:
        """Judge an event. Return the transaction to commit, the platform's event or None, and the judgement.

        Raises StoreError.
        """
        transaction = Transaction(partition=self._context.store.partition(waiting.conversation))
        if not self._context.is_genuine("event", waiting.conversation, waiting.body):
            log.error("event %s of %s: %s", waiting.seq, waiting.conversation, SEAL_FAILED)
            self._context.events.tell_now(DoubtRaised, conversation=waiting.conversation, why="forged")
            forged = self._dead_letter(waiting, SEAL_FAILED, genuine=False)
            return forged, None, Judgement(None, decided=True)
        try:
            stored = event_of(waiting.body)
            event = stored if isinstance(stored, Event) else None
            judgement = await self._judge.judge(waiting, stored, transaction)
            if judgement.actions is not None:
                await self._context.files.keep_for_questions(judgement.actions)
            await self._write(transaction, waiting, stored, event, judgement)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - one bad event must not hold back the lane; it is kept
            log.error("event %s of %s is put aside: %s", waiting.seq, waiting.conversation, describe_error(error))
            return self._dead_letter(waiting, type(error).__name__), None, Judgement(None, decided=True)
        return transaction, event, judgement

    # ── writing ──

    async def _write(
        self,
        transaction: Transaction,
        waiting: Waiting,
        stored: Event | InternalEvent,
        event: Event | None,
        judgement: Judgement,
    ) -> None:
        """Add the judgement of an event to a transaction."""
        conversation, actions = waiting.conversation, judgement.actions
        if not judgement.decided:
            transaction.drop_pointers.append((conversation, waiting.seq))
            return
        transaction.consume.append((conversation, waiting.seq))
        if judgement.noted is not None and event is not None:
            note_refusal(transaction, judgement.noted, event.person, conversation, waiting.stamp)
        if isinstance(event, Message):
            person_line(transaction, self._context, conversation, event)
        if judgement.stop and event is not None:
            signal = "stop_answer" if isinstance(event, AnswerStopped) else "stop"
            transaction.signals.append((conversation, {signal: str(event.person)}))
        if actions is not None:
            await actions.write(transaction)
            address = _address(actions, stored)
            if address is not None:
                cause = event_id_of(waiting)
                language = self._context.language(event.person if event is not None else None, actions.language)
                transaction.parts += self._context.parts.render(
                    conversation,
                    address,
                    actions.says,
                    cause=cause,
                    language=language,
                    reader=actions.reader(event.person if event is not None else None),
                )
        if event is not None:
            channel = self._context.channels.get(event.address.channel)
            update_suppression(transaction, channel, conversation, event, waiting.stamp)

    def _dead_letter(self, waiting: Waiting, error: str, *, genuine: bool = True) -> Transaction:
        """Return the transaction making a dead letter of an event."""
        conversation = waiting.conversation
        dead = Dead(
            dead_id=f"{conversation}/{waiting.seq}",
            conversation=conversation,
            reason=f"a decision that cannot be worked: {error}",
            incoming=Incoming(
                conversation=conversation,
                event_ids=(f"replay/{conversation}/{waiting.seq}",),
                body=replay_body(self._context.keyring, waiting) if genuine else waiting.body,
                decides=True,
            ),
        )
        return Transaction(
            partition=self._context.store.partition(conversation), consume=[(conversation, waiting.seq)], dead=[dead]
        )

    def _report(self, waiting: Waiting, event: Event | None, judgement: Judgement) -> None:
        """Notify the turn, the log, the live feed and the presser of a committed judgement."""
        context = self._context
        if judgement.stop:
            context.nudge("turn", waiting.conversation)
        if judgement.lost is not None:
            lost = judgement.lost
            if lost.queued is not None:  # it is a dead letter now
                tell_failed(context.events, lost.queued, lost.why)
            else:
                tell_lost(context.events, waiting, lost.why)
            context.sound_undelivered([lost.queued] if lost.queued is not None else [])
        if isinstance(event, ButtonPress) and event.answer_to is not None:
            channel = context.channels[event.address.channel]
            if isinstance(channel, CanAnswer):
                answering = channel.answer(event.answer_to, judgement.feedback, private=not judgement.told)
                context.tasks.start(answering, "answer a press")
        for person in judgement.actions.changes.unreached if judgement.actions is not None else ():
            log.warning("approver %s cannot be reached by the bot's messages", person)
        if judgement.decided:
            kind = str(waiting.body.get("kind"))
            context.events.tell_now(DecisionJudged, conversation=waiting.conversation, kind=kind)


def _address(actions: ConversationActions, stored: Event | InternalEvent) -> Address | None:
    """Return the address for replies to an event. About an absent action, the conversation's own.

    The replies may be about other actions, found changed without the key.
    """
    if isinstance(stored, Event | Notification | FollowUp):
        return stored.address
    if isinstance(stored, PartMoved | NewsMissed | PersonWrote):
        return None
    action = actions.get(stored.action_id)
    return action.address if action is not None else actions.index.address
