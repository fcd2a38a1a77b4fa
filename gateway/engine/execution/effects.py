"""Effects: run the tool of a launched action, and classify the end as done, failed or unknown.

An effect ends as `unknown` after a timeout or a cancellation, and after a network error if the request may have
arrived. A sync tool continues in a thread after the timeout, and the end follows later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

from channels import Media
from gateway.agent.guarding import WITHHELD, Blocked, Guarding
from gateway.artifacts import Artifact, NotKept, collecting, emit_artifact
from gateway.engine.context import EngineContext
from gateway.engine.leases import BEATS
from gateway.guards import screen_aside, screened_name
from gateway.logs import describe_error
from gateway.observe.events import EffectEnd
from gateway.observe.teller import begin_run
from gateway.pending.prompt import statement
from gateway.pending.transitions import PROBED_NOT_DONE, may_relaunch
from gateway.timing.deadlines import milliseconds_since
from gateway.tools import (
    NothingDone,
    OutcomeUnknown,
    Tool,
    ToolBusy,
    ToolContext,
    ToolError,
    ToolFailed,
    cause_of,
    leaves_open,
    serialise,
)
from gateway.tools.escape import link, plain, shown
from gateway.tools.pending_action import PendingAction
from gateway.tools.stopping import is_cancelled
from gateway.wording import say

log = logging.getLogger("askfirst.actions")

_TIMEOUT_SECONDS = 60.0
_MOST_SAID = 2000
"""The most characters of a failed tool's own error text for the model."""
_MOST_REASON = 300
"""The most characters of a failure's reason for the person."""


@dataclass(frozen=True, slots=True)
class EffectResult:
    """The end of an effect, as far as this worker knows."""

    state: Literal["done", "failed", "unknown"]
    outcome: str
    text: str | None = None
    """Sent to the person instead of the gateway's own sentence about this state."""
    media: tuple[Media, ...] = ()
    again: bool = False
    """The action is checked again later: the tool may run again with the same key, or the probe is asked again."""


