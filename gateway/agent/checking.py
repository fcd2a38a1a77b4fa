"""The check of one tool call of the model: its tool, its interceptors, its arguments and the policy."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from channels import Json
from gateway.agent.call_errors import ERROR_LENGTH
from gateway.agent.coherence_check import CoherenceCheck
from gateway.agent.confirming import Asked, Verdict
from gateway.agent.full_result import full_result_tool
from gateway.agent.guarding import Blocked, Guarding
from gateway.agent.interceptors import InterceptorFailed, Interceptors, Veto
from gateway.observe.events import InterceptorVetoed, PolicyDecision
from gateway.observe.teller import RunTeller
from gateway.providers.base import ToolCall
from gateway.tools import Tool, ToolContext, ToolPolicy, ToolValidationError

__all__ = ["CallChecker", "CheckedCall", "RefusedCall"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedCall:
    """A validated call that may run, or that a person has to be asked about."""

    key: str
    call: ToolCall
    tool: Tool
    args: Mapping[str, Json]
    reason: str | None
    """The reason why it needs a confirmation; None: it needs none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedCall:
    """A call that does not run. `text` tells the model why."""

    text: str
    what: str | None = "it was not run"
    """The reason in the log; None: it has been told."""
    is_final: bool = False
    """True to record it, so that another attempt at the turn does not check the call again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallChecker:
    """A checker of the tool calls of one turn."""

    tools: Mapping[str, Tool]
    policy: ToolPolicy | None
    context: ToolContext
    events: RunTeller
    interceptors: Interceptors
    guarding: Guarding | None
    coherence: CoherenceCheck | None

    async def check(self, key: str, call: ToolCall, verdict: Verdict | None) -> CheckedCall | RefusedCall:
        """Check a call. `verdict` is the decision of an earlier attempt at this turn; None: there is none."""
        if call.parse_error is not None:
            return RefusedCall(
                text=f"Tool call for {call.name!r} had malformed arguments ({call.parse_error}). "
                "Retry with properly escaped JSON."
            )
        tool = self.tools.get(call.name)
        if tool is None:
            return RefusedCall(text=f"Unknown tool {call.name!r}. Available tools: {', '.join(self.tools) or 'none'}")
        given = await self._intercepted(key, call) if verdict is None else _shown(verdict, call)
        if isinstance(given, RefusedCall):
            return given
        if verdict is None and self.guarding is not None and self.guarding.watches("tool_args"):
            guarded = await self.guarding.args(call, given)
            if isinstance(guarded, Blocked):
                text = f"Tool {tool.name!r} was not run: the guard {guarded.guardrail!r} refuses its arguments."
                return RefusedCall(text=text, is_final=True)
            given = guarded
        try:
            args = tool.validate(given)
        except ToolValidationError as error:
            return RefusedCall(text=str(error))
        reason = "this tool always asks" if tool.confirm is not None else None
        if (policy := tool.under(self.policy)) is not None:
            decision, rule = policy.decide(tool.name, args)
            await self.events.tell(PolicyDecision, tool_name=tool.name, decision=decision, reason=rule, tool_args=args)
            if decision == "deny":
                return RefusedCall(text=f"Tool {tool.name!r} is not allowed here ({rule}). Do not try it again.")
            # `full_result` reads a result of a call that was allowed: no person is asked again.
            if decision == "review" and reason is None and tool is not full_result_tool():
                reason = rule
        check = self.coherence if verdict is None else None
        if check is not None and not await check.fits(tool, args, asks=reason is not None):
            text = f"Tool {tool.name!r} was not run: the call does not fit what the person asked for."
            return RefusedCall(text=text, is_final=True)
        return CheckedCall(key=key, call=call, tool=tool, args=args, reason=reason)

    async def _intercepted(self, key: str, call: ToolCall) -> Mapping[str, Json] | RefusedCall:
        """Return the arguments of a call after its interceptors, or its refusal if they stop it."""
        if not self.interceptors.of_calls:
            return call.args
        context = replace(self.context, idempotency_key=f"{self.context.idempotency_key}/{key}")
        try:
            given = await self.interceptors.edit_call(context, call.name, call.args)
        except InterceptorFailed as error:
            _log.error("tool %s was not run: %s", call.name, error)
            text = f"Tool {call.name!r} was not run: {_NOT_CHECKED}"
            return RefusedCall(text=text, what=str(error), is_final=True)
        if not isinstance(given, Veto):
            return given
        about = {"conversation": context.conversation, "tool_name": call.name, "call_id": call.call_id}
        await self.events.tell(InterceptorVetoed, stage="tool_call", interceptor=given.interceptor, **about)
        text = given.reason[:ERROR_LENGTH] or "it was vetoed. Do not try it again."
        return RefusedCall(text=f"Tool {call.name!r} was not run: {text}", what=None, is_final=True)


_NOT_CHECKED = "it could not be checked. Do not try it again now; tell the person."


def _shown(verdict: Verdict, call: ToolCall) -> Mapping[str, Json]:
    """Return the arguments that an earlier attempt at this turn asks about: they have passed the interceptors."""
    return verdict.action.args if isinstance(verdict, Asked) else call.args
