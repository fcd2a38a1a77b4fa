"""The seam between turns and their features.

The stages of a turn are lease, batch, begin, before, bot, contribute, commit. A feature is one `TurnFeature` and takes
part in the stages of its concern. `features.FEATURES` lists all features in their order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Protocol

from channels import Address, Json, Person
from channels.direct import DirectChannel
from gateway.agent import LiveText
from gateway.bot.turn import Outcome, Turn, TurnExpenses
from gateway.engine.context import EngineContext
from gateway.engine.telling import event_id_of
from gateway.engine.turns.batch import Batch
from gateway.engine.turns.checkpoint import StoreJournal
from gateway.engine.turns.interrupts import SignalInbox
from gateway.observe.teller import RunTeller
from gateway.pending.actions import ConversationActions, OutgoingReply
from gateway.store.transaction import Transaction
from gateway.store.types import Lease, Snapshot


class LivePreview(LiveText, Protocol):
    """The text of a turn, which the chat shows while the model writes it."""

    message_ids: Sequence[str]
    """The messages that show the text."""
    in_doubt: bool
    """True after a call without an answer: the platform may still show the text, also over the turn's answer."""
    since: datetime | None
    """The first time at which this attempt's text may have been seen; None before it."""

    def is_shown(self) -> bool:
        """Return True if a part of the text has been shown."""
        ...

    async def ended(self) -> None:
        """End the preview."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class RunningTurn:
    """One attempt at a turn, under its lease."""

    lease: Lease
    batch: Batch
    signals: SignalInbox
    address: Address
    person: Person
    events: RunTeller
    """Tells the events of this turn, also to its trace."""
    prefetched: Snapshot | None
    """The records that were read with the lease. None if they could not be read, or if a decision was made since."""
    journal: StoreJournal = field(init=False)
    expenses: TurnExpenses = field(init=False)
    preview: LivePreview | None = None
    """None where the channel or the agent shows no unfinished text."""

    @property
    def conversation(self) -> str:
        return self.lease.lane

    @property
    def direct(self) -> bool:
        """True if the turn answers the bot's own code, in a call of `ask_channel`."""
        return self.address.channel == DirectChannel.name

    @property
    def cause(self) -> str:
        """The id of the event that began the turn."""
        return event_id_of(self.batch.began_by)


@dataclass(slots=True, kw_only=True)
class Ending:
    """The commit that ends a turn, while the features add to it."""

    turn: RunningTurn
    transaction: Transaction
    language: str
    outcome: Outcome | None = None
    """None if neither the bot nor a question asked again has answered."""
    error: Exception | None = None
    """The error for the bot's own code that waits for the turn."""
    lines: Sequence[Json] = ()
    """The lines for the transcript."""
    says: list[OutgoingReply] = field(default_factory=list)
    """The messages to the person."""
    actions: ConversationActions | None = None
    """The actions of the conversation as a decision has changed them. None: they are as the store has them."""
    streamed: Sequence[str] = ()
    """The messages of the preview, whose place the first messages of `says` take."""
    in_place: bool = True
    """False if the preview's messages are deleted instead."""


class TurnFeature:
    """A feature of turns, made once for each process. By default it does nothing at any stage."""

    reads: ClassVar[Sequence[str]] = ()
    """The prefixes of the conversation's records that are read with the lease."""

    def __init__(self, context: EngineContext) -> None:
        self.context = context

    async def begin(self, turn: RunningTurn) -> None:
        """Begin an attempt. The feature may change the batch."""

    async def before(self, turn: RunningTurn, asked: Turn) -> Outcome | None:
        """Change the input of the bot, or answer in its place. It counts towards the time limit of the turn."""
        return None

    async def after(self, turn: RunningTurn) -> None:
        """Follow the bot, which has answered or failed."""

    async def contribute(self, ending: Ending) -> None:
        """Add to the commit that ends the turn. Each attempt at this commit begins with a new one."""

    def committing(self, turn: RunningTurn, transaction: Transaction) -> contextlib.AbstractContextManager[None]:
        """Return the block of a commit that records a step of the turn, or its end. The feature may add to it."""
        return contextlib.nullcontext()

    def ended(self, turn: RunningTurn) -> None:
        """Follow the end of an attempt, with a commit or without."""


class TurnFeatures:
    """The features of the turns of one process, in their order. A stage enters only the features with a part in it."""

    def __init__(self, features: Sequence[TurnFeature]) -> None:
        self._begin, self._before = _taking_part(features, "begin"), _taking_part(features, "before")
        self._after, self._contribute = _taking_part(features, "after"), _taking_part(features, "contribute")
        self._committing, self._ended = _taking_part(features, "committing"), _taking_part(features, "ended")

    async def begin(self, turn: RunningTurn) -> None:
        """Begin an attempt at a turn."""
        for feature in self._begin:
            await feature.begin(turn)

    async def before(self, turn: RunningTurn, asked: Turn) -> Outcome | None:
        """Change the input of the bot. The first feature that answers is the last one that is asked."""
        for feature in self._before:
            if (outcome := await feature.before(turn, asked)) is not None:
                return outcome
        return None

    async def after(self, turn: RunningTurn) -> None:
        """Follow the bot."""
        for feature in self._after:
            await feature.after(turn)

    async def contribute(self, ending: Ending) -> None:
        """Add to the commit that ends a turn."""
        for feature in self._contribute:
            await feature.contribute(ending)

    @contextlib.contextmanager
    def committing(self, turn: RunningTurn, transaction: Transaction) -> Iterator[None]:
        """Add to a commit of the turn, which is made in the block."""
        with contextlib.ExitStack() as stack:
            for feature in self._committing:
                stack.enter_context(feature.committing(turn, transaction))
            yield

    def ended(self, turn: RunningTurn) -> None:
        """Follow the end of an attempt."""
        for feature in self._ended:
            feature.ended(turn)


def _taking_part(features: Sequence[TurnFeature], stage: str) -> list[TurnFeature]:
    """Return the features with a method of their own for a stage."""
    return [each for each in features if getattr(type(each), stage) is not getattr(TurnFeature, stage)]
