"""The state of a process's pending stores over a store: keys, executors and the count of waiting actions.

All pending stores over the same store share this state, so that each can run the actions stashed by another.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote
from weakref import WeakKeyDictionary, WeakValueDictionary

from channels import Json, Person
from channels.catalogue import lacking
from gateway import wording
from gateway.config.clear import refuse_clear
from gateway.config.settings import Settings
from gateway.pending.actions import ConversationActions
from gateway.pending.index import Index
from gateway.pending.loading import Counters, load_actions
from gateway.pending.seal import SEAL_FAILED, Keyring
from gateway.store.base import Store
from gateway.store.codec import micros, moment
from gateway.store.errors import Overloaded
from gateway.store.secret import keys_of
from gateway.store.sqlite import SqliteStore
from gateway.store.transaction import Put, Transaction
from gateway.stored import keys
from gateway.tools.pending_action import Detail, PendingAction
from gateway.tools.stash import Executor

log = logging.getLogger("askfirst.pending")

_GRACE_SECONDS = 10.0
_COUNTED_SECONDS = 1.0
"""The interval at which the waiting actions of other processes are counted."""
_KEPT = timedelta(days=30)
"""The time after its deadline until an open action is deleted, if its scope is not used again."""
_SHARE = 10
"""A user may fill a tenth of a store, and 50 places in any case."""
_LEAST_SHARE = 50


@dataclass(frozen=True, slots=True)
class Scope:
    """The user of an action, and the place: a single action may be open in each scope.

    Raises ValueError for an empty user and for an id that is not a text.
    """

    user_id: str
    channel_id: str | None = None
    conversation_id: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.user_id, str) or not self.user_id:
            raise ValueError(f"user_id must be a text that is not empty, not {self.user_id!r}: an action is somebody's")
        for name, given in (("channel_id", self.channel_id), ("conversation_id", self.conversation_id)):
            if not isinstance(given, str | None):
                raise ValueError(f"{name} must be a text or None, not {given!r}")

    @property
    def person(self) -> str:
        """The written form of the person, as for `ask_channel`."""
        return str(Person(channel="app", account=self.channel_id or "-", user_id=self.user_id))

    @property
    def user(self) -> str:
        """The beginning of the names of this user's conversations, and of no others."""
        return f"seed:{_quoted(self.user_id)}/"

    @property
    def conversation(self) -> str:
        """The conversation of this scope's records, different from all other scopes and all channels."""
        return f"{self.user}{_part(self.channel_id)}/{_part(self.conversation_id)}"


