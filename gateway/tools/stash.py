"""Stashed actions, the selectools way to ask: a tool stores the call to confirm, and can be tested alone.

`stash_pending` only stores the action. The collector (`stashing`) has the person asked after the tool returned.
"""

from __future__ import annotations

import inspect
import json
import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import isfinite
from typing import Any, TypeAlias

from channels import AskfirstError, Json
from gateway.tools.confirm import Confirm
from gateway.tools.context import ToolContext
from gateway.tools.errors import ToolError
from gateway.tools.function import Pieces
from gateway.tools.pending_action import PendingAction, canonical_json, compute_args_digest, json_text
from gateway.tools.tool import Tool

Executor: TypeAlias = Callable[[], Any]
"""The callback for a confirmed action, without arguments.

The return value becomes the outcome. The callback is sync (run in a thread) or async.
"""

Factory: TypeAlias = Callable[[PendingAction], Executor]
"""A callback for making the executor of a record, in the process handling the answer."""


def check_executor(kind: str, executor: object) -> None:
    """Raise ValueError for an executor not callable without arguments. None passes."""
    if executor is None:
        return
    if not callable(executor):
        raise ValueError(f"the executor of {kind!r} must be a function, not a {type(executor).__name__}")
    try:
        signature = inspect.signature(executor)
    except (ValueError, TypeError):  # some builtins have no signature
        return
    try:
        signature.bind()
    except TypeError as error:
        raise ValueError(
            f"the executor of {kind!r} is called without arguments, but it is {error}: "
            "bind them with functools.partial, or register a factory, which has them from the record"
        ) from None


def check_factory(kind: str, factory: object) -> None:
    """Raise ValueError for a factory that is not callable, or is async."""
    if not callable(factory):
        raise ValueError(f"the factory of {kind!r} must be a function, not a {type(factory).__name__}")
    if inspect.iscoroutinefunction(factory) or inspect.iscoroutinefunction(getattr(factory, "__call__", None)):  # noqa: B004
        raise ValueError(f"the factory of {kind!r} must not be async: the executor that it makes may be")


def made_by(factory: Factory, action: PendingAction) -> Executor:
    """Return an executor that calls the factory. The executor raises TypeError when the factory makes none."""

    def execute() -> Any:
        executor: object = factory(action)
        if inspect.iscoroutine(executor):
            executor.close()  # it is never awaited
        if not callable(executor):
            raise TypeError(f"the factory of {action.kind!r} must make a function, not a {type(executor).__name__}")
        return executor()

    return execute


def called(executor: Executor) -> Any:
    """Return the result of an executor, or an awaitable of it. The pieces of a generator are joined to one text.

    A sync generator runs in this call, an async generator when the result is awaited. Raises OutcomeUnknown for a
    generator above the limits of Pieces.
    """
    result = executor()
    if inspect.isasyncgen(result):
        return _joined(result)
    if not inspect.isgenerator(result):
        return result
    pieces = Pieces()
    with closing(result):
        for value in result:
            pieces.add(value)
    return pieces.joined()


async def _joined(generator: AsyncGenerator[Any, Any]) -> str:
    pieces = Pieces()
    async with aclosing(generator) as yielded:
        async for value in yielded:
            pieces.add(value)
    return pieces.joined()


ADAPTER = "adapter"
"""The `tool_version` of an action without a tool of an agent."""
DEFAULT_TTL_SECONDS = 60.0


class PendingActionExistsError(AskfirstError, RuntimeError):
    """An action of this person waits for an answer here already, and stays open."""


@dataclass(frozen=True, slots=True)
class Stash:
    """The action and the executor of a call of `stash_pending`."""

    action: PendingAction
    executor: Executor | None = field(default=None, repr=False)


class _StashCollector:
    """The stashes of a run, open for as long as the run lasts."""

    def __init__(self, context: ToolContext) -> None:
        self.context = context
        self.stashes: list[Stash] = []
        self.open = True


_current: ContextVar[_StashCollector | None] = ContextVar("askfirst_stashes", default=None)


@contextmanager
def stashing(context: ToolContext) -> Iterator[list[Stash]]:
    """Collect the stashed actions of a block into the yielded list. `context` is the context of the run.

    Concurrent runs do not see each other's actions. Stashing after the end of the block raises ToolError.
    """
    collector = _StashCollector(context)
    token = _current.set(collector)
    try:
        yield collector.stashes
    finally:
        collector.open = False
        _current.reset(token)


