"""The check of a confirmed action right before its launch: its preview is compared, and the interceptors are asked."""

from __future__ import annotations

import logging

from gateway.agent.interceptors import InterceptorFailed, Veto
from gateway.engine.context import EngineContext
from gateway.logs import describe_error
from gateway.observe.events import InterceptorVetoed
from gateway.observe.runs import action_event_id, run_id_of
from gateway.pending.transitions import is_stale
from gateway.tools import Tool, ToolContext, ToolError, cause_of
from gateway.tools.confirm import asked_with, changed
from gateway.tools.pending_action import Detail, PendingAction

__all__ = ["check_launch"]

log = logging.getLogger("askfirst.actions")


async def check_launch(
    context: EngineContext, action: PendingAction, tool: Tool, tool_context: ToolContext, *, preview_seconds: float
) -> Detail | Veto | None:
    """Return why an action may not run: it may no longer be the one that was shown, or there is a veto. None: it may.

    `preview_seconds` is the time limit of the preview.
    """
    if tool.compares(action):
        try:
            now = await tool.preview(action.args, tool_context, timeout_seconds=preview_seconds)
        except ValueError:
            return "changed"
        except ToolError as error:
            log.warning("the preview of %s could not be made again: %s", action.kind, describe_error(cause_of(error)))
            return "not_checked"
        if changed(asked_with(action), now):
            return "changed"
    if context.bot.interceptors.of_calls and not is_stale(action, await context.store.now()):
        return await _vetoed(context, action, tool_context)
    return None


async def _vetoed(context: EngineContext, action: PendingAction, tool_context: ToolContext) -> Detail | Veto | None:
    """Ask the interceptors about an action. They cannot change it: a person has seen its arguments."""
    try:
        veto = await context.bot.interceptors.check_call(tool_context, action.kind, action.args)
    except InterceptorFailed as error:
        log.error("action %s (%s) could not be checked: %s", action.pending_action_id, action.kind, error)
        return "not_checked"
    if veto is not None:
        event_id = action_event_id(action.pending_action_id)
        context.events.tell_now(
            InterceptorVetoed,
            run_id_of(action.conversation, event_id),
            conversation=action.conversation,
            stage="launch",
            interceptor=veto.interceptor,
            tool_name=action.kind,
            event_id=event_id,
        )
    return veto