@dataclass(eq=False)
class AdapterState:
    """The state shared by the pending stores over a store in this process."""

    keyring: Keyring | None = None
    counters: Counters = field(default_factory=Counters)
    executors: dict[str, tuple[Executor, datetime]] = field(default_factory=dict)
    """Action id -> the closure, and the end of the time to answer."""
    running: Counter[str] = field(default_factory=Counter)
    """The actions run by this process, or about to be launched."""
    tasks: set[asyncio.Future[Any]] = field(default_factory=set)
    users: int = 0
    """The number of pending stores using this state: opened and not closed."""
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    _slots: dict[str, datetime] = field(default_factory=dict)
    """Conversation with an open action -> the end of the time to answer."""
    _coming: Counter[str] = field(default_factory=Counter)
    """The conversations with a stash in progress."""
    _counted: float | None = None
    """The `time.monotonic` of the last read of all slots of the store."""

    async def open(self, store: Store, *, ours: bool) -> None:
        """Open the store if not yet open, and find the keys. Raises StoreRefused and MissingSetting.

        `ours`: a pending store made the store, so no platform can check the clock of this machine.
        """
        async with self.opening:
            if self.keyring is None:
                self.keyring = Keyring(await asyncio.to_thread(lambda: keys_of(Settings(), store)))
                await asyncio.to_thread(wording.prepare)
            await store.open()
            if ours:
                store.trust_clock()
            self.users += 1

    async def close(self, store: Store, *, ours: bool) -> None:
        """Close the store after the last pending store has closed; a store that is not `ours` stays open.

        Running executors have 10 s to end. Then they are cancelled, and their outcome is unknown.
        """
        async with self.opening:
            self.users -= 1
            if self.users:
                return
            if self.tasks:
                _, late = await asyncio.wait(self.tasks, timeout=_GRACE_SECONDS)
                for task in late:
                    task.cancel()
                if late:
                    await asyncio.wait(late)
            if ours:
                await store.close()

    async def load(self, store: Store, conversation: str, *also: str) -> ConversationActions:
        """Read the actions of a conversation, the last settled one included."""
        if self.keyring is None:
            raise RuntimeError("the home of a pending store was not opened")
        actions = await load_actions(
            store,
            conversation,
            keyring=self.keyring,
            counters=self.counters,
            drift=_never,
            also=also,
            find=_last_settled,
        )
        for action_id in actions.changes.tampered:
            log.error("action %s: %s: it will not run", action_id, SEAL_FAILED)
        return actions

    async def write(self, store: Store, actions: ConversationActions) -> None:
        """Commit the changes in a single transaction, without notifying a person or a model. Raises Conflict."""
        actions.changes.settled.clear()
        transaction = Transaction(partition=actions.partition)
        await actions.write(transaction)
        if not transaction.puts:
            return
        for action in actions.changes.actions.values():
            if action.state == "running":
                transaction.puts[keys.heartbeat(action.pending_action_id)] = heartbeat_put(action, actions.now)
            elif action.fence:
                transaction.deletes.append(keys.heartbeat(action.pending_action_id))
        slot = keys.seed_slot(actions.conversation)
        ends = [action.expires_at for action in actions.open if action.expires_at is not None]
        if ends and max(ends) > actions.now:
            transaction.puts[slot] = Put(micros(max(ends)), (max(ends) - actions.now).total_seconds())
        else:
            transaction.deletes.append(slot)
        for action in actions.open:
            self._keep_for_a_while(transaction, action, actions.now)
        await store.commit(transaction)
        for action in actions.changes.actions.values():
            if not action.open:
                self.executors.pop(action.pending_action_id, None)
        self._slots.pop(actions.conversation, None)
        if ends:
            self._slots[actions.conversation] = max(ends)

    def _keep_for_a_while(self, transaction: Transaction, action: PendingAction, now: datetime) -> None:
        seconds = (max(action.expires_at or now, now) - now + _KEPT).total_seconds()
        for name in (keys.action(action.pending_action_id), keys.index(action.conversation)):
            if (put := transaction.puts.get(name)) is not None:
                transaction.puts[name] = Put(put.value, seconds)

    @asynccontextmanager
    async def room(self, store: Store, scope: Scope, most: int) -> AsyncIterator[None]:
        """Reserve a place for another action while the block runs."""
        await self._make_room(store, scope, most)
        self._coming[scope.conversation] += 1
        try:
            yield
        finally:
            self._coming[scope.conversation] -= 1
            self._coming += Counter()  # drops the keys that count 0

    async def _make_room(self, store: Store, scope: Scope, most: int) -> None:
        now = await store.now()
        for action_id in [each for each, (_, end) in self.executors.items() if end < now]:
            del self.executors[action_id]
        if self._counted is None or (store.shared and time.monotonic() - self._counted > _COUNTED_SECONDS):
            await self._count(store, now)
        if self._full(scope, most, now):
            await self._count(store, now)
            if why := self._full(scope, most, now):
                raise Overloaded(f"{why}, which is all that may: the answers to some come first, or their ends")

    def _full(self, scope: Scope, most: int, now: datetime) -> str | None:
        """Return the reason why this user may stash no more, as far as known to this process; None: there is room."""
        self._slots = {where: end for where, end in self._slots.items() if end >= now}
        others = (self._slots.keys() | self._coming.keys()) - {scope.conversation}
        share = max(most // _SHARE, _LEAST_SHARE)
        if len(others) >= most:
            return f"{most} actions wait in this store"
        if sum(where.startswith(scope.user) for where in others) >= share:
            return f"{share} actions of this user wait"
        return None

    async def _count(self, store: Store, now: datetime) -> None:
        self._counted = time.monotonic()
        before, prefix = self._slots.copy(), keys.seed_slot("")
        found = await store.scan(prefix)
        # A stash that commits while the scan runs may be missing from it.
        new = {where: end for where, end in self._slots.items() if before.get(where) != end}
        self._slots = {key.name.removeprefix(prefix): _end(record.value, now) for key, record in found} | new

    def start(self, task: asyncio.Future[Any]) -> None:
        """Keep a reference to a task until its end."""
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


_states: WeakKeyDictionary[Store, AdapterState] = WeakKeyDictionary()
_stores: WeakValueDictionary[tuple[str, int], Store] = WeakValueDictionary()
"""The stores made by pending stores, by path or URL and event loop."""


def state_of(store: Store) -> AdapterState:
    """Return the state shared by the pending stores over this store."""
    return _states.setdefault(store, AdapterState())


def at_path(path: Path | str) -> Store:
    """Return the store of a file: the store of this event loop's pending stores, else a new store, not open yet."""
    if str(path) == ":memory:":
        return SqliteStore(":memory:")
    file = Path(str(path).removeprefix("sqlite:///"))
    return _shared(str(file.absolute()), lambda: SqliteStore(file))


def at_url(url: str | Store) -> Callable[[], Store]:
    """Return a function to get the store of a Redis server, as `at_path` does.

    Raises ImportError without the package of Redis, ValueError for another URL, and MissingSetting for a cleartext URL
    of another host not allowed by ASKFIRST_CLEAR.
    """
    if not isinstance(url, str):
        return lambda: url
    refuse_clear("redis", url, "RedisPendingStore(url=)")
    if not url.startswith(("redis://", "rediss://")):
        raise ValueError(f"should be redis://host:6379 or a Store, not a {url.partition(':')[0]!r} URL")
    try:
        from gateway.store.redis import RedisStore
    except ImportError as error:
        raise ImportError(lacking("RedisPendingStore", error, "redis")) from error
    return lambda: _shared(url, lambda: RedisStore(url))


def _shared(name: str, make: Callable[[], Store]) -> Store:
    key = name, id(asyncio.get_running_loop())
    store = _stores.get(key)
    if store is None:
        store = _stores[key] = make()
    return store


def _end(stored: Json, now: datetime) -> datetime:
    """Return the end of a slot's reservation; now for a malformed value."""
    with contextlib.suppress(OverflowError):
        return moment(stored) if isinstance(stored, int) else now
    return now


def _never(action: PendingAction) -> Detail | None:
    return None


def _last_settled(index: Index) -> Iterable[str]:
    return [entry.action_id for entry in index.settled[:1]]


def _part(given: str | None) -> str:
    return "" if given is None else f"={_quoted(given)}"


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")


_ALIVE_SECONDS = 6.0
"""The time without a heartbeat after which a process counts as dead."""
_KEPT_SECONDS = 30 * 86400.0


def heartbeat_put(action: PendingAction, now: datetime) -> Put:
    """Return the heartbeat record to write now.

    The process counts as alive for 6 s. The record is kept for longer, so that `sweep_executors` finds the actions of a
    dead process.
    """
    until = micros(now + timedelta(seconds=_ALIVE_SECONDS))
    return Put({"conversation": action.conversation, "until": until}, _KEPT_SECONDS)


def is_alive(stored: Json, now: datetime) -> bool:
    """Return True if the process running the action wrote a heartbeat within the last 6 s."""
    until = stored.get("until") if isinstance(stored, dict) else None
    return isinstance(until, int) and until >= micros(now)
