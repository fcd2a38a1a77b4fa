"""Running turns: a turn under its lease, and the input that the bot gets for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import chain, islice
from typing import Final

from channels import Address, Json, Person
from channels.direct import DirectChannel
from gateway.engine.context import EngineContext
from gateway.engine.reach import find_ballots
from gateway.engine.reply_limits import questions
from gateway.engine.strangers import Strangers
from gateway.engine.telling import event_id_of, run_of
from gateway.engine.turns.batch import Batch
from gateway.engine.turns.checkpoint import StoreJournal
from gateway.engine.turns.expenses import PersonExpenses
from gateway.engine.turns.interrupts import SignalInbox
from gateway.engine.turns.language import detect_language
from gateway.engine.turns.live import StreamedText
from gateway.engine.turns.own_data import OwnData
from gateway.engine.turns.raw_results import earlier_results
from gateway.engine.waiting import questions_elsewhere
from gateway.observe.teller import RunTeller, begin_run
from gateway.pending.actions import ConversationActions
from gateway.pending.index import Index
from gateway.providers.base import ModelMessage
from gateway.store.types import Lease, Snapshot
from gateway.tools import ToolContext
from gateway.turn import Turn
from gateway.wording import FALLBACK

_TEXTS_LOOKED_AT = 8
"""The number of a person's earlier messages that are used to detect the language."""
_EVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RunningTurn:
    """A turn under its lease."""

    lease: Lease
    batch: Batch
    journal: StoreJournal
    signals: SignalInbox
    address: Address
    person: Person
    prefetched: Snapshot | None
    """The records that were read with the lease. None if they could not be read, or if a decision was made since."""
    events: RunTeller
    """Tells the events of this turn, also to its trace."""
    expenses: PersonExpenses
    live: StreamedText | None = None
    """Shows the answer while it is written. None where the channel cannot, or the agent does not."""

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


def begin_turn(context: EngineContext, batch: Batch, address: Address, person: Person) -> RunTeller:
    """Return the teller of a turn, with its trace. A turn that another process takes over has the same run id."""
    config, cause = context.bot.agent.config, event_id_of(batch.began_by)
    metadata: dict[str, Json] = {
        "bot": context.bot.name,
        "channel": address.channel,
        "event": cause,
        "person": context.keyring.pseudonym(str(person)),
    }
    return begin_run(
        context.events,
        run_of(batch.began_by),
        clock=context.wall_clock,
        parent_run_id=config.parent_run_id,
        metadata={**(config.trace_metadata or {}), **metadata},
    )


def turn_input(
    context: EngineContext,
    running: RunningTurn,
    strangers: Strangers,
    *,
    language: str,
    history: Sequence[ModelMessage],
    actions: ConversationActions,
) -> Turn:
    """Return the input of the bot. `actions` are those that its first call of `Turn.actions` gets."""
    batch, person, conversation = running.batch, running.person, running.conversation
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
        context=tool_context(context, running, language),
        journal=running.journal,
        keep=partial(context.files.keep, person=str(person)),
        actions=read_actions,
        settled=partial(context.actions, conversation, find=_ended),
        elsewhere=partial(questions_elsewhere, context, running.address, person),
        own_data=OwnData(context, conversation, running.address, person),
        admit=partial(strangers.admit, by=person) if strangers.may_admit(person) else None,
        events=running.events,
        expenses=running.expenses,
        find_ballots=partial(find_ballots, context),
        may_ask=partial(_may_ask, context, str(person)),
        earlier_results=partial(earlier_results, context, conversation),
        live=running.live,
        read_file=context.files.read,
    )


async def _may_ask(context: EngineContext, person: str, count: int) -> bool:
    """Return True if a person may be asked so many questions now, and count them."""
    return not await context.store.acquire([questions(person, count)])


def _ended(index: Index) -> list[str]:
    return [entry.action_id for entry in index.settled]


def turn_language(context: EngineContext, running: RunningTurn, history: Sequence[ModelMessage]) -> str:
    """Return the language of the turn: the named one, else that of the person's messages, newest first, else that of
    the last question.

    A short text says little. The newest text that is long enough decides.
    """
    named = context.named_language(running.person)
    if named is not None:
        return named
    written = (message.text for message in reversed(running.batch.messages) if message.command is None)
    before = (each.content for each in reversed(history) if each.role == "user")
    texts = chain(written, islice(before, _TEXTS_LOOKED_AT))
    return detect_language(texts) or context.language_asked(running.lease) or FALLBACK


def tool_context(context: EngineContext, running: RunningTurn, language: str) -> ToolContext:
    """Return the context of the tools that the turn calls."""
    return ToolContext(
        person=str(running.person),
        address=None if running.direct else running.address,
        conversation=running.conversation,
        language=language,
        deps=context.bot.deps,
        idempotency_key=f"{running.conversation}/{running.batch.taken[0].seq}",
        now=context.wall_clock,
        shared=context.store.shared,
        hold=context.hold,
        stopping=running.signals.stopping,
        depth=running.batch.follow_up.depth if running.batch.follow_up is not None else 0,
    )
