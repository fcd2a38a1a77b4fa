"""How turns end: what every end has in common, and what becomes of a turn that failed."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any, cast

from channels import Address, Person, Reply
from gateway.access.suppression import unreachable_key
from gateway.engine import event_log
from gateway.engine.calls import post_result
from gateway.engine.context import EngineContext, person_of
from gateway.engine.delivery.visible_log import person_line
from gateway.engine.turns.batch import Batch
from gateway.engine.turns.notes import forget_folded
from gateway.memory import to_entries
from gateway.pending.actions import ConversationActions, OutgoingReply
from gateway.pending.prompting import remind
from gateway.providers.base import ModelMessage, Refusal
from gateway.store.base import Dead, Incoming, Key, Lease, Put, Transaction
from gateway.store.form import NewerForm
from gateway.wording import say

__all__ = ["FailurePolicy", "append_transcript", "finish_turn", "note_acted", "release", "turn_owner", "write_acted"]

log = logging.getLogger("askfirst.turns")

_MODEL_AGAIN_SECONDS = (5.0, 30.0, 120.0, 600.0)
_AGAIN_SECONDS = (1.0, 5.0)
_ONE_BY_ONE_AFTER = 2
"""Failures after which messages are no longer joined: one of them may be what makes the turn fail."""
_DEATHS = 4
"""A turn that took so many workers with it is given up before it takes another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptHistory:
    """How the attempts before this one ended, since the last turn that came to its end."""

    model: int = 0
    """The model could not be reached."""
    errors: int = 0
    stopped: int = 0
    """Handed back when their process was stopped."""
    deaths: int = 0
    """Nobody said how: the process was killed, or lost its lease."""
    earlier: int = 0
    """Of these events, together with others that have come to their end since."""

    @property
    def one_by_one(self) -> bool:
        return self.errors + self.deaths >= _ONE_BY_ONE_AFTER or self.earlier >= _ONE_BY_ONE_AFTER

    @property
    def suspect(self) -> bool:
        """Whether it may be what kills its workers, or only ran beside that."""
        return self.deaths >= _ONE_BY_ONE_AFTER

    @property
    def deadly(self) -> bool:
        return self.deaths >= _DEATHS


