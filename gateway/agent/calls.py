"""The tool calls of one reply of the model: validation, execution or confirmation, and a result for each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from channels import Json
from gateway.agent.checking import UNKNOWN, CallChecker, CallFailed, CheckedCall, RefusedCall, error_text
from gateway.agent.confirming import Approved, Ask, Asked, OnConfirm, Unattended, Verdict
from gateway.agent.executing import CallExecutor
from gateway.agent.journal import CallResult, Progress
from gateway.agent.tool_set import AgentTool
from gateway.logs import describe_error
from gateway.observe.events import (
    PendingStashed,
    ToolEnd,
    ToolErrorRaised,
    ToolStart,
)
from gateway.observe.teller import RunTeller
from gateway.providers.base import ToolCall
from gateway.timing.deadlines import milliseconds_since
from gateway.tools import (
    ToolContext,
    ToolError,
    cause_of,
    serialise,
)

CALLS_IN_ONE_REPLY = 32
CALLS_AT_ONCE = 8

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRunner:
    """A runner for the tool calls of a turn."""

    checker: CallChecker
    executor: CallExecutor
    progress: Progress
    on_confirm: OnConfirm | Unattended
    context: ToolContext
    events: RunTeller
    in_parallel: bool
    """True to run the calls of a reply concurrently."""

    async def run(self, reply: int, calls: Sequence[ToolCall]) -> list[CallResult]:
        """Run the calls, and return a result for each, in call order.

        Calls that need no confirmation run first. Then all confirmations are requested together. `reply` counts from 1.
        """
        results: dict[str, CallResult] = {}
        runs: list[CheckedCall] = []
        asks: list[CheckedCall] = []
        keys = [f"{reply}.{number}" for number in range(1, len(calls) + 1)]
        for number, (key, call) in enumerate(zip(keys, calls, strict=True)):
            if (known := await self._known(key, call)) is not None:
                results[key] = known
                continue
            verdict = self.progress.verdicts(reply).get(key)
            checked = await self.checker.check(key, call, verdict) if number < CALLS_IN_ONE_REPLY else _too_many(call)
            if isinstance(checked, RefusedCall):
                results[key] = await self._refused(call, checked.text, what=checked.what)
                if checked.is_final:
                    await self.progress.finished(key, results[key])
            else:
                (asks if verdict is not None or checked.reason is not None else runs).append(checked)
        alone = bool(asks) or any(isinstance(each.tool, AgentTool) for each in runs)  # what asks, asks in order
        if self.in_parallel and len(runs) > 1 and not alone:
            results |= zip([each.key for each in runs], await self._together(runs), strict=True)
        else:
            for each in runs:
                results[each.key] = await self._run(each)
        if asks:
            results |= await self._ask(reply, asks)
        return [results[key] for key in keys]

    async def _known(self, key: str, call: ToolCall) -> CallResult | None:
        """Return the result of a call begun by an earlier attempt at this turn, or None.

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
        """Emit the events of a call finished by an earlier attempt at this turn."""
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

    async def _together(self, runs: Sequence[CheckedCall]) -> list[CallResult]:
        slots = asyncio.Semaphore(CALLS_AT_ONCE)

        async def in_a_slot(each: CheckedCall) -> CallResult:
            async with slots:
                return await self._run(each)

        tasks = [asyncio.ensure_future(in_a_slot(each)) for each in runs]
        try:
            return await asyncio.gather(*tasks)
        finally:
            # When one could not be recorded, or the lease of the turn was lost, the others must not run on unnoticed.
            if unfinished := [task for task in tasks if task.cancel()]:
                await asyncio.wait(unfinished)

    async def _run(self, each: CheckedCall) -> CallResult:
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
            result = await self.executor.execute(each)
        except CallFailed as error:
            failure, result = error, CallResult(text=error.text, failed=True)
        took = milliseconds_since(began)
        await self.progress.finished(each.key, result)
        if failure is not None:
            await self._tell_failure(call, each.args, failure, took)
        else:
            await self._tell_end(call, result, took)
        return result

    async def _ask(self, reply: int, asks: Sequence[CheckedCall]) -> dict[str, CallResult]:
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
                await self.executor.hand_over.asking.tell(
                    PendingStashed, action=verdict.action, call_id=call_id, from_checkpoint=is_known
                )
                results[each.key] = CallResult(text=serialise(verdict.confirmation), asked=(verdict,))
            elif isinstance(verdict, Approved):
                results[each.key] = await self._run(each)
            else:
                results[each.key] = await self._refused(each.call, verdict)
        return results

    async def _decide(self, asks: Sequence[CheckedCall]) -> dict[str, Verdict | Approved]:
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

    async def _refused(self, call: ToolCall, text: str, *, what: str | None = "it was not run") -> CallResult:
        """Return the result of a refused call. `what` is the reason in the log; None: logged already."""
        if what is not None:
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
            tool_name=call.name
            if call.name in self.checker.tools
            else "(unknown)",  # the model's own text is in no log
            error=failure if cause is None else cause,
            tool_args=args,
            duration_ms=duration_ms,
            what=describe_error(cause) if cause is not None else what,
            from_checkpoint=from_checkpoint,
        )


def _too_many(call: ToolCall) -> RefusedCall:
    return RefusedCall(text=f"Tool {call.name!r} was not run: at most {CALLS_IN_ONE_REPLY} calls in one reply.")
