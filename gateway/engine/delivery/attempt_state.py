"""The attempt state of a part: the knowledge of its earlier calls, and the next step for it.

    none ──unanswered──▶ sent ──warned──▶ noted ──repeating──▶ repeated
                                            ▲                     │
                                            └───────refused───────┘

    none      no call is without an answer: the part is sent
    sent      a call got no answer, or its worker died: the part may have arrived
    noted     the person was told that the next message may be a duplicate
    repeated  a second call was about to be made after that warning: the part may have arrived twice

`unanswered` changes only the state `none`. `refused` changes only the state `repeated`.

A platform that reports on its messages, or lets them be looked up, is asked before a second call. If it knows the
message, the part has its receipt. If it knows that there is none, the part is sent again without a warning, and its
state stays. Otherwise a prompt and an edit are sent again: all buttons of a prompt stay good, and an edit shows the
same. Any other part is sent once more after a warning, or not at all, as the bot chooses (`in_doubt`).

Each state but `none` is committed before the call that it guards; see `attempt_record`.

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
"""The age at which a part is no longer tried."""
_REPORTED_WITHIN_SECONDS = 10.0
"""Time within which a reporting platform names the message of a call that it took but did not answer."""
_BACKOFF_SECONDS = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0)
"""The wait after a failed call, by the number of failures before it."""


class WrongAttempt(Portable, ValueError):
    """The event cannot happen in this state."""

    def __init__(self, state: AttemptState, event: str) -> None:
        super().__init__(f"the attempt state is {state}: it cannot become {event}")


def state_from_json(stored: Json) -> AttemptState:
    """Read the stored state. An unknown value counts as `repeated`: that part is never sent again."""
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
    """Return the state after a call without an answer, or after the death of its worker."""
    return "sent" if state == "none" else state


def refused(state: AttemptState) -> AttemptState:
    """Return the state after a call that the platform refused. A repetition that was refused may be made again."""
    return "noted" if state == "repeated" else state


def warned(state: AttemptState) -> AttemptState:
    """Return the state once the person was warned of a duplicate. Raises WrongAttempt unless the state is `sent`."""
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
    """The facts that decide about a part beside its state: its age, its person, the platform's answers."""

    receipt: Receipt | None = None
    """The receipt of an earlier call, if the platform knows its message."""
    absent: bool = False
    """The platform knows that no earlier call arrived."""
    opted_out: bool = False
    too_old: bool = False
    """The part waits longer than `GIVE_UP_AFTER`."""
    worker_died: bool = False
    """The worker before this one may have died during a call of this part."""
    settled: bool = False
    """The part is a prompt that was tried before, and none of its actions is open any more."""
    harmless: bool = False
    """The part is a prompt or an edit: a duplicate misleads no one."""
    may_repeat: bool = True
    """The bot lets a part that may have arrived be sent once more (`in_doubt`)."""


@dataclass(frozen=True, slots=True)
class TakeReceipt:
    """An earlier call arrived: commit its receipt without a call."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Remember:
    """Commit `unanswered`, then plan again: a worker died, and no state says so yet."""


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
    """Make dead letters of all parts of the conversation, and put it on the suppression list."""

    refusal: OptedOut | Unreachable


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Give the lane back, and try the part again later."""

    seconds: float
    why: str
    """The reason, for the log."""
    failed: bool
    """The call counts as a failure, so that the next wait is longer."""


def plan(state: AttemptState, facts: PartFacts) -> TakeReceipt | GiveUp | Remember | Drop | Warn | Send:
    """Return the next step for a part that waits to be sent."""
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
    """Return the next step for a part after its call raised this error.

    `droppable`: the part, such as a typing notice, is never retried. `edits`: the part is an edit. It is dropped if it
    cannot be delivered, because its message may be deleted. `failures` counts the failed leases of the lane before this
    one. `reports`: the platform reports on its messages. After a call without an answer it gets the time to do so.
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
    """The attempt state of one part, for as long as one worker delivers it."""

    def __init__(self, context: EngineContext, lease: Lease, queued: QueuedPart) -> None:
        self._context, self._lease, self.queued = context, lease, queued
        self._state: AttemptState | None = None

    async def state(self) -> AttemptState:
        """Return the state, which the first call reads from the store."""
        if self._state is None:
            key = _key(self._context, self.queued)
            self._state = state_from_json((await self._context.store.get([key]))[key].value)
        return self._state

    async def change(self, event: Callable[[AttemptState], AttemptState]) -> AttemptState:
        """Commit the state that the event leads to, in a transaction of its own, and return it.

        Without a change there is no commit. Raises Fenced when the lease is lost.
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
    """Delete the state of a dead letter: an operator that replays it accepts a duplicate."""
    transaction.deletes.append(_key(context, queued).name)


def _key(context: EngineContext, queued: QueuedPart) -> Key:
    return keys.key(context.store, queued.conversation, keys.attempt_state, queued.part_id)
