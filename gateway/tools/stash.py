"""Stashed actions, the selectools way to ask: a tool stores the call to confirm, and can be tested alone.

`stash_pending` only stores the action. The collector (`stashing`) has the person asked after the tool returned.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import isfinite
from typing import Any

from channels import AskfirstError, Json
from gateway.tools.context import ToolContext
from gateway.tools.errors import ToolError
from gateway.tools.executor import Executor, check_executor
from gateway.tools.pending_action import PendingAction, canonical_json, compute_args_digest, json_text

__all__ = [
    "ADAPTER",
    "DEFAULT_TTL_SECONDS",
    "Executor",
    "PendingActionExistsError",
    "Stash",
    "new_action",
    "stash_pending",
    "stashing",
]

ADAPTER = "adapter"
"""The `tool_version` of an action without a tool of an agent."""
DEFAULT_TTL_SECONDS = 60.0


class PendingActionExistsError(AskfirstError, RuntimeError):
    """An action of this person waits for an answer here already. That action stays open."""


@dataclass(frozen=True, slots=True)
class Stash:
    """The action and the executor of one call of `stash_pending`."""

    action: PendingAction
    executor: Executor | None = field(default=None, repr=False)


class _StashCollector:
    """The stashes of one run, open for as long as the run lasts."""

    def __init__(self, context: ToolContext) -> None:
        self.context = context
        self.stashes: list[Stash] = []
        self.open = True


_current: ContextVar[_StashCollector | None] = ContextVar("askfirst_stashes", default=None)


@contextmanager
def stashing(context: ToolContext) -> Iterator[list[Stash]]:
    """Collect the stashed actions of a block into the list that it yields. `context` is that of the run.

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

    Call it inside a tool, and return a PendingConfirmation: the effect has not happened yet, and the turn ends with the
    question. `preview` says in one line what would happen. `args` must be plain JSON; they are copied. `ttl_seconds` is
    the time for which the answer is valid, by default a minute.

    Raises ToolError outside a run of a tool, and PendingActionExistsError for a second action in the same call of a
    tool. Raises ValueError for an empty kind or preview, a `ttl_seconds` that is not positive and finite, `args` that
    canonical JSON cannot hold, missing `args` if processes share the store (Redis), and an `executor` that is not a
    function or needs arguments.
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
    """Return the record of an action without a tool of an agent. `more` are its other fields.

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