class FailurePolicy:
    """What becomes of turns that fail: tried again, told, put aside. The conversation goes on."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context

    async def before(self, lease: Lease) -> AttemptHistory:
        """What is known of the attempts before this one."""
        earlier = max(0, lease.events[0].tries - lease.tries)
        if not lease.tries:
            return AttemptHistory(earlier=earlier)
        key = _failures_key(self._context, lease)
        known = AttemptHistory(**cast("dict[str, Any]", (await self._context.store.get([key]))[key].value or {}))
        deaths = max(0, lease.tries - known.model - known.errors - known.stopped)
        return replace(known, deaths=deaths, earlier=earlier)

    async def model_down(self, lease: Lease, batch: Batch, tries: AttemptHistory) -> None:
        """Told once, kept, and tried again; given up in the end, and told."""
        if tries.model >= len(_MODEL_AGAIN_SECONDS):
            await self.put_aside(lease, batch, "the model could not be reached", key="gave_up")
            return
        transaction = await self._again(
            lease, replace(tries, model=tries.model + 1), wait_seconds=_MODEL_AGAIN_SECONDS[tries.model]
        )
        if not tries.model:
            await self._tell(transaction, lease.lane, batch, "model_down")
        await self._context.commit(transaction)

    async def refused(self, lease: Lease, batch: Batch, refusal: Refusal) -> None:
        """Put aside and told at once: the same request would be refused again."""
        if refusal == "too_long":
            await self.put_aside(lease, batch, "it is too long for the model", key="history_too_long")
        else:
            await self.put_aside(lease, batch, "the model's vendor refused the request")

    async def failed(self, lease: Lease, batch: Batch, tries: AttemptHistory) -> None:
        """Tried again, then event by event (unless it has done something already), then put aside."""
        if tries.errors >= len(_AGAIN_SECONDS):
            await self.put_aside(lease, batch, "its turn failed again and again")
            return
        transaction = await self._again(
            lease, replace(tries, errors=tries.errors + 1), wait_seconds=_AGAIN_SECONDS[tries.errors]
        )
        await self._context.commit(transaction)

    async def stopped(self, lease: Lease, tries: AttemptHistory, *, wait_seconds: float = 0.0) -> None:
        """It is not for this process: others need not wait until the lease lapses, and go on from the last finished
        step."""
        transaction = await self._again(lease, replace(tries, stopped=tries.stopped + 1), wait_seconds=wait_seconds)
        await self._context.commit(transaction)

    async def put_aside(
        self,
        lease: Lease,
        batch: Batch,
        reason: str,
        *,
        key: str = "error_incident",
        raised: Exception | None = None,
    ) -> None:
        """What was written becomes dead letters, and the person is told; what was only to be noted still is.

        `raised`: instead of the person, whoever called for the turn is told of this error.
        """
        transaction, conversation = finish_turn(self._context, lease, batch), lease.lane
        await write_acted(transaction, self._context, lease, batch)
        incident = secrets.token_hex(4)
        written = [waiting for waiting in batch.taken if waiting.body.get("kind") != "settled"]
        if written:
            append_transcript(transaction, self._context, conversation, batch.notes)
        transaction.dead = [
            Dead(
                dead_id=f"{incident}-{waiting.seq}",
                conversation=conversation,
                reason=reason,
                incoming=Incoming(
                    conversation=conversation,
                    event_ids=(f"replay/{incident}/{waiting.seq}",),
                    body=waiting.body if batch.forged else self._context.for_replay(waiting),
                ),
            )
            for waiting in written or batch.taken
        ]
        if raised is not None:
            post_result(transaction, self._context, conversation, batch, raised)
        else:
            await self._tell(transaction, conversation, batch, key, incident=incident)
        await self._context.commit(transaction)
        event_log.committed(conversation, batch.taken, transaction, "put aside")
        log.error("a turn of %s is put aside (%s): %s", conversation, incident, reason)

    async def _again(self, lease: Lease, tries: AttemptHistory, *, wait_seconds: float) -> Transaction:
        known = asdict(tries)
        del known["deaths"], known["earlier"]
        return Transaction(
            partition=lease.partition,
            lease=lease,
            finish="failed",
            due=await self._context.store.now() + timedelta(seconds=wait_seconds),
            puts={_failures_key(self._context, lease).name: Put(known)},
        )

    async def _tell(self, transaction: Transaction, conversation: str, batch: Batch, key: str, **values: str) -> None:
        address, person = await turn_owner(self._context, conversation, batch)
        language, cause = self._context.language(person), event_log.event_of(batch.taken[-1])
        told = OutgoingReply(reply=Reply(text=say(key, language, **values)))
        says = [told, *await self._still_open(conversation, person)]
        transaction.parts += self._context.parts.render(conversation, address, says, cause=cause, language=language)

    async def _still_open(self, conversation: str, person: Person) -> list[OutgoingReply]:
        """Return what is not done yet; nothing where that cannot be read, which may be why the turn has failed."""
        try:
            actions = await self._context.actions(conversation)
        except (ValueError, NewerForm):
            return []
        remind(actions, actions.open_for(str(person)))
        return actions.says


async def turn_owner(context: EngineContext, conversation: str, batch: Batch) -> tuple[Address, Person]:
    """Whose turn it is: the writer's, else that of whoever asked for the action whose outcome is noted."""
    for message in batch.messages:
        if message.person is not None:
            return message.address, message.person
    for waiting in batch.taken:
        if (action_id := waiting.body.get("action_id")) is not None:
            action = (await context.actions(conversation, str(action_id))).get(str(action_id))
            if action is not None and action.address is not None:
                person = person_of(action.requester, action.requester_name)
                return action.address, replace(person, language=action.language)
    address = Address.parse(conversation.partition("/")[2])
    return address, Person(channel=address.channel, account=address.account, user_id="-")


def finish_turn(context: EngineContext, lease: Lease, batch: Batch) -> Transaction:
    """Return what ends every turn: its events consumed."""
    transaction, conversation = release(context, lease), lease.lane
    transaction.consume = [(conversation, waiting.seq) for waiting in batch.taken]
    for message in batch.messages:
        person_line(transaction, context, conversation, message)
    forget_folded(transaction, context, lease, batch)
    if batch.messages:
        transaction.deletes.append(unreachable_key(context.store, conversation).name)
    return transaction


def note_acted(actions: ConversationActions, batch: Batch) -> None:
    """Note when the person of this turn wrote last: a bare yes counts only if nothing else came after its question."""
    if batch.messages:
        actions.note_acted(batch.messages[0].person, max([batch.at, *batch.heard_beside(batch.written)]))


async def write_acted(transaction: Transaction, context: EngineContext, lease: Lease, batch: Batch) -> None:
    """Write down when the person of this turn wrote last, where that may ever matter."""
    if batch.messages and context.hears(lease, batch.messages[0].person):
        actions = await context.actions(lease.lane)
        note_acted(actions, batch)
        actions.write(transaction)
        address = batch.messages[0].address
        language, cause = actions.language, event_log.event_of(batch.taken[-1])
        transaction.parts += context.parts.render(lease.lane, address, actions.says, cause=cause, language=language)


def release(context: EngineContext, lease: Lease) -> Transaction:
    """The lane given back without a failure: what failed before is forgotten."""
    forgotten = [_failures_key(context, lease).name] if lease.tries else []
    return Transaction(partition=lease.partition, lease=lease, finish="done", deletes=forgotten)


def append_transcript(
    transaction: Transaction, context: EngineContext, conversation: str, messages: Iterable[ModelMessage]
) -> None:
    """Lines for the transcript."""
    name = context.key(conversation, "transcript").name
    transaction.appends += [(name, line) for line in to_entries(messages)]


def _failures_key(context: EngineContext, lease: Lease) -> Key:
    return context.key(lease.lane, "failures")
