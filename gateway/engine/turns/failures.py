"""Failed turns: retried with backoff, and dead-lettered in the end."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import timedelta
from typing import Self

from channels import Json, Person, Reply
from gateway.engine.context import EngineContext
from gateway.engine.event_bodies import replay_body
from gateway.engine.turns.conclusion import TurnConcluder, new_ending
from gateway.engine.turns.feature import RunningTurn
from gateway.engine.turns.live import begun_messages
from gateway.memory import to_entries
from gateway.pending.actions import OutgoingReply
from gateway.pending.prompting import remind
from gateway.providers.base import Refusal
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Dead, Incoming, Lease
from gateway.stored import keys
from gateway.wording import say

log = logging.getLogger("askfirst.turns")

_MODEL_BACKOFF_SECONDS = (5.0, 30.0, 120.0, 600.0)
"""The waits after the first failures to reach the model. The next failure is the last."""
_ERROR_BACKOFF_SECONDS = (1.0, 5.0)
"""The waits after the first other errors. The next error is the last."""
_ONE_BY_ONE_AFTER = 2
"""The number of failures after which messages are no longer joined. A single message may make the turn fail."""
_REFUSALS: Mapping[Refusal, str] = {
    "too_long": "it is too long for the model",
    "invalid": "the model's vendor refused the request",
    "unusable": "the model's answers could not be used",
}
_DEATHS = 4
"""The number of worker deaths after which a turn becomes a dead letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptHistory:
    """The ends of earlier attempts at a turn, since the end of the last turn."""

    model: int = 0
    """Attempts in which the model could not be reached."""
    errors: int = 0
    """Attempts ended by another error."""
    stopped: int = 0
    """Attempts given back by the process, mostly because of a stop."""
    deaths: int = 0
    """Attempts without a recorded end: the process was killed, or lost the lease."""
    earlier: int = 0
    """Failed attempts at larger batches with these events. The other events have ended since."""

    @property
    def one_by_one(self) -> bool:
        """True if messages are not joined any more."""
        return self.errors + self.deaths >= _ONE_BY_ONE_AFTER or self.earlier >= _ONE_BY_ONE_AFTER

    @property
    def suspect(self) -> bool:
        """True if this turn may be the cause of the worker deaths.

        The turn may also only have been running when another turn killed the workers.
        """
        return self.deaths >= _ONE_BY_ONE_AFTER

    @property
    def deadly(self) -> bool:
        """True if the turn is not tried again, because of too many worker deaths."""
        return self.deaths >= _DEATHS

    @classmethod
    def from_json(cls, stored: Json) -> Self:
        """Read a stored history; empty for None. Raises TypeError for unknown fields."""
        if stored is None:
            return cls()
        if not isinstance(stored, dict) or not set(stored) <= {field.name for field in fields(cls)}:
            raise TypeError("not a history of attempts")
        return cls(**{name: count for name, count in stored.items() if isinstance(count, int)})

    def to_json(self) -> dict[str, Json]:
        """Return the stored form, without the counts derived from the store's tries."""
        stored = asdict(self)
        del stored["deaths"], stored["earlier"]
        return stored


