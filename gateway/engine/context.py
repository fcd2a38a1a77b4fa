"""The context of the engine: the objects shared by the engine's parts in a process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol

from channels import Address, Channel, Json, Person, Reply
from channels.cancellable_threads import WORK, in_thread
from channels.channel import is_one_message
from gateway.access import AllowList
from gateway.access.reached import ReachedLimits
from gateway.artifacts import ArtifactStore
from gateway.channel_agent import ChannelAgent
from gateway.config.settings import EngineRules
from gateway.engine.alarms import Alarms, Forgeries, Overload, outcomes
from gateway.engine.clock import StoreClock, is_timely
from gateway.engine.concurrency import BackgroundTasks, WorkerPool
from gateway.engine.files import FileKeeper
from gateway.engine.pacing import Pacing
from gateway.engine.parts import PartRenderer
from gateway.engine.reservations import Reservations
from gateway.engine.telling import tell_audited
from gateway.engine.tool_locks import ToolLocks
from gateway.observe.teller import Teller
from gateway.pending import words
from gateway.pending.actions import ConversationActions
from gateway.pending.folding import base_language
from gateway.pending.loading import Counters, Find, ReadIndex, load_actions, read_index
from gateway.pending.old_seals import look_at_actions
from gateway.pending.seal import Keyring, Purpose
from gateway.pending.sealed_records import seal_anew, seal_value
from gateway.providers.base import Transcriber
from gateway.store.base import Store
from gateway.store.codec import decode
from gateway.store.errors import Conflict, StoreError
from gateway.store.transaction import Committed, Transaction
from gateway.store.types import Key, Lease, QueuedPart, Record, Snapshot, Waiting
from gateway.stored import keys
from gateway.tools.locks import Hold
from gateway.tools.pending_action import Detail, PendingAction
from gateway.wording import FALLBACK, Wording, prepare, speaking

_OTHER_RELEASE_SECONDS = 60.0
_LONGEST_TAG = 35
_MOST_LANGUAGES = 1_000
"""Limit of remembered tags: a platform passes on any tag of a person's device."""


class Holding(Protocol):
    """A lease held by this process."""

    lease: Lease
    ends: bool
    """True from the start of the commit releasing the lease. A renewal refused from then on is no loss."""

    def look(self) -> None:
        """Renew the lease at once, and read the lane's signals."""

    async def make_sure(self) -> None:
        """Check that the lease is still held. Raises Fenced and StoreUnavailable."""


