"""The attempt state of a part: the knowledge of earlier calls, and the next step for the part.

    none ──unanswered──▶ sent ──warned──▶ noted ──repeating──▶ repeated
                                            ▲                     │
                                            └───────refused───────┘

    none      no call is without an answer: the part is sent
    sent      a call got no answer, or the worker died: the part may have arrived
    noted     the person was warned that the next message may be a duplicate
    repeated  a second call was about to be made after the warning: the part may have arrived twice

`unanswered` changes only the state `none`. `refused` changes only the state `repeated`.

Before a second call, a platform with reports or look-ups is asked. If the platform knows the message, the part has a
receipt. If the platform knows that no message arrived, the part is sent again without a warning, and the state stays.
Otherwise a prompt and an edit are sent again: all buttons of a prompt stay valid, and an edit shows the same. Any other
part is sent once more after a warning, or not at all, as the bot chooses (`in_doubt`).

Each state except `none` is committed before the call guarded by the state; see `AttemptRecord`.

The functions are pure. An `AttemptRecord` is the stored state: read at most once a part, and each change committed
under the lease of the outbox.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias

from channels import Ambiguous, Json, OptedOut, RateLimited, Receipt, SendError, Undeliverable, Unreachable
from channels.errors import Portable
from gateway.engine.context import EngineContext
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key, Lease, QueuedPart
from gateway.stored import keys

AttemptState: TypeAlias = Literal["none", "sent", "noted", "repeated"]

GIVE_UP_AFTER = timedelta(hours=24)
"""Parts of this age are no longer tried."""
_REPORTED_WITHIN_SECONDS = 10.0
"""Time limit for a reporting platform to name the message of an accepted, unanswered call."""
_BACKOFF_SECONDS = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0)
"""The wait after a failed call, by the number of earlier failures."""


class WrongAttempt(Portable, ValueError):
    """The event cannot happen in this state."""

    def __init__(self, state: AttemptState, event: str) -> None:
        super().__init__(f"the attempt state is {state}: it cannot become {event}")


def state_from_json(stored: Json) -> AttemptState:
    """Read the stored state. An unknown value counts as `repeated`, the most cautious state."""
    match stored:
        case None:
            return "none"
        case "sent":
            return "sent"
        case "noted":
            return "noted"
        case _:
            return "repeated"


def unanswered(state: AttemptState) -> AttemptState:
    """Return the state after a call without an answer, or after the death of the worker."""
    return "sent" if state == "none" else state


def refused(state: AttemptState) -> AttemptState:
    """Return the state after a refused call. A refused repetition may be made again."""
    return "noted" if state == "repeated" else state


def warned(state: AttemptState) -> AttemptState:
    """Return the state after the warning of a duplicate. Raises WrongAttempt unless the state is `sent`."""
    if state != "sent":
        raise WrongAttempt(state, "noted")
    return "noted"


def repeating(state: AttemptState) -> AttemptState:
    """Return the state just before the repeated call. Raises WrongAttempt unless the person was warned."""
    if state != "noted":
        raise WrongAttempt(state, "repeated")
    return "repeated"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFacts:
    """The facts for the decision about a part beside the state: age, person, answers of the platform."""

    receipt: Receipt | None = None
    """The receipt of an earlier call, if the platform knows the message."""
    absent: bool = False
    """The platform knows that no earlier call arrived."""
    opted_out: bool = False
    too_old: bool = False
    """The part waits longer than `GIVE_UP_AFTER`."""
    worker_died: bool = False
    """The previous worker may have died during a call of this part."""
    settled: bool = False
    """The part is a prompt of a delayed outbox, and no action of the prompt is open any more."""
    harmless: bool = False
    """The part is a prompt, an edit or the end of a streamed answer: a duplicate does no harm."""
    may_repeat: bool = True
    """The bot allows another sending of a part that may have arrived (`in_doubt`)."""


@dataclass(frozen=True, slots=True)
class TakeReceipt:
    """An earlier call arrived: commit the receipt without a call."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Remember:
    """Commit `unanswered`, then plan again: a worker died, and the state is still `none`."""


