"""selectools' pending stores, over the sealed records of this package.

There is no second state machine. Each action is a sealed record in a conversation of its own, with the states of
`transitions`. The decision and the launch of the executor are a single transaction, so only one of several concurrent
answers executes. The executor then runs in the caller's process.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from channels import Json
from gateway.pending.actions import ConversationActions
from gateway.pending.reading import ConfirmParser, RegexConfirmParser
from gateway.pending.seed import rules
from gateway.pending.seed.outcome import DEFAULT_IGNORE_TTL_SECONDS, ConfirmOutcome
from gateway.pending.seed.rules import ScopeAnswer
from gateway.pending.seed.running import end_dead, run
from gateway.pending.seed.state import AdapterState, Scope, at_path, at_url, state_of
from gateway.pending.tokens import make_code
from gateway.store.base import Store
from gateway.store.errors import Conflict, StoreUnavailable
from gateway.store.sqlite import SqliteStore
from gateway.tools.pending_action import PendingAction
from gateway.tools.stash import (
    DEFAULT_TTL_SECONDS,
    Executor,
    Factory,
    PendingActionExistsError,
    check_executor,
    check_factory,
    made_by,
    new_action,
)

T = TypeVar("T")
A = TypeVar("A", PendingAction, PendingAction | None)

_CONFLICTS = 50
"""The attempts of a read and write while other processes change the same records."""


class PendingStore:
    """The methods of the three stores. None and an empty id name different scopes.

    A pending store belongs to a single event loop. The store below is opened with the first call.
    """

    def __init__(
        self,
        given: Store | None,
        make: Callable[[], Store],
        *,
        parser: ConfirmParser | None,
        default_ttl_seconds: float,
        max_entries: int,
    ) -> None:
        """`given` is a store of the caller and stays open; if None, `make` makes a store. Raises ValueError."""
        if not 0 < default_ttl_seconds < float("inf"):
            raise ValueError(f"default_ttl_seconds must be a positive, finite number, not {default_ttl_seconds!r}")
        if max_entries < 1:
            raise ValueError(f"max_entries must be 1 or more, not {max_entries!r}")
        self.parser: ConfirmParser = parser or RegexConfirmParser()
        """The parser of the texts of `pop_if_confirmed`."""
        self._given, self._make = given, make
        self._default_ttl_seconds, self._max_entries = default_ttl_seconds, max_entries
        self._factories: dict[str, Factory] = {}
        self._opened: tuple[Store, AdapterState] | None = None
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def open(self) -> Store:
        """Open the store now and return it. Otherwise the first call opens the store.

        Raises StoreRefused for a file owned by another process, and MissingSetting without ASKFIRST_SECRET for a store
        that outlives this process.
        """
        async with self._opening:
            if self._opened is None:
                store = self._make() if self._given is None else self._given
                await state_of(store).open(store, ours=self._given is None)
                self._opened = store, state_of(store)
            return self._opened[0]

    async def close(self) -> None:
        """Wait for the running executors, and close the store. A store of the caller stays open."""
        async with self._opening:
            if self._opened is not None:
                (store, state), self._opened = self._opened, None
                await state.close(store, ours=self._given is None)

    # ── the documents' methods ──

    def register_executor_factory(self, kind: str, factory: Factory) -> None:
        """Register the factory of the executors of this kind. A factory makes an executor from the record of an action.

        A factory serves actions of every process and has priority over the closure given to `stash`: the arguments in a
        closure may have changed since. Raises ValueError for a factory that is async or not a function.
        """
        check_factory(kind, factory)
        self._factories[kind] = factory

    async def stash(
        self,
        user_id: str,
        *,
        kind: str,
        preview: str,
        executor: Executor | None = None,
        args: Mapping[str, Json] | None = None,
        ttl_seconds: float | None = None,
        channel_id: str | None = None,
        conversation_id: str | None = None,
    ) -> PendingAction:
        """Store an action until an answer comes, and return the record. The caller shows `preview` to the person now.

        Raises PendingActionExistsError while another unexpired action is open in this scope, Overloaded when the store
        is full, and ValueError for an empty user, kind or preview, for a `ttl_seconds` that is not positive and finite,
        for `args` not representable in canonical JSON, for missing `args` on Redis, and for an `executor` that is not a
        function or takes arguments.
        """
        scope = Scope(user_id, channel_id, conversation_id)
        check_executor(kind, executor)
        store, state = await self._ready()
        make = partial(
            new_action,
            kind=kind,
            preview=preview,
            args=args,
            ttl_seconds=self._default_ttl_seconds if ttl_seconds is None else ttl_seconds,
            shared=store.shared,
            requester=scope.person,
            conversation=scope.conversation,
            parser_version=await asyncio.to_thread(lambda: self.parser.version),
            code=make_code(()),
        )

        tried: list[str] = []

        def stash(actions: ConversationActions) -> PendingAction:
            while tried:  # another process wrote first
                state.executors.pop(tried.pop(), None)
            if (waiting := rules.waiting(actions)) is not None:
                raise PendingActionExistsError(
                    f"an action of kind {waiting.kind!r} waits for this person's answer here: "
                    "it is answered, dropped or expires before the next one"
                )
            action = rules.stash(actions, make(at=actions.now))
            if executor is not None and action.expires_at is not None:
                # Before the write: the answer may come as soon as it is committed.
                state.executors[action.pending_action_id] = executor, action.expires_at
                tried.append(action.pending_action_id)
            return action

        async with state.room(store, scope, self._max_entries):
            return await self._changed(scope, stash)

    async def get(
        self, user_id: str, *, channel_id: str | None = None, conversation_id: str | None = None
    ) -> PendingAction | None:
        """Return the action waiting for an answer, or None.

        This call ends an expired action, and a running action of a dead process.
        """
        scope = Scope(user_id, channel_id, conversation_id)
        return await self._changed(scope, rules.waiting)

    async def pop_if_confirmed(
        self,
        user_id: str,
        message: str,
        *,
        channel_id: str | None = None,
        conversation_id: str | None = None,
        args_digest: str | None = None,
        expected_id: str | None = None,
    ) -> ConfirmOutcome | None:
        """Execute the waiting action if the message confirms it, and return the outcome.

        None: the message is no yes, or no action waits, as after a twin of this message. Raises ValueError for an empty
        user with a yes, and StoreUnavailable when the store is closed while the parser reads.
        """
        opened = await self._ready()
        confirms: object = await asyncio.to_thread(self.parser.is_confirm, message)
        if inspect.isawaitable(confirms):  # of an async parser; a coroutine is truthy and would count as a yes
            confirms = await confirms
        if not confirms:
            return None
        if self._opened != opened:  # to open it again would leave it open
            raise StoreUnavailable("the pending store was closed while a yes was read: nothing was run")
        scope = Scope(user_id, channel_id, conversation_id)
        answer = ScopeAnswer(
            person=scope.person, intent="confirm", by_text=True, action_id=expected_id, args_digest=args_digest
        )
        return await self._answered(scope, answer)

    async def pop_if_intent(
        self,
        user_id: str,
        intent: str,
        *,
        expected_kind: str | None = None,
        channel_id: str | None = None,
        conversation_id: str | None = None,
        expected_id: str | None = None,
        ignore_ttl_seconds: float = DEFAULT_IGNORE_TTL_SECONDS,
        args_digest: str | None = None,
    ) -> ConfirmOutcome | None:
        """Apply the answer of a button: ``confirm``, ``cancel`` or ``ignore``; any other counts as ``ignore``.

        `expected_kind` and `expected_id` are the kind and the id of the question above the button. ``ignore`` leaves
        the action open for at most `ignore_ttl_seconds`. With `args_digest`, the digest of the shown arguments, a
        ``confirm`` runs no other arguments. None: no action waits. Raises ValueError for an empty user and for seconds
        that are negative or not finite.
        """
        rules.check_seconds("ignore_ttl_seconds", ignore_ttl_seconds)
        scope = Scope(user_id, channel_id, conversation_id)
        answer = ScopeAnswer(
            person=scope.person,
            intent=rules.intent_of(intent),
            kind=expected_kind,
            action_id=expected_id,
            ignore_seconds=ignore_ttl_seconds,
            args_digest=args_digest,
        )
        return await self._answered(scope, answer)

    async def tighten_ttl(
        self,
        user_id: str,
        seconds: float,
        *,
        channel_id: str | None = None,
        conversation_id: str | None = None,
        expected_id: str | None = None,
    ) -> PendingAction | None:
        """Leave at most this many seconds for an answer, and return the record. The time never grows.

        None: no action waits, or not `expected_id`. Raises ValueError for an empty user and for seconds that are
        negative or not finite.
        """
        rules.check_seconds("seconds", seconds)
        scope = Scope(user_id, channel_id, conversation_id)

        tighten = partial(rules.tighten, seconds=seconds, action_id=expected_id)
        return await self._changed(scope, tighten)

    async def drop(
        self, user_id: str, *, channel_id: str | None = None, conversation_id: str | None = None
    ) -> PendingAction | None:
        """Withdraw the open action, even if expired, and return its cancelled record; None: no action is open."""
        scope = Scope(user_id, channel_id, conversation_id)

        return await self._changed(scope, partial(rules.drop, person=scope.person), expires=False)

    # ── helpers ──

    async def _ready(self) -> tuple[Store, AdapterState]:
        await self.open()
        if self._opened is None:
            raise RuntimeError("the pending store was closed while it was used")
        return self._opened

    async def _read(
        self, store: Store, state: AdapterState, scope: Scope, *, expires: bool = True
    ) -> ConversationActions:
        """Read the records of the scope. Dead and, with `expires`, expired actions are ended, but not written yet."""
        actions = await state.load(store, scope.conversation)
        await end_dead(store, state, actions)
        if expires:
            rules.end_expired(actions)
        return actions

    async def _changed(self, scope: Scope, change: Callable[[ConversationActions], A], *, expires: bool = True) -> A:
        """Read, change and write, and return the record of the changed action; see `_until_written`."""
        store, state = await self._ready()

        async def attempt() -> A:
            actions = await self._read(store, state, scope, expires=expires)
            changed = change(actions)
            await state.write(store, actions)
            return actions.by_id[changed.pending_action_id] if changed is not None else changed

        return await _until_written(scope, attempt)

    async def _answered(self, scope: Scope, answer: ScopeAnswer) -> ConfirmOutcome | None:
        store, state = await self._ready()

        async def attempt() -> ConfirmOutcome | None:
            actions = await self._read(store, state, scope)
            verdict = rules.judge(actions, answer, lambda action: self._executor(state, action) is not None)
            if verdict is not None and verdict.status is None:
                executor = self._executor(state, verdict.action) or _gone
                return await run(store, state, actions, verdict.action, executor)
            await state.write(store, actions)
            if verdict is None or verdict.status is None:
                return None
            written = actions.by_id[verdict.action.pending_action_id]
            return ConfirmOutcome(verdict.status, written, detail=verdict.detail)

        return await _until_written(scope, attempt)

    def _executor(self, state: AdapterState, action: PendingAction) -> Executor | None:
        """Return the executor of an action in this process: from a factory, else the closure; None: neither."""
        if (factory := self._factories.get(action.kind)) is not None:
            return made_by(factory, action)
        closure = state.executors.get(action.pending_action_id)
        return closure[0] if closure is not None else None


def _gone() -> None:
    raise RuntimeError("the executor is gone")


async def _until_written(scope: Scope, attempt: Callable[[], Awaitable[T]]) -> T:
    """Return the result of an attempt to read and write. Retries on Conflict; after 50 attempts raises Conflict."""
    for _ in range(_CONFLICTS):
        with contextlib.suppress(Conflict):
            return await attempt()
    raise Conflict(f"others change what waits in {scope.conversation} all the time: try again")


# ── the three stores ──


class InMemoryPendingStore(PendingStore):
    """A pending store in memory: the actions end with the process. For tests, and for bots allowed to forget."""

    def __init__(
        self,
        *,
        parser: ConfirmParser | None = None,
        default_ttl_seconds: float = DEFAULT_TTL_SECONDS,
        max_entries: int = 5000,
    ) -> None:
        """`max_entries` actions may wait at once, over all users. Raises ValueError for a number out of range."""
        super().__init__(
            None,
            lambda: SqliteStore(":memory:"),
            parser=parser,
            default_ttl_seconds=default_ttl_seconds,
            max_entries=max_entries,
        )


class SqlitePendingStore(PendingStore):
    """A pending store in a file of a single process: a path, ``sqlite:///path``, or an open Store.

    Several pending stores of the same process share the file; a second process is refused. After a restart an action
    runs only by a factory.
    """

    def __init__(
        self,
        path: str | Path | Store,
        *,
        parser: ConfirmParser | None = None,
        default_ttl_seconds: float = DEFAULT_TTL_SECONDS,
        max_entries: int = 5000,
    ) -> None:
        """The arguments are the same as for InMemoryPendingStore. A given Store stays open after this pending store."""
        given = None if isinstance(path, str | Path) else path
        super().__init__(
            given,
            lambda: at_path(str(path)),
            parser=parser,
            default_ttl_seconds=default_ttl_seconds,
            max_entries=max_entries,
        )


class RedisPendingStore(PendingStore):
    """A pending store on a Redis server shared by several processes. Records are sealed with ASKFIRST_SECRET.

    No code is stored there: a process runs an action stashed by another process only by a factory.
    """

    def __init__(
        self,
        url: str | Store = "redis://localhost:6379/0",
        *,
        parser: ConfirmParser | None = None,
        default_ttl_seconds: float = DEFAULT_TTL_SECONDS,
        max_entries: int = 5000,
    ) -> None:
        """The arguments are the same as for SqlitePendingStore. Raises ImportError without the package of Redis."""
        super().__init__(
            None if isinstance(url, str) else url,
            at_url(url),
            parser=parser,
            default_ttl_seconds=default_ttl_seconds,
            max_entries=max_entries,
        )