@dataclass(slots=True, kw_only=True)
class EngineContext:
    """The objects shared by the engine's parts in a process: the store, the channels, the bot, the keys."""

    store: Store
    channels: Mapping[str, Channel]
    bot: ChannelAgent
    allowed: AllowList
    """The people allowed to talk to the bot."""
    keyring: Keyring
    artifacts: ArtifactStore
    events: Teller
    """Emits the events of this process to the log, the metrics, the console and the authors' observers."""
    worker: str
    """The name of this process in leases, new at every start: no process is taken for an earlier process."""
    rules: EngineRules = field(default_factory=EngineRules)
    transcriber: Transcriber | None = None
    """Transcribes voice messages for a bot without a separate transcriber."""
    lease_seconds: float = 6.0
    """Lifetime of a lease without renewal. Afterwards another process takes over the work of a dead process."""
    tasks: BackgroundTasks = field(default_factory=BackgroundTasks)
    held: dict[tuple[str, str], Holding] = field(default_factory=dict)
    """The leases of this process, by kind and lane."""
    unreached: set[str] = field(default_factory=set)
    """Channels that accept no event yet: this process has not reached the platform, and the platform delivers again."""
    down: set[str] = field(default_factory=set)
    """Channels with an unavailable platform: this process's last call failed."""
    refused: set[str] = field(default_factory=set)
    """Channels with a bot token refused by the platform. The refusal is already logged."""
    sending: Mapping[str, WorkerPool] = field(default_factory=dict)
    """Channel -> the worker pool of the channel's outboxes, while this process sends."""
    refusing: Overload = field(default_factory=Overload)
    """The store's refusals of new messages."""
    turn_of: dict[str, str] = field(default_factory=dict)
    """Conversation -> the person of the turn running in this process."""
    turn_reads: Sequence[str] = ()
    """Prefixes of the records for the features of turns, read with the lease of a turn."""
    counters: Counters = field(default_factory=Counters)
    decide: Callable[[str], Coroutine[Any, Any, None]] | None = None
    """Works the decision lane of a conversation, so handed-over events wait for no other process."""
    clock: StoreClock = field(init=False)
    pacing: Pacing = field(init=False)
    parts: PartRenderer = field(init=False)
    reservations: Reservations = field(init=False)
    files: FileKeeper = field(init=False)
    reached: ReachedLimits = field(init=False)
    alarms: Alarms = field(init=False)
    forgeries: Forgeries = field(init=False)
    _languages: set[str | None] = field(default_factory=set, init=False)
    """The tags of the loaded languages."""
    hold: Hold | None = field(init=False)
    """Holds the lock of a tool in the store; None if no other process shares the store."""

    def __post_init__(self) -> None:
        self.clock = StoreClock(self.store)
        self.pacing = Pacing(self.store)
        self.reservations = Reservations(self.store, self.clock)
        self.parts = PartRenderer(self.channels, self.keyring)
        self.reached = ReachedLimits(self.store, self.tasks.start)
        self.files = FileKeeper(self.artifacts, self.store, self.rules.limits.files, self.reached)
        self.alarms = Alarms(self.bot, self.events, self.tasks)
        self.forgeries = Forgeries(self.events)
        locks = ToolLocks(self.store, self.worker, lambda: self.lease_seconds)
        self.hold = locks.hold if self.store.shared else None

    # ── the store ──

    async def commit(self, transaction: Transaction) -> Committed:
        """Commit a transaction; see `Store.commit`.

        If the transaction releases a lease, a renewal refused from then on is no loss of the lease.
        """
        lease, held = transaction.lease, None
        if lease is not None and transaction.finish is not None:
            held = self.held.get((lease.kind, lease.lane))
        if held is None or held.lease is not lease:
            committed = await self.store.commit(transaction)
        else:
            held.ends = True
            try:
                committed = await self.store.commit(transaction)
            except BaseException:
                held.ends = False
                raise
        self.clock.observe(committed.at)
        if transaction.appends:
            tell_audited(self.events, transaction)
        if transaction.hand_over and self.decide is not None:
            deciding = [event.conversation for event in transaction.hand_over if event.decides]
            for conversation in dict.fromkeys(deciding):
                self.tasks.start(self.decide(conversation), "decide")
        return committed

    def conversation(self, address: Address) -> str:
        """Return the name of a conversation: the bot's name and the address."""
        return f"{self.bot.name}/{address}"

    def is_genuine(self, purpose: Purpose, context: str, body: Mapping[str, Json]) -> bool:
        """Return True for a body with a valid seal."""
        return self.keyring.is_genuine(purpose, context, body)

    def sealed(self, name: str, value: Json) -> Json:
        """Return the stored form of a record, with a seal. Only this gateway can make a valid seal."""
        return seal_value(self.keyring, name, value)

    def unsealed(self, key: Key, record: Record, conversation: str) -> Json:
        """Return the value of a record of `sealed`; None without a record.

        A record changed without the key also gives None, and is reported to the operator. A record with the seal of an
        old key is sealed anew in the background.
        """
        if record.value is None:
            return None
        opened = self.keyring.open(key.name, record.value)
        if opened is None:
            self.forgeries.tell(key.name, conversation)
            return None
        if opened.is_old:
            self.tasks.start(self._seal_anew(key, record), "seal anew")
        value: Json = decode(opened.text)
        return value

    async def _seal_anew(self, key: Key, record: Record) -> None:
        with contextlib.suppress(StoreError):
            await seal_anew(self.store, self.keyring, key, record)

    def may_decide(self, waiting: Waiting) -> bool:
        """Return True for an event stamped by the store within a minute of receipt."""
        return is_timely(waiting.stamp, waiting.body.get("received"))

    # ── languages ──

    def language(self, person: Person | None, otherwise: str | None = None) -> str:
        """Return the language of answers to a person: the named language, else `otherwise`, else English."""
        return self.named_language(person) or otherwise or FALLBACK

    def named_language(self, person: Person | None) -> str | None:
        """Return the bot's own language, else the person's language as named by the platform, else None."""
        return self.bot.language or (person.language if person is not None else None)

    async def load_languages(self, *tags: str | None) -> None:
        """Load the words and sentences of these languages in a thread: reading and answering then do not block."""
        if self._languages.issuperset(tags):
            return
        named = {base_language(tag) for tag in (FALLBACK, self.bot.language, *tags) if tag and len(tag) <= _LONGEST_TAG}
        if new := named - self._languages:
            with contextlib.suppress(RuntimeError):  # without a free thread they are loaded when they are used
                await in_thread(partial(_load_languages, self.bot.wording, *new), threads=WORK)
        if len(self._languages) > _MOST_LANGUAGES:
            self._languages.clear()
        self._languages.update((tag for tag in tags if tag is None or len(tag) <= _LONGEST_TAG), named)

    def language_of(self, actions: ConversationActions) -> str:
        """Return the language of messages about these actions, else the bot's default language."""
        return actions.language or self.language(None)

    async def language_there(self, conversation: str, person: Person | None) -> str:
        """Return `language` of the person, with the language of the conversation's newest question as `otherwise`."""
        return self.language(person, (await self.load_index(conversation)).index.last_asked_language())

    def language_asked(self, lease: Lease) -> str | None:
        """Return the language of the newest question, from the index prefetched with the lease, or None."""
        read = self.prefetched_index(lease)
        return read.index.last_asked_language() if read is not None else None

    # ── actions ──

    async def load_index(self, conversation: str) -> ReadIndex:
        """Load the index of a conversation. Raises StoreError."""
        key = keys.key(self.store, conversation, keys.index)
        return self.read_index(conversation, (await self.store.get([key]))[key])

    def read_index(self, conversation: str, record: Record) -> ReadIndex:
        """Read the index of a conversation from the record."""
        return read_index(self.keyring, self.counters, conversation, record)

    def has_prefetch(self, lease: Lease) -> bool:
        """Return True if the lease came with prefetched records."""
        return bool(lease.prefetched.records)

    def prefetched_index(self, lease: Lease) -> ReadIndex | None:
        """Return the index prefetched with the lease of a turn or an outbox; None without a prefetch."""
        if not self.has_prefetch(lease):
            return None
        return self.read_index(lease.lane, lease.prefetched[keys.key(self.store, lease.lane, keys.index)])

    def message_matters(self, lease: Lease, person: Person | None) -> bool:
        """Return True if a message of this person may matter to a bare reply, by the index of the lease."""
        read = self.prefetched_index(lease)
        return read is not None and (read.kind != "sealed" or read.index.hears(str(person), lease.prefetched.now))

    def reply_matters(self, lease: Lease) -> bool:
        """Return True if a message of the bot may matter to a bare reply, by the index of the lease."""
        read = self.prefetched_index(lease)
        return read is not None and (read.kind != "sealed" or read.index.heeds(lease.prefetched.now))

    def may_stream(self, conversation: str) -> bool:
        """Return True if this conversation shows answers while the model writes."""
        channel = self.channels.get(_channel_of(conversation))
        return channel is not None and channel.capabilities.stream and self.bot.agent.config.streams_on(channel.name)

    def may_be_open(self, lease: Lease) -> bool:
        """Return False if no action is open in the conversation, by the index of the lease."""
        read = self.prefetched_index(lease)
        return read is None or read.kind != "sealed" or bool(read.index.open)

    async def actions(
        self,
        conversation: str,
        *also: str,
        find: Find = lambda index: (),
        seen: Snapshot | None = None,
    ) -> ConversationActions:
        """Load the actions of a conversation; see `load_actions`. A forged action raises an alarm.

        If an action has the seal of an old key, all actions are sealed anew and loaded again.
        """
        channel = self.channels.get(_channel_of(conversation))
        actions = await load_actions(
            self.store,
            conversation,
            keyring=self.keyring,
            counters=self.counters,
            find=find,
            drift=self.drifted,
            also=also,
            capabilities=channel.capabilities if channel is not None else None,
            fits=self._fits,
            seen=seen,
        )
        if actions.changes.old_seals:
            with contextlib.suppress(Conflict):  # the next reader does it
                if (await look_at_actions(self.store, self.keyring, conversation, mends=True)).many:
                    return await self.actions(conversation, *also, find=find)
        for action_id in actions.changes.tampered:
            self.alarms.sound(actions.by_id[action_id], "forged")
        return actions

    def _fits(self, address: Address, reply: Reply) -> bool:
        """Return True if a reply fits into a single message of the platform, with all buttons."""
        channel = self.channels.get(address.channel)
        return channel is None or is_one_message(channel, address, reply)

    def drifted(self, action: PendingAction) -> Detail | None:
        """Return the reason against running an action as shown, or None; see `ChannelAgent.drifted`.

        A ballot asks about an action of another conversation, and is checked there. On a shared store, another process
        may have the tool as shown. While the question is open, and for a minute after the yes, the action is left to
        the other process.
        """
        detail = self.bot.drifted(action) if action.ballot_of is None else None
        if detail == "other_release" and self.store.shared and self.waits_for_release(action):
            return None
        return detail

    def waits_for_release(self, action: PendingAction) -> bool:
        """Return True while another process with the tool as shown may still run the action."""
        if action.state != "approved" or action.decided_at is None:
            return action.open
        return (self.clock.guess() - action.decided_at).total_seconds() < _OTHER_RELEASE_SECONDS

    # ── this process ──

    def sound_undelivered(self, parts: Iterable[QueuedPart]) -> None:
        """Raise an alarm for each outcome in these undelivered parts."""
        for queued in parts:
            for action_id in outcomes([queued]):
                self.tasks.start(self._sound_undelivered(queued.conversation, action_id), "alarm")

    async def _sound_undelivered(self, conversation: str, action_id: str) -> None:
        action = (await self.actions(conversation, action_id)).get(action_id)
        if action is not None:
            self.alarms.sound(action, "undeliverable")

    def wall_clock(self) -> datetime:
        """Return the time for tools: this machine's clock, moved by the store's offset."""
        return datetime.now(UTC) + timedelta(seconds=self.store.offset_seconds)

    def nudge(self, kind: str, lane: str) -> None:
        """Renew a lease of this process at once, so the holder gets new signals."""
        held = self.held.get((kind, lane))
        if held is not None:
            held.look()


def _channel_of(conversation: str) -> str:
    return conversation.partition("/")[2].partition(":")[0]


def _load_languages(wording: Wording, *languages: str) -> None:
    words.prepare(*languages)
    with speaking(wording):
        prepare(*languages)
