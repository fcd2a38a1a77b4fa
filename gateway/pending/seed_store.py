"""The methods of selectools' pending stores, over our records.

There is no second state machine here. Each action is a sealed record of a conversation of its own, and goes the way of
`transitions`: what an answer decides and the launch of the executor are one transaction, so of many answers at once one
executes. The executor then runs in the caller's process.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Self, TypeVar

from channels import Json
from gateway.pending import seed_rules
from gateway.pending.actions import ConversationActions
from gateway.pending.reading import ConfirmParser, RegexConfirmParser
from gateway.pending.seed_home import Home, Scope, home_of
from gateway.pending.seed_outcome import DEFAULT_IGNORE_TTL_SECONDS, ConfirmOutcome
from gateway.pending.seed_rules import Answer
from gateway.pending.seed_run import end_dead, run
from gateway.pending.tokens import make_code
from gateway.store.base import Conflict, Store, StoreUnavailable
from gateway.tools.executor import Executor, Factory, check_executor, check_factory, made_by
from gateway.tools.pending_action import PendingAction
from gateway.tools.stash import PendingActionExistsError, new_action

__all__ = ["PendingStore"]

T = TypeVar("T")

_CONFLICTS = 50
"""Others may come between reading and writing, but not for ever."""


class PendingStore:
    """The methods of the three stores. Ids that are None and ids that are empty name different scopes.

    It works in one event loop. `store` opens by itself with the first call.
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
        if not 0 < default_ttl_seconds < float("inf"):
            raise ValueError(f"default_ttl_seconds must be a positive, finite number, not {default_ttl_seconds!r}")
        if max_entries < 1:
            raise ValueError(f"max_entries must be 1 or more, not {max_entries!r}")
        self.parser: ConfirmParser = parser or RegexConfirmParser()
        """Reads the text of `pop_if_confirmed`."""
        self._given, self._make = given, make
        self._default_ttl_seconds, self._max_entries = default_ttl_seconds, max_entries
        self._factories: dict[str, Factory] = {}
        self._opened: tuple[Store, Home] | None = None
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def open(self) -> Store:
        """Open the store now, and return it; otherwise the first call does so.

        Raises StoreRefused, which says the mend, for a file that another process owns, and MissingSetting without
        ASKFIRST_SECRET where the store outlives this process.
        """
        async with self._opening:
            if self._opened is None:
                store = self._make() if self._given is None else self._given
                await home_of(store).open(store, ours=self._given is None)
                self._opened = store, home_of(store)
            return self._opened[0]

    async def close(self) -> None:
        """Wait for the executors that run, and give the store back; one that was handed in stays open."""
        async with self._opening:
            if self._opened is not None:
                (store, home), self._opened = self._opened, None
                await home.close(store, ours=self._given is None)

    # ── the documents' methods ──

    def register_executor_factory(self, kind: str, factory: Factory) -> None:
        """Have actions of this kind executed by what `factory` makes of their record, whichever process stashed them.

        It comes before the closure that `stash` was given: a closure may have seen its arguments change since. Raises
        ValueError for a factory that is async or no function.
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
        """Keep an action until its answer, and return its record. The caller shows `preview` to the person now.

        Raises PendingActionExistsError while another one is open in this scope (one that has expired gives way),
        Overloaded when so many wait as may, and ValueError for an empty user, kind or preview, a `ttl_seconds`
        that is no positive, finite number, `args` that canonical JSON cannot hold, none on Redis, and an `executor`
        that is no function or needs arguments.
        """
        scope = Scope(user_id, channel_id, conversation_id)
        check_executor(kind, executor)
        store, home = await self._home()
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
            while tried:  # somebody else was faster
                home.executors.pop(tried.pop(), None)
            if (waiting := seed_rules.waiting(actions)) is not None:
                raise PendingActionExistsError(
                    f"an action of kind {waiting.kind!r} waits for this person's answer here: "
                    "it is answered, dropped or expires before the next one"
                )
            action = seed_rules.stash(actions, make(at=actions.now))
            if executor is not None and action.expires_at is not None:
                # before it is written: its answer may come while the write does
                home.executors[action.pending_action_id] = executor, action.expires_at
                tried.append(action.pending_action_id)
            return action

        async with home.room(store, scope, self._max_entries):
            return await self._changed(scope, stash)

    async def get(
        self, user_id: str, *, channel_id: str | None = None, conversation_id: str | None = None
    ) -> PendingAction | None:
        """Return the action that waits for an answer, or None.

        What has expired, or was running when its process died, ends with this call.
        """
        scope = Scope(user_id, channel_id, conversation_id)
        return await self._changed(scope, seed_rules.waiting)

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
        """Execute what waits here when the message confirms it, and return what that came to.

        None: the message is no yes, or nothing waits, as after a twin of this message. Raises ValueError for an empty
        user with a yes, and StoreUnavailable when the store is closed while the parser reads.
        """
        opened = await self._home()
        confirms: object = await asyncio.to_thread(self.parser.is_confirm, message)
        if inspect.isawaitable(confirms):  # an async parser's: it would count as a yes, whatever it says
            confirms = await confirms
        if not confirms:
            return None
        if self._opened != opened:  # nobody would close it again
            raise StoreUnavailable("the pending store was closed while a yes was read: nothing was run")
        scope = Scope(user_id, channel_id, conversation_id)
        answer = Answer(
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
        """Take the answer of a button: ``confirm``, ``cancel`` or ``ignore``; any other is an ``ignore``.

        `expected_kind` and `expected_id` are those of the question that the button stands under. ``ignore`` leaves the
        action open for `ignore_ttl_seconds` at most. With `args_digest`, that of the arguments that were shown, a
        ``confirm`` runs no others. None: nothing waits. Raises ValueError for an empty user and for
        seconds that are negative or not finite.
        """
        seed_rules.check_seconds("ignore_ttl_seconds", ignore_ttl_seconds)
        scope = Scope(user_id, channel_id, conversation_id)
        answer = Answer(
            person=scope.person,
            intent=seed_rules.intent_of(intent),
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
        """Leave at most so many seconds for an answer, and return the record; its time never grows.

        None: nothing waits, or another one than `expected_id`. Raises ValueError for an empty user and for seconds that
        are negative or not finite.
        """
        seed_rules.check_seconds("seconds", seconds)
        scope = Scope(user_id, channel_id, conversation_id)

        tighten = partial(seed_rules.tighten, seconds=seconds, action_id=expected_id)
        return await self._changed(scope, tighten)

    async def drop(
        self, user_id: str, *, channel_id: str | None = None, conversation_id: str | None = None
    ) -> PendingAction | None:
        """Let go of what waits here, and return its record, which is cancelled then; None: nothing waits."""
        scope = Scope(user_id, channel_id, conversation_id)

        return await self._changed(scope, partial(seed_rules.drop, person=scope.person), expires=False)

    # ── how ──

    async def _home(self) -> tuple[Store, Home]:
        await self.open()
        if self._opened is None:
            raise RuntimeError("the pending store was closed while it was used")
        return self._opened

    async def _read(self, store: Store, home: Home, scope: Scope, *, expires: bool = True) -> ConversationActions:
        """Read what is there; what has died or (`expires`) expired has ended in it, and is not written yet."""
        actions = await home.load(store, scope.conversation)
        await end_dead(store, home, actions)
        if expires:
            seed_rules.end_expired(actions)
        return actions

    async def _changed(self, scope: Scope, change: Callable[[ConversationActions], T], *, expires: bool = True) -> T:
        """Read, change and write; again when somebody else was faster."""
        store, home = await self._home()
        for _ in range(_CONFLICTS):
            actions = await self._read(store, home, scope, expires=expires)
            changed = change(actions)
            with contextlib.suppress(Conflict):
                await home.write(store, actions)
                return changed
        raise _never_alone(scope)

    async def _answered(self, scope: Scope, answer: Answer) -> ConfirmOutcome | None:
        store, home = await self._home()
        for _ in range(_CONFLICTS):
            actions = await self._read(store, home, scope)
            verdict = seed_rules.judge(actions, answer, lambda action: self._executor(home, action) is not None)
            with contextlib.suppress(Conflict):
                if verdict is not None and verdict.status is None:
                    executor = self._executor(home, verdict.action) or _gone
                    return await run(store, home, actions, verdict.action, executor)
                await home.write(store, actions)
                if verdict is None or verdict.status is None:
                    return None
                return ConfirmOutcome(verdict.status, verdict.action, detail=verdict.detail)
        raise _never_alone(scope)

    def _executor(self, home: Home, action: PendingAction) -> Executor | None:
        """Return what executes this action here: made by a factory of its record, else its closure."""
        if (factory := self._factories.get(action.kind)) is not None:
            return made_by(factory, action)
        closure = home.executors.get(action.pending_action_id)
        return closure[0] if closure is not None else None


def _gone() -> None:
    raise RuntimeError("the executor is gone")


def _never_alone(scope: Scope) -> Conflict:
    return Conflict(f"others change what waits in {scope.conversation} all the time: try again")