def stash_pending(
    *,
    kind: str,
    preview: str,
    executor: Executor | None = None,
    args: Mapping[str, Json] | None = None,
    ttl_seconds: float | None = None,
) -> PendingAction:
    """Ask the person of this run whether `executor` may run, and return the action.

    Call this inside a tool, and return a PendingConfirmation: the effect has not happened yet, and the turn ends with
    the question. `preview` describes the effect in a single line. `args` must be plain JSON, and are copied.
    `ttl_seconds` is how long the answer is valid, by default a minute.

    Raises ToolError outside a run of a tool, and PendingActionExistsError for a second action in the same call of a
    tool. Raises ValueError for an empty kind or preview, a `ttl_seconds` not positive and finite, `args` without
    canonical JSON, missing `args` if processes share the store (Redis), and an `executor` that is not a function or
    needs arguments.
    """
    collector = _current.get()
    if collector is None or not collector.open:
        raise ToolError(
            "stash_pending was called outside a run: call it inside a tool, before the tool returns. "
            "In a test, run the tool with askfirst.testing.run_tool"
        )
    if collector.stashes:
        waiting = collector.stashes[0].action.kind
        raise PendingActionExistsError(f"{waiting!r} was stashed in this call already: one question a call of a tool")
    check_executor(kind, executor)
    context = collector.context
    action = new_action(
        kind=kind,
        preview=preview,
        args=args,
        ttl_seconds=DEFAULT_TTL_SECONDS if ttl_seconds is None else ttl_seconds,
        at=context.clock(),
        shared=context.shared,
        requester=context.person,
        conversation=context.conversation,
        address=context.address,
        language=context.language,
    )
    collector.stashes.append(Stash(action, executor))
    return action


def new_action(
    *,
    kind: str,
    preview: str,
    args: Mapping[str, Json] | None,
    ttl_seconds: float,
    at: datetime,
    shared: bool,
    **more: Any,
) -> PendingAction:
    """Return the record of an action without a tool of an agent. `more` has the other fields.

    The record has no code and no digest yet. `shared` is True if other processes work on the same store. Raises
    ValueError as `stash_pending`.
    """
    for name, text in (("kind", kind), ("preview", preview)):
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"{name} must be a text that is not empty: it is what the person is asked")
        canonical_json(text)
    try:
        if not (isfinite(ttl_seconds) and ttl_seconds > 0):
            raise ValueError
        _ = at + timedelta(seconds=ttl_seconds)
    except (ValueError, TypeError, OverflowError):
        raise ValueError(f"ttl_seconds must be a positive, finite number of seconds, not {ttl_seconds!r}") from None
    if not isinstance(args, Mapping | None):
        raise ValueError(f"args must be a mapping of names to values, not {args!r}")
    if shared and args is None:
        raise ValueError(
            f"args must be given where processes share the store: one that did not stash {kind!r} has to see from them "
            "what is asked, and a factory makes the executor of them. args={} says that there are none"
        )
    digest = compute_args_digest(args)
    return PendingAction(
        pending_action_id=secrets.token_hex(16),
        salt=secrets.token_hex(16),
        kind=kind,
        tool_version=ADAPTER,
        args=json.loads(json_text(dict(args or {}))),
        args_digest=digest,
        preview=preview,
        ttl_seconds=ttl_seconds,
        answer_window_seconds=ttl_seconds,
        requested_at=at,
        **more,
    )


_MOST_KEPT = 5000
"""The most executors kept for unfinished stashed actions."""


class StashedTool(Tool):
    """A tool for running the executor of an action. The arguments are shown and sealed, but not passed on."""

    def __init__(self, action: PendingAction, executor: Executor | None) -> None:
        """Make the tool of an action. Without an `executor` the tool can ask, and cannot run."""
        function = _absent if executor is None else _taking_nothing(executor)
        description = "Do what was stashed."
        rule = Confirm(ttl_seconds=action.ttl_seconds, volatile=True)
        super().__init__(function, name="stashed", description=description, confirm=rule)
        self.name, self.version_hash, self.action = action.kind, ADAPTER, action
        self.runs = executor is not None

    async def run(self, args: Mapping[str, Any], ctx: ToolContext, **options: Any) -> Any:
        """Run the executor and return the result, awaited if necessary. Raises as `Tool.run`."""
        result = await super().run({}, ctx, **options)
        return await result if inspect.isawaitable(result) else result


class Executors:
    """The executors of stashed actions in this process: from stashing, and from factories."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, StashedTool] = OrderedDict()
        self._factories: dict[str, Factory] = {}

    def add_factory(self, kind: str, factory: Factory) -> None:
        """Add the factory of the actions of this kind. Raises ValueError for anything but a sync function."""
        check_factory(kind, factory)
        self._factories[kind] = factory

    def keep(self, action_id: str, tool: StashedTool) -> None:
        """Keep the executor of an action until the action has ended. Beyond 5,000, the oldest is dropped."""
        self._kept[action_id] = tool
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)

    def forget(self, action_id: str) -> None:
        """Drop the executor of an ended action."""
        self._kept.pop(action_id, None)

    def tool_of(self, action: PendingAction) -> StashedTool | None:
        """Return the tool of a stashed action; None without an executor in this process."""
        if (factory := self._factories.get(action.kind)) is not None:
            return StashedTool(action, made_by(factory, action))
        kept = self._kept.get(action.pending_action_id)
        return kept if kept is not None and kept.runs else None


def _absent() -> None:
    """Stand in for an absent executor."""


def _taking_nothing(executor: Executor) -> Callable[[], Any]:
    """Return the executor without its parameters: a lambda often has some, with defaults."""
    if inspect.iscoroutinefunction(executor):

        async def later() -> Any:
            return await executor()

        return later

    def now() -> Any:
        return called(executor)

    return now
