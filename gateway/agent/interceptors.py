"""Interceptors: an author's functions for a veto on a message or a tool call, or for edits of a call before validation.

A veto is final, and the first veto ends the check. An interceptor fails by raising another error, returning a value or
missing the time limit. Then the message or the call goes no further either.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, TypeAlias, get_args

from channels import AskfirstError, Json, Message
from gateway.logs import describe_error
from gateway.timing.left_tasks import leave
from gateway.tools import ToolContext, cause_of
from gateway.tools.function import Function, call_guarded

Stage: TypeAlias = Literal["message", "tool_call"]

INTERCEPT_SECONDS = 10.0
"""The time limit of one call of an interceptor."""

_KEYWORDS: Final[Mapping[Stage, frozenset[str]]] = {
    "message": frozenset({"context", "message"}),
    "tool_call": frozenset({"context", "tool_name", "tool_args"}),
}


class Vetoed(AskfirstError):
    """Raised by an interceptor to stop a message or a tool call.

    `reason` is the answer to the person of a message, or the model's error for a call. Empty: the person gets no
    answer, and the model reads only a notice of the veto.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class InterceptorFailed(AskfirstError):
    """An interceptor raised another error than Vetoed, returned a value, or did not end in time.

    The text names the interceptor, without the text of the error, which may hold a person's words.
    """

    def __init__(self, interceptor: str, why: str) -> None:
        super().__init__(f"the interceptor {interceptor} failed: {why}")
        self.interceptor, self.why = interceptor, why


@dataclass(frozen=True, slots=True)
class Veto:
    """A veto, and the name of the vetoing interceptor."""

    reason: str
    interceptor: str


class Interceptors:
    """The interceptors of one bot, called in the order of addition."""

    def __init__(self, timeout_seconds: float = INTERCEPT_SECONDS) -> None:
        self.timeout_seconds = timeout_seconds
        self._functions: dict[Stage, list[Function]] = {stage: [] for stage in _KEYWORDS}

    def check_stage(self, stage: str) -> None:
        """Raise ValueError for an unknown stage."""
        if stage not in get_args(Stage):
            raise ValueError(f"{stage!r} is no stage: intercept 'message' or 'tool_call'")

    def add(self, stage: Stage, function: Callable[..., Any]) -> None:
        """Add an interceptor. Raises ValueError for a function not callable with the keywords of the stage."""
        try:
            added = Function(function, getattr(function, "__qualname__", type(function).__qualname__))
        except ValueError as error:
            raise ValueError(f"an interceptor is called with keywords: {error}") from None
        if added.is_generator:
            raise ValueError(f"the interceptor {added.name} is a generator: it must return None or raise Vetoed")
        if unknown := added.needs - _KEYWORDS[stage]:
            known = ", ".join(sorted(_KEYWORDS[stage]))
            raise ValueError(f"the interceptor {added.name} needs {', '.join(sorted(unknown))}: it only gets {known}")
        self._functions[stage].append(added)

    @property
    def of_messages(self) -> bool:
        """True if there is an interceptor of messages."""
        return bool(self._functions["message"])

    @property
    def of_calls(self) -> bool:
        """True if there is an interceptor of tool calls."""
        return bool(self._functions["tool_call"])

    async def check_message(self, context: ToolContext, message: Message) -> Veto | None:
        """Return the veto of a message, or None. Raises InterceptorFailed."""
        for function in self._functions["message"]:
            if (veto := await self._call(function, context, {"message": message})) is not None:
                return veto
        return None

    async def edit_call(
        self, context: ToolContext, tool_name: str, args: Mapping[str, Json]
    ) -> Mapping[str, Json] | Veto:
        """Return the arguments of a call after the edits of the interceptors, or a veto. Raises InterceptorFailed.

        Each interceptor gets a copy, and the result is a copy too: later changes to a copy change no call.
        """
        for function in self._functions["tool_call"]:
            own = deepcopy(dict(args))
            veto = await self._call(function, context, {"tool_name": tool_name, "tool_args": own})
            if veto is not None:
                return veto
            args = _plain(function.name, own)
        return args

    async def check_call(self, context: ToolContext, tool_name: str, args: Mapping[str, Json]) -> Veto | None:
        """Return the veto of a call after a person has seen the arguments, or None. Edits are ignored.

        Raises InterceptorFailed.
        """
        for function in self._functions["tool_call"]:
            values = {"tool_name": tool_name, "tool_args": deepcopy(dict(args))}
            if (veto := await self._call(function, context, values)) is not None:
                return veto
        return None

    async def _call(self, function: Function, context: ToolContext, values: Mapping[str, Any]) -> Veto | None:
        call = partial(function.call, {"context": context, **values}, context)
        # It has a task of its own, since it may ignore its cancellation: then it is left.
        task = asyncio.ensure_future(call_guarded(function.name, call, limit=None, lock=None, passing=(Vetoed,)))
        try:
            done, _ = await asyncio.wait({task}, timeout=self.timeout_seconds)
        except asyncio.CancelledError:
            leave(task)
            raise
        if not done:
            leave(task)
            raise InterceptorFailed(function.name, f"it did not end within {self.timeout_seconds:g} seconds")
        try:
            result = task.result()
        except Vetoed as veto:
            return Veto(str(veto.reason), function.name)
        except (Exception, asyncio.CancelledError) as error:
            raise InterceptorFailed(function.name, describe_error(cause_of(error))) from error
        if result is not None:
            raise InterceptorFailed(function.name, f"it returned {type(result).__name__}, not None")
        return None


def _plain(interceptor: str, args: dict[str, Json]) -> dict[str, Json]:
    """Return a copy of edited arguments, as JSON. Raises InterceptorFailed for arguments outside of JSON."""
    try:
        plain: dict[str, Json] = json.loads(json.dumps(args, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InterceptorFailed(interceptor, "it left arguments that are no JSON") from error
    return plain
