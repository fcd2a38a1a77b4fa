"""Asking again: a press on an ended question asks the same call anew, with a new preview and code and no model."""

from __future__ import annotations

from channels import Person, Reply
from gateway.agent.interceptors import InterceptorFailed
from gateway.bot.turn import Outcome
from gateway.engine.context import EngineContext
from gateway.engine.reach import find_ballots
from gateway.memory import to_entries
from gateway.pending.prompt import statement
from gateway.pending.propose import ProposalRefused, asked_elsewhere, propose_action
from gateway.providers.base import ModelMessage
from gateway.tools import ToolContext, ToolError
from gateway.tools.confirm import LAUNCH_PREVIEW_SECONDS, NoApprovers
from gateway.tools.pending_action import PendingAction
from gateway.wording import say


async def ask_again(
    context: EngineContext, conversation: str, action_id: str, *, person: Person, tool_context: ToolContext
) -> Outcome:
    """Return the outcome of asking for this action's call again: a new question, or the text of a refusal."""
    actions = await context.actions(conversation, action_id)
    before = actions.get(action_id)
    tool = context.bot.tool(before.kind) if before is not None else None
    policy = context.bot.policy(before.kind) if before is not None else None
    if before is None or before.address is None or tool is None or tool.confirm is None:
        return _cannot(before, tool_context.language)
    try:
        args = tool.validate(before.args)
        if policy is not None and policy.decide(tool.name, args)[0] == "deny":
            return _cannot(before, tool_context.language)
        veto = await context.bot.interceptors.check_call(tool_context, tool.name, args)
        if veto is not None:
            return _cannot(before, tool_context.language, veto.reason)
        preview = await tool.preview(args, tool_context, timeout_seconds=LAUNCH_PREVIEW_SECONDS)
        rule = await tool.named_approvers()
    except (ValueError, ToolError, InterceptorFailed, NoApprovers):
        return _cannot(before, tool_context.language)
    elsewhere = asked_elsewhere(rule, str(person), before.address)
    proposed = propose_action(
        actions,
        tool,
        args,
        preview,
        person=person,
        address=before.address,
        language=before.language,
        turn_started=actions.now,
        answer_window_seconds=before.answer_window_seconds,
        ballots=await find_ballots(context, elsewhere),
        again=True,
        approvers=rule,
    )
    if isinstance(proposed, ProposalRefused):
        return _cannot(before, tool_context.language)
    note = ModelMessage(role="event", content=f"The person had this asked again: {before.kind} ({before.preview})")
    return Outcome(stop_reason="asked", asked=[proposed], transcript=to_entries([note]))


def _cannot(before: PendingAction | None, language: str, why: str = "") -> Outcome:
    """Return the outcome of a refusal. `why` stands before the gateway's own sentence."""
    preview = statement(before.preview) if before is not None else ""
    text = say("cannot_ask_again", before.language if before is not None else language, preview=preview)
    told = "\n\n".join(filter(None, [why, text]))
    return Outcome(stop_reason="answered", replies=[Reply(text=told, exact=True)])