class Effects:
    """The effects of this process: runs the tools of launched actions, and the probes."""

    def __init__(self, context: EngineContext, *, timeout_seconds: float = _TIMEOUT_SECONDS) -> None:
        self._context, self._timeout_seconds = context, timeout_seconds
        self.instead: Callable[[PendingAction], None] | None = None
        """Called with a launched action in place of its tool. None: tools run."""

    def tool_context(self, action: PendingAction) -> ToolContext:
        """Return the context of the call for the action's tool."""
        context = self._context
        outside = action.address is not None and action.address.channel == "app"
        return ToolContext(
            person=action.requester,
            address=None if outside else action.address,
            conversation=action.conversation,
            language=action.language,
            deps=context.bot.deps,
            idempotency_key=action.pending_action_id,
            action=action,
            now=context.wall_clock,
            hold=context.hold,
            emit=emit_artifact,
        )

    async def run(self, action: PendingAction, on_late: Callable[[Awaitable[EffectResult]], None]) -> EffectResult:
        """Run the tool of a launched action.

        `on_late` gets an awaitable of the late end when the tool continues in a thread, after a timeout or a
        cancellation of this call.
        """
        if self.instead is not None:
            self.instead(action)
            return EffectResult("done", "not run: this is a rehearsal")
        tool = self._context.bot.tool_for(action)
        if tool is None:
            return EffectResult("failed", "the tool is gone")
        goes_on = False
        failure: BaseException | None = None

        def late(call: Future[Any]) -> None:
            nonlocal goes_on
            goes_on = True
            on_late(self._late(action, tool, call, emitted))

        began = asyncio.get_running_loop().time()
        with collecting() as emitted:
            try:
                result = await tool.run(
                    action.args, self.tool_context(action), timeout_seconds=self._timeout_seconds, on_late=late
                )
            except ToolError as error:
                failure = cause_of(error)
                end = await self._failure(action, tool, error)
            else:
                end = await self._success(action, tool, result, emitted)
        took = milliseconds_since(began)
        self._context.events.tell_now(EffectEnd, action=action, state=end.state, duration_ms=took, error=failure)
        return replace(end, again=False) if goes_on else end

    async def after_a_death(self, action: PendingAction) -> EffectResult | None:
        """Return the end of an effect after the worker's death, or None to run the tool again with the same key."""
        context, tool = self._context, self._context.bot.tool_for(action)
        died = EffectResult("unknown", "the worker died while it ran")
        if tool is None or context.bot.drifted(action):
            return died
        now = await context.store.now()
        if tool.idempotent and may_relaunch(action, now):
            return None
        match await self._probe(action, tool):
            case "done":
                text = await tool.done_text(action.args, "", action.language)
                return EffectResult("done", "found done by its probe", text=text)
            case "not_done" if action.attempts == 1:  # the record has no time of later launches
                still_runs = now - (action.launched_at or now) <= self._longest_run(tool)
                return replace(died, again=True) if still_runs else EffectResult("failed", PROBED_NOT_DONE)
            case _:
                return died

    def _longest_run(self, tool: Tool) -> timedelta:
        """Return the longest time after the launch for an effect still running in a worker taken for dead."""
        limit, lease = tool.limit(self._timeout_seconds) or 0.0, self._context.lease_seconds
        return timedelta(seconds=limit + lease + lease / BEATS)

    async def _probe(self, action: PendingAction, tool: Tool) -> Literal["done", "not_done", "unknown"]:
        try:
            return await tool.probe(action.args, self.tool_context(action), timeout_seconds=self._timeout_seconds)
        except ToolError as error:
            log.warning("the probe of %s failed: %s", action.kind, describe_error(cause_of(error)))
            return "unknown"

    async def _late(
        self, action: PendingAction, tool: Tool, call: Future[Any], emitted: list[Artifact]
    ) -> EffectResult:
        try:
            result = await asyncio.wrap_future(call)
        except BaseException as error:
            if is_cancelled():
                raise
            return await self._failure(action, tool, error)
        return await self._success(action, tool, result, emitted)

    async def _success(
        self, action: PendingAction, tool: Tool, result: object, emitted: list[Artifact]
    ) -> EffectResult:
        said = await tool.done_text(action.args, result, action.language)
        if said is None and isinstance(result, str) and result.strip():
            said = serialise(result)
        if tool.screen_output:
            emitted = [replace(each, filename=each.filename and screened_name(each.filename)) for each in emitted]
        links = [link(artifact.filename, artifact.url) for artifact in emitted if artifact.url]
        text = "\n\n".join([said, *links]) if said else "\n\n".join(links)
        try:
            keep, owner = self._context.files.keep, action.requester
            media = tuple([await keep(each, owner) for each in emitted if each.content is not None])
        except NotKept as error:
            log.error("action %s is done, but its file is lost: %s", action.pending_action_id, error)
            media = ()
            done = text or say("done", action.language, preview=statement(action.preview))
            text = f"{done}\n\n{say('file_lost', action.language)}"
        outcome, text = await self._guarded(action, tool, serialise(result), text)
        return EffectResult("done", outcome, text=text or None, media=media)

    async def _guarded(self, action: PendingAction, tool: Tool, outcome: str, text: str) -> tuple[str, str]:
        """Return the texts of a result for the model and for the person, past the guards of the bot's agent.

        Instead of a withheld text the person reads the gateway's sentence about the done action.
        """
        if tool.screen_output:
            outcome = (await screen_aside(outcome)).text
        guarding = self._guarding(action)
        if guarding is not None:
            checked = await guarding.check("tool_results", outcome, action.kind)
            outcome = WITHHELD if isinstance(checked, Blocked) else checked
        return outcome, await _past_guards(guarding, text)

    def _guarding(self, action: PendingAction) -> Guarding | None:
        """Return the guards of the bot's agent for the texts about an action; None without guards."""
        guardrails = self._context.bot.agent.config.guardrails
        if not guardrails:
            return None
        events = begin_run(self._context.events, action.pending_action_id, clock=self._context.wall_clock)
        return Guarding(guardrails=guardrails, context=self.tool_context(action), events=events, tools={})

    async def _failure(self, action: PendingAction, tool: Tool, error: BaseException) -> EffectResult:
        cause = cause_of(error)
        name, says = type(cause).__name__, describe_error(cause)
        log.warning("action %s (%s): %s", action.pending_action_id, action.kind, says)
        on_purpose = isinstance(cause, ToolFailed | NothingDone | OutcomeUnknown)
        outcome = f"error: {f'{name}: {cause}'[:_MOST_SAID] if on_purpose else says}"
        if isinstance(cause, OutcomeUnknown) or (not isinstance(cause, ToolError) and leaves_open(cause)):
            again = tool.probes or (tool.idempotent and may_relaunch(action, action.launched_at or action.requested_at))
            return EffectResult("unknown", outcome, again=again)
        if action.attempts > 1:  # one of the earlier attempts may have done it
            return EffectResult("unknown", outcome)
        key = "nothing_done" if isinstance(cause, NothingDone) else None
        if isinstance(cause, ToolBusy):
            log.error("action %s (%s): the lock %r is not free", action.pending_action_id, action.kind, cause.key)
            key = "busy"
        if key is not None:
            return EffectResult("failed", outcome, text=say(key, action.language, preview=statement(action.preview)))
        reason = cause.person if isinstance(cause, ToolFailed) else None
        return EffectResult("failed", outcome, text=await self._failed_text(action, tool, reason or ""))

    async def _failed_text(self, action: PendingAction, tool: Tool, reason: str) -> str | None:
        """Return the text about a failure, past the guards: the tool's own, or with the reason; else None."""
        language = action.language
        why = plain(shown(reason[:_MOST_REASON], bare=False)) if reason.strip() else ""
        text = await tool.failed_text(action.args, why or say("did_not_work", language), language)
        if text is None and why:
            text = say("failed_because", language, preview=statement(action.preview), reason=why)
        return await _past_guards(self._guarding(action), text) or None if text else None


async def _past_guards(guarding: Guarding | None, text: str) -> str:
    """Return a text for a person past the guards; "" for a withheld text."""
    checked = await guarding.check("output", text) if guarding is not None and text else text
    return "" if isinstance(checked, Blocked) else checked