@dataclass(frozen=True, slots=True)
class Warn:
    """Warn the person of a duplicate, commit `warned`, then plan again."""


@dataclass(frozen=True, slots=True)
class Send:
    """Call the platform."""

    repeats: bool = False
    """Commit `repeating` immediately before the call."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Take the part out of the outbox without a trace."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Make the part a dead letter."""

    reason: str


@dataclass(frozen=True, slots=True)
class Suppress:
    """Make dead letters of the conversation's parts, and put the conversation on the suppression list."""

    refusal: OptedOut | Unreachable


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Release the lane, and try the part again later."""

    seconds: float
    why: str
    """The reason, for the log."""
    failed: bool
    """The call counts as a failure: the next wait is longer."""


def plan(state: AttemptState, facts: PartFacts) -> TakeReceipt | GiveUp | Remember | Drop | Warn | Send:
    """Return the next step for a part waiting to be sent."""
    if facts.receipt is not None:
        return TakeReceipt(facts.receipt)
    if facts.opted_out:
        return GiveUp("not sent: they have opted out")
    if facts.too_old:
        return GiveUp("it waited for too long")
    if state == "none" and facts.worker_died:
        return Remember()
    if state == "none" and facts.settled:
        return Drop()  # a prompt that may have arrived is sent again instead, and edited at once to show the outcome
    if state == "none" or facts.absent or facts.harmless:
        return Send()
    if state == "repeated" or not facts.may_repeat:
        return GiveUp("it may have been sent")
    return Warn() if state == "sent" else Send(repeats=True)


def plan_after_failure(
    error: SendError, *, droppable: bool, edits: bool, failures: int, reports: bool
) -> Drop | Suppress | GiveUp | Wait:
    """Return the next step for a part after this error of a call.

    `droppable`: the part, for example a typing notice, is never retried. `edits`: the part is an edit. An undeliverable
    edit is dropped, because the message may be deleted. `failures` counts the earlier failed leases of the lane.
    `reports`: the platform sends delivery reports. After an unanswered call the wait leaves time for a report.
    """
    if droppable:
        return Drop()
    match error:
        case OptedOut() | Unreachable():
            return Suppress(error)
        case Undeliverable():
            return Drop() if edits else GiveUp(f"not deliverable: {error.code}")
        case RateLimited():
            return Wait(seconds=error.retry_after_seconds, why=error.code, failed=False)
    seconds = _BACKOFF_SECONDS[min(failures, len(_BACKOFF_SECONDS) - 1)]
    if isinstance(error, Ambiguous) and reports:
        seconds = max(seconds, _REPORTED_WITHIN_SECONDS)
    return Wait(seconds=seconds, why=f"{type(error).__name__}: {error.code}", failed=True)


_KEPT_SECONDS = 86400.0
"""As long as a part is tried."""


class AttemptRecord:
    """The attempt state of a part, during the delivery by a worker."""

    def __init__(self, context: EngineContext, lease: Lease, queued: QueuedPart) -> None:
        self._context, self._lease, self.queued = context, lease, queued
        self._state: AttemptState | None = None

    async def state(self) -> AttemptState:
        """Return the state. The first call reads the state from the store."""
        if self._state is None:
            key = _key(self._context, self.queued)
            self._state = state_from_json((await self._context.store.get([key]))[key].value)
        return self._state

    async def change(self, event: Callable[[AttemptState], AttemptState]) -> AttemptState:
        """Commit the state after the event, in a separate transaction, and return the state.

        An unchanged state is not committed. Raises Fenced when the lease is lost.
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
    """Delete the state of a dead letter: an operator replaying the part accepts a duplicate."""
    transaction.deletes.append(_key(context, queued).name)


def _key(context: EngineContext, queued: QueuedPart) -> Key:
    return keys.key(context.store, queued.conversation, keys.attempt_state, queued.part_id)