class FailurePolicy:
    """Decides if a failed turn is retried, or becomes a dead letter. Either way the conversation goes on."""

    def __init__(self, context: EngineContext, concluder: TurnConcluder) -> None:
        self._context, self._concluder = context, concluder

    async def history(self, lease: Lease) -> AttemptHistory:
        """Return the history of the attempts before this lease."""
        earlier = max(0, lease.events[0].tries - lease.tries)
        if not lease.tries:
            return AttemptHistory(earlier=earlier)
        key = keys.key(self._context.store, lease.lane, keys.failures)
        known = AttemptHistory.from_json((await self._context.store.get([key]))[key].value)
        deaths = max(0, lease.tries - known.model - known.errors - known.stopped)
        return replace(known, deaths=deaths, earlier=earlier)

    async def on_model_down(self, turn: RunningTurn, history: AttemptHistory) -> None:
        """Retry a turn after the model could not be reached. The person is notified at the first failure and at the
        last."""
        if history.model >= len(_MODEL_BACKOFF_SECONDS):
            await self.dead_letter(turn, "the model could not be reached", key="gave_up")
            return
        transaction = await self._retry(
            turn.lease, replace(history, model=history.model + 1), wait_seconds=_MODEL_BACKOFF_SECONDS[history.model]
        )
        if not history.model:
            await self._say_model_down(transaction, turn)
        await self._context.commit(transaction)

    async def on_refusal(self, turn: RunningTurn, refusal: Refusal) -> None:
        """Dead-letter a turn without retries: another call to the model would be refused or answered alike."""
        reason = _REFUSALS[refusal]
        await self.dead_letter(turn, reason, key="history_too_long" if refusal == "too_long" else "error_incident")

    async def on_error(self, turn: RunningTurn, history: AttemptHistory) -> None:
        """Retry a turn after an error. After two failures messages are taken singly, except in a turn with recorded
        steps."""
        if history.errors >= len(_ERROR_BACKOFF_SECONDS):
            await self.dead_letter(turn, "its turn failed again and again")
            return
        transaction = await self._retry(
            turn.lease, replace(history, errors=history.errors + 1), wait_seconds=_ERROR_BACKOFF_SECONDS[history.errors]
        )
        await self._context.commit(transaction)

    async def hand_back(self, lease: Lease, history: AttemptHistory, *, wait_seconds: float = 0.0) -> None:
        """Give a turn to other processes. The next process continues after the last finished step, without waiting for
        the lease to lapse."""
        transaction = await self._retry(lease, replace(history, stopped=history.stopped + 1), wait_seconds=wait_seconds)
        await self._context.commit(transaction)

    async def dead_letter(
        self, turn: RunningTurn, reason: str, *, key: str = "error_incident", raised: Exception | None = None
    ) -> None:
        """Make dead letters of the events of a turn, and notify the person with the text of `key`.

        Outcomes of actions beside other events become no dead letters, and are kept for the next turn. With `raised`,
        the caller of the turn gets this error, and the person is not notified.
        """
        batch, language = turn.batch, self._context.language(turn.person)
        ending, incident = new_ending(self._context, turn, language), secrets.token_hex(4)
        others = [waiting for waiting in batch.taken if waiting.seq not in batch.outcomes]
        ending.lines = to_entries(batch.notes) if others else ()
        ending.error = raised
        ending.transaction.dead = [
            Dead(
                dead_id=f"{incident}-{waiting.seq}",
                conversation=turn.conversation,
                reason=reason,
                incoming=Incoming(
                    conversation=turn.conversation,
                    event_ids=(f"replay/{incident}/{waiting.seq}",),
                    body=waiting.body if batch.forged else replay_body(self._context.keyring, waiting),
                ),
            )
            for waiting in others or batch.taken
        ]
        if raised is None:
            ending.says = await self._told(turn, say(key, language, incident=incident))
        await self._concluder.end(ending, "put aside")
        log.error("a turn of %s is put aside (%s): %s", turn.conversation, incident, reason)

    async def _retry(self, lease: Lease, history: AttemptHistory, *, wait_seconds: float) -> Transaction:
        return Transaction(
            partition=lease.partition,
            lease=lease,
            finish="failed",
            due=await self._context.store.now() + timedelta(seconds=wait_seconds),
            puts={keys.failures(lease.lane): Put(history.to_json())},
        )

    async def _say_model_down(self, transaction: Transaction, turn: RunningTurn) -> None:
        """Queue the notice of a later answer, in the place of the preview."""
        language, place = self._context.language(turn.person), turn.conversation
        streamed = await begun_messages(self._context, place, turn.events.run_id)
        if streamed:
            transaction.deletes.append(keys.streamed(place))
        says = await self._told(turn, say("model_down", language))
        transaction.parts += self._context.parts.render(
            place,
            turn.address,
            says,
            cause=turn.cause,
            language=language,
            streamed=streamed,
            reader=str(turn.person),
        )

    async def _told(self, turn: RunningTurn, text: str) -> list[OutgoingReply]:
        """Return a text for the person of a turn, and the open questions again."""
        return [OutgoingReply(reply=Reply(text=text)), *await self._still_open(turn.conversation, turn.person)]

    async def _still_open(self, conversation: str, person: Person) -> list[OutgoingReply]:
        """Return the reminders of the person's open actions. Empty for unreadable actions, a possible reason of the
        failure."""
        try:
            actions = await self._context.actions(conversation)
        except ValueError:
            return []
        remind(actions, actions.open_for(str(person)))
        return actions.says
