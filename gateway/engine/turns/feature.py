"""The seam between turns and the features of turns.

The stages of a turn are lease, batch, begin, before, bot, contribute, commit. A feature is a `TurnFeature` and takes
part in some of the stages. `features.FEATURES` lists all features in order.
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
    """The text of a turn, shown in the chat while the model writes."""

    message_ids: Sequence[str]
    """The ids of the messages with the text."""
    in_doubt: bool
    """True after a call without an answer: the platform may still show the text, also over the turn's answer."""
    since: datetime | None
    """The earliest time at which this attempt's text may have been seen; None before."""

    @property
    def words(self) -> str:
        """The words of the model's reply so far; before the first word of a reply, those of the reply before."""
        ...

    @property
    def is_whole(self) -> bool:
        """True if `words` are a whole reply, before the first word of the next one."""
        ...

    def is_shown(self) -> bool:
        """Return True if a part of the text has been shown."""
        ...

    async def ended(self) -> None:
        """End the preview."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class RunningTurn:
    """An attempt at a turn, under a lease."""

    lease: Lease
    batch: Batch
    signals: SignalInbox
    address: Address
    person: Person
    events: RunTeller
    """Emits the events of this turn, also to the trace."""
    prefetched: Snapshot | None
    """The records read with the lease. None if unreadable, or if a decision was made since."""
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
    """The commit at the end of a turn, while the features make additions."""

    turn: RunningTurn
    transaction: Transaction
    language: str
    outcome: Outcome | None = None
    """None if neither the bot nor a question asked again has answered."""
    error: Exception | None = None
    """The error for the bot's own code waiting for the turn."""
    lines: Sequence[Json] = ()
    """The lines for the transcript."""
    says: list[OutgoingReply] = field(default_factory=list)
    """The messages to the person."""
    actions: ConversationActions | None = None
    """The actions of the conversation as changed by a decision. None without a change by a decision."""
    streamed: Sequence[str] = ()
    """The messages of the preview, replaced by the first messages of `says`."""
    in_place: bool = True
    """False if the preview's messages are deleted instead."""


class TurnFeature:
    """A feature of turns, made once for each process. The default methods have no effect."""

    reads: ClassVar[Sequence[str]] = ()
    """The prefixes of the conversation's records to read with the lease."""

    def __init__(self, context: EngineContext) -> None:
        self.context = context

    async def begin(self, turn: RunningTurn) -> None:
        """Begin an attempt. The feature may change the batch."""

    async def before(self, turn: RunningTurn, asked: Turn) -> Outcome | None:
        """Change the input of the bot, or answer in place of the bot. Counts towards the time limit of the turn."""
        return None

    async def after(self, turn: RunningTurn) -> None:
        """Called when the bot has answered or failed."""

    async def contribute(self, ending: Ending) -> None:
        """Add to the final commit of the turn. Each attempt at this commit begins with a new `Ending`."""

    def committing(self, turn: RunningTurn, transaction: Transaction) -> contextlib.AbstractContextManager[None]:
        """Return the block around a commit of a step or of the turn's end. The feature may add to the transaction."""
        return contextlib.nullcontext()

    def ended(self, turn: RunningTurn) -> None:
        """Called when an attempt has ended, with a commit or without."""


class TurnFeatures:
    """The ordered features of the turns of a process. A stage enters only the features with a part in the stage."""

    def __init__(self, features: Sequence[TurnFeature]) -> None:
        self._begin, self._before = _taking_part(features, "begin"), _taking_part(features, "before")
        self._after, self._contribute = _taking_part(features, "after"), _taking_part(features, "contribute")
        self._committing, self._ended = _taking_part(features, "committing"), _taking_part(features, "ended")

    async def begin(self, turn: RunningTurn) -> None:
        """Begin an attempt at a turn."""
        for feature in self._begin:
            await feature.begin(turn)

    async def before(self, turn: RunningTurn, asked: Turn) -> Outcome | None:
        """Change the input of the bot. The first answer of a feature ends the stage."""
        for feature in self._before:
            if (outcome := await feature.before(turn, asked)) is not None:
                return outcome
        return None

    async def after(self, turn: RunningTurn) -> None:
        """Called when the bot has answered or failed."""
        for feature in self._after:
            await feature.after(turn)

    async def contribute(self, ending: Ending) -> None:
        """Add to the final commit of a turn."""
        for feature in self._contribute:
            await feature.contribute(ending)

    @contextlib.contextmanager
    def committing(self, turn: RunningTurn, transaction: Transaction) -> Iterator[None]:
        """Add to a commit of the turn, made in the block."""
        with contextlib.ExitStack() as stack:
            for feature in self._committing:
                stack.enter_context(feature.committing(turn, transaction))
            yield

    def ended(self, turn: RunningTurn) -> None:
        """Called when an attempt has ended."""
        for feature in self._ended:
            feature.ended(turn)


def _taking_part(features: Sequence[TurnFeature], stage: str) -> list[TurnFeature]:
    """Return the features with a method of their own for a stage."""
    return [each for each in features if getattr(type(each), stage) is not getattr(TurnFeature, stage)]
