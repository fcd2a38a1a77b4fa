"""The tool calls of one reply of the model: validation, execution or confirmation, and a result for each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Literal

from channels import Json
from gateway.agent.agent_tool import AgentTool
from gateway.agent.call_errors import ERROR_LENGTH, UNKNOWN, CallFailed, error_text
from gateway.agent.config import AgentConfig
from gateway.agent.confirming import Ask, Asked, OnConfirm, Verdict
from gateway.agent.handing_over import HandOver
from gateway.agent.interceptors import InterceptorFailed, Interceptors, Veto
from gateway.agent.journal import CallResult, Keep, Progress
from gateway.agent.unattended import Approved, Unattended
from gateway.artifacts import Artifact, NotKept, collecting, emit_artifact
from gateway.logs import describe_error
from gateway.observe.events import (
    InterceptorVetoed,
    PendingStashed,
    PolicyDecision,
    ToolChunk,
    ToolEnd,
    ToolErrorRaised,
    ToolStart,
    milliseconds_since,
)
from gateway.observe.teller import RunTeller
from gateway.providers.base import ToolCall
from gateway.tools import (
    Preview,
    Tool,
    ToolContext,
    ToolError,
    ToolPolicy,
    ToolValidationError,
    cause_of,
    serialise,
)
from gateway.tools.stash import Stash, stashing
from gateway.tools.stashed import StashedTool

__all__ = ["CallRunner"]

CALLS_IN_ONE_REPLY = 32
CALLS_AT_ONCE = 8

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """A validated call that may run, or that a person has to be asked about."""

    key: str
    call: ToolCall
    tool: Tool
    args: Mapping[str, Json]
    reason: str | None
    """The reason why it needs a confirmation; None: it needs none."""


@dataclass(frozen=True, slots=True)
class _Ran:
    """The result of a stashed executor that was approved at once."""

    result: object


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRunner:
    """A runner for the tool calls of one turn."""

    tools: Mapping[str, Tool]
    config: AgentConfig
    policy: ToolPolicy | None
    context: ToolContext
    progress: Progress
    on_confirm: OnConfirm | Unattended
    events: RunTeller
    keep: Keep | None
    interceptors: Interceptors
    hand_over: HandOver
    collect: Callable[[], AbstractContextManager[list[Artifact]]] = collecting

    async def run(self, reply: int, calls: Sequence[ToolCall]) -> list[CallResult]:
        """Run the calls, and return one result for each, in call order.

        Calls that need no confirmation run first. Then all others are asked together. `reply` counts from 1.
        """
        results: dict[str, CallResult] = {}
        runs: list[_Checked] = []
        asks: list[_Checked] = []
        keys = [f"{reply}.{number}" for number in range(1, len(calls) + 1)]
        for number, (key, call) in enumerate(zip(keys, calls, strict=True)):
            if (known := await self._known(key, call)) is not None:
                results[key] = known
                continue
            verdict = self.progress.verdicts(reply).get(key)
            checked = await self._check(key, call, verdict) if number < CALLS_IN_ONE_REPLY else _too_many(call)
            if isinstance(checked, str):
                results[key] = await self._refused(call, checked)
            elif isinstance(checked, CallResult):
                results[key] = checked
            else:
                (asks if verdict is not None or checked.reason is not None else runs).append(checked)
        alone = bool(asks) or any(isinstance(each.tool, AgentTool) for each in runs)  # what asks, asks in order
        if self.config.parallel_tool_execution and len(runs) > 1 and not alone:
            results |= zip([each.key for each in runs], await self._together(runs), strict=True)
        else:
            for each in runs:
                results[each.key] = await self._run(each)
        if asks:
            results |= await self._ask(reply, asks)
        return [results[key] for key in keys]

    async def _known(self, key: str, call: ToolCall) -> CallResult | None:
        """Return the result of a call that an earlier attempt at this turn began; None if none did.

        The current definition of the tool does not matter.
        """
        result = self.progress.result(key)
        if result is not None:
            await self._tell_known(call, result)
        elif self.progress.was_started(key):
            result = await self._refused(call, f"Tool {call.name!r} was interrupted: {UNKNOWN}")
            await self.progress.finished(key, result)
        return result

    async def _tell_known(self, call: ToolCall, result: CallResult) -> None:
        """Tell a call that an earlier attempt at this turn finished."""
        for asked in result.asked:
            await self.events.tell(PendingStashed, action=asked.action, call_id=call.call_id, from_checkpoint=True)
        if result.failed:
            failure, what = CallFailed(result.text), "it did not run or failed in an earlier attempt"
            await self._tell_failure(call, call.args, failure, 0.0, what, from_checkpoint=True)
        else:
            await self._tell_end(call, result, 0.0, from_checkpoint=True)

    async def _tell_end(
        self, call: ToolCall, result: CallResult, duration_ms: float, *, from_checkpoint: bool = False
    ) -> None:
        await self.events.tell(
            ToolEnd,
            call_id=call.call_id,
            tool_name=call.name,
            result=result.text,
            duration_ms=duration_ms,
            artifacts=[artifact.filename or artifact.url or "" for artifact in result.artifacts],
            from_checkpoint=from_checkpoint,
        )

    async def _check(self, key: str, call: ToolCall, verdict: Verdict | None) -> _Checked | CallResult | str:
        """Validate a call. Return the reason as a text when it is refused, or its result when it was stopped."""
        if call.parse_error is not None:
            return (
                f"Tool call for {call.name!r} had malformed arguments ({call.parse_error}). "
                "Retry with properly escaped JSON."
            )
        tool = self.tools.get(call.name)
        if tool is None:
            return f"Unknown tool {call.name!r}. Available tools: {', '.join(self.tools) or 'none'}"
        given = await self._intercepted(key, call) if verdict is None else _shown(verdict, call)
        if isinstance(given, CallResult):
            return given
        try:
            args = tool.validate(given)
        except ToolValidationError as error:
            return str(error)
        reason = "this tool always asks" if tool.confirm is not None else None
        if self.policy is not None:
            decision, rule = self.policy.decide(tool.name, args)
            await self.events.tell(PolicyDecision, tool_name=tool.name, decision=decision, reason=rule, tool_args=args)
            if decision == "deny":
                return f"Tool {tool.name!r} is not allowed here ({rule}). Do not try it again."
            if decision == "review" and reason is None:
                reason = rule
        return _Checked(key=key, call=call, tool=tool, args=args, reason=reason)

    async def _intercepted(self, key: str, call: ToolCall) -> Mapping[str, Json] | CallResult:
        """Return the arguments of a call after its interceptors, or its result if they stop it.

        The result is recorded: another attempt at this turn does not ask them again.
        """
        if not self.interceptors.of_calls:
            return call.args
        context, text = replace(self.context, idempotency_key=f"{self.context.idempotency_key}/{key}"), _NOT_CHECKED
        try:
            given = await self.interceptors.edit_call(context, call.name, call.args)
        except InterceptorFailed as error:
            _log.error("tool %s was not run: %s", call.name, error)
            result = await self._refused(call, f"Tool {call.name!r} was not run: {text}", what=str(error))
        else:
            if not isinstance(given, Veto):
                return given
            about = {"conversation": context.conversation, "tool_name": call.name, "call_id": call.call_id}
            await self.events.tell(InterceptorVetoed, stage="tool_call", interceptor=given.interceptor, **about)
            text = given.reason[:ERROR_LENGTH] or "it was vetoed. Do not try it again."
            result = CallResult(text=f"Tool {call.name!r} was not run: {text}", failed=True)
        await self.progress.finished(key, result)
        return result

    async def _together(self, runs: Sequence[_Checked]) -> list[CallResult]:
        slots = asyncio.Semaphore(CALLS_AT_ONCE)

        async def in_a_slot(each: _Checked) -> CallResult:
            async with slots:
                return await self._run(each)

        tasks = [asyncio.ensure_future(in_a_slot(each)) for each in runs]
        try:
            return await asyncio.gather(*tasks)
        finally:
            # When one could not be recorded, or the lease of the turn was lost, the others must not run on unnoticed.
            if unfinished := [task for task in tasks if task.cancel()]:
                await asyncio.wait(unfinished)

    async def _run(self, each: _Checked) -> CallResult:
        tool, call, tell = each.tool, each.call, self.events.tell
        if each.reason is not None and not isinstance(self.on_confirm, Unattended):
            # This should not be reached: the engine executes confirmed calls from their sealed record.
            return await self._refused(call, f"Tool {tool.name!r} was not run: a person has to confirm it first.")
        if self.context.cancelled:
            return await self._refused(call, f"Tool {tool.name!r} was not run: the person has ended this turn.")
        await tell(ToolStart, call_id=call.call_id, tool_name=tool.name, tool_args=each.args)
        if not tool.repeatable:  # nothing is awaited between this and the call
            await self.progress.started(each.key)
        began, failure = asyncio.get_running_loop().time(), None
        try:
            result = await self._execute(each)
        except CallFailed as error:
            failure, result = error, CallResult(text=error.text, failed=True)
        took = milliseconds_since(began)
        await self.progress.finished(each.key, result)
        if failure is not None:
            await self._tell_failure(call, each.args, failure, took)
        else:
            await self._tell_end(call, result, took)
        return result

    async def _execute(self, each: _Checked) -> CallResult:
        """Run the tool. Raises CallFailed."""
        tool, call = each.tool, each.call
        context = replace(
            self.context, idempotency_key=f"{self.context.idempotency_key}/{each.key}", emit=emit_artifact
        )

        if isinstance(tool, AgentTool):
            result = await self.hand_over(tool, each.key, str(each.args["task"]), context)
            return replace(result, stop=self._stop(tool, result.text))

        def on_chunk(text: str) -> None:
            self.events.tell_now(ToolChunk, call_id=call.call_id, tool_name=tool.name, chunk=text)

        with self.collect() as emitted, stashing(context) as stashed:
            try:
                raw = await tool.run(
                    each.args, context, timeout_seconds=self.config.tool_timeout_seconds, on_chunk=on_chunk
                )
            except ToolError as error:
                raise CallFailed(error_text(tool, error), error) from error
        asked: tuple[Asked, ...] = ()
        for stash in stashed:
            verdict = await self._stashed(call, stash, context)
            if isinstance(verdict, str):
                raise CallFailed(verdict)
            asked, raw = ((verdict,), verdict.confirmation) if isinstance(verdict, Asked) else ((), verdict.result)
        text = serialise(raw)
        try:
            artifacts = tuple([await self._kept(artifact) for artifact in emitted])
        except NotKept as error:
            _log.error("tool %s has run, but its files are lost: %s", tool.name, error)
            artifacts, text = (), f"{text}\n\n{_FILES_LOST}"
        return CallResult(text=text, artifacts=artifacts, stop=self._stop(tool, text), asked=asked)

    async def _stashed(self, call: ToolCall, stash: Stash, context: ToolContext) -> Asked | _Ran | str:
        """Ask a person about a stashed call. Return the reason as a text when the person is not asked."""
        tool, action = StashedTool(stash.action, stash.executor), stash.action
        preview = Preview(text=action.preview)
        ask = Ask(call=call, tool=tool, args=action.args, preview=preview, reason="the tool stashed it")
        (verdict,) = await self.on_confirm([ask])
        if isinstance(verdict, str):
            return f"Tool {call.name!r}: {verdict}"
        if isinstance(verdict, Asked):
            await self.hand_over.asking.tell(PendingStashed, action=verdict.action, call_id=call.call_id)
            return verdict
        if not tool.runs:
            return f"Tool {call.name!r}: what it stashed has no executor, so nothing was done."
        try:
            return _Ran(await tool.run({}, context, timeout_seconds=self.config.tool_timeout_seconds))
        except ToolError as error:
            return error_text(tool, error)

    async def _kept(self, artifact: Artifact) -> Artifact:
        if self.keep is None or artifact.content is None:
            return artifact
        media = await self.keep(artifact)
        return replace(artifact, content=None, mime_type=media.mime_type, filename=media.filename)

    def _stop(self, tool: Tool, text: str) -> Literal["terminal_tool", "stop_condition"] | None:
        if tool.terminal:
            return "terminal_tool"
        try:
            ends = self.config.stop_condition is not None and self.config.stop_condition(tool.name, text) is True
        except Exception as error:  # noqa: BLE001 - an error of the author's function must not fail the turn
            _log.warning("stop_condition raised %s after tool %s: taken as False", describe_error(error), tool.name)
            return None
        return "stop_condition" if ends else None

    async def _ask(self, reply: int, asks: Sequence[_Checked]) -> dict[str, CallResult]:
        results: dict[str, CallResult] = {}
        verdicts: dict[str, Verdict | Approved] = dict(self.progress.verdicts(reply))
        earlier = frozenset(verdicts)
        if undecided := [each for each in asks if each.key not in verdicts]:
            new = await self._decide(undecided)
            kept = {key: verdict for key, verdict in new.items() if not isinstance(verdict, Approved)}
            await self.progress.decided(reply, kept)
            verdicts |= new
        for each in asks:
            verdict = verdicts[each.key]
            if isinstance(verdict, Asked):
                is_known, call_id = each.key in earlier, each.call.call_id
                await self.hand_over.asking.tell(
                    PendingStashed, action=verdict.action, call_id=call_id, from_checkpoint=is_known
                )
                results[each.key] = CallResult(text=serialise(verdict.confirmation), asked=(verdict,))
            elif isinstance(verdict, Approved):
                results[each.key] = await self._run(each)
            else:
                results[each.key] = await self._refused(each.call, verdict)
        return results

    async def _decide(self, asks: Sequence[_Checked]) -> dict[str, Verdict | Approved]:
        verdicts: dict[str, Verdict | Approved] = {}
        prepared: dict[str, Ask] = {}
        for each in asks:
            tool = each.tool
            if self.context.cancelled:
                verdicts[each.key] = f"Tool {tool.name!r}: nobody was asked, the person has ended this turn."
                continue
            try:
                preview = await tool.preview(each.args, self.context)
            except ToolError as error:
                _log.warning("the preview of %s failed: %s", tool.name, describe_error(cause_of(error)))
                verdicts[each.key] = error_text(tool, error)
            except ValueError as error:
                verdicts[each.key] = f"Tool {tool.name!r} was not run and nobody was asked: {error}"
            else:
                prepared[each.key] = Ask(
                    call=each.call, tool=tool, args=each.args, preview=preview, reason=each.reason or ""
                )
        if prepared:
            verdicts |= zip(prepared, await self.on_confirm(list(prepared.values())), strict=True)
        return verdicts

    async def _refused(self, call: ToolCall, text: str, *, what: str = "it was not run") -> CallResult:
        """Return the result of a call that does not run. `what` says why in the log."""
        await self._tell_failure(call, call.args, CallFailed(text), 0.0, what)
        return CallResult(text=text, failed=True)

    async def _tell_failure(
        self,
        call: ToolCall,
        args: Mapping[str, Json],
        failure: CallFailed,
        duration_ms: float,
        what: str = "",
        *,
        from_checkpoint: bool = False,
    ) -> None:
        cause = cause_of(failure.error) if failure.error is not None else None
        await self.events.tell(
            ToolErrorRaised,
            call_id=call.call_id,
            tool_name=call.name if call.name in self.tools else "(unknown)",  # the model's own text is in no log
            error=failure if cause is None else cause,
            tool_args=args,
            duration_ms=duration_ms,
            what=describe_error(cause) if cause is not None else what,
            from_checkpoint=from_checkpoint,
        )


_NOT_CHECKED = "it could not be checked. Do not try it again now; tell the person."
_FILES_LOST = "But its files could not be kept: nobody gets them. Tell the person."


def _shown(verdict: Verdict, call: ToolCall) -> Mapping[str, Json]:
    """Return the arguments that an earlier attempt at this turn asks about: they have passed the interceptors."""
    return verdict.action.args if isinstance(verdict, Asked) else call.args


def _too_many(call: ToolCall) -> str:
    return f"Tool {call.name!r} was not run: at most {CALLS_IN_ONE_REPLY} calls in one reply."
