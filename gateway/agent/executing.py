"""The execution of one tool call: run the tool, and make the result from text, files and stashed action."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal

from channels import Address, Reply
from channels.direct import is_private
from gateway.agent.caching import Caching
from gateway.agent.checking import CallFailed, CheckedCall, error_text
from gateway.agent.config import AgentConfig
from gateway.agent.confirming import Ask, Asked, OnConfirm, Unattended
from gateway.agent.journal import CallResult, Keep, Progress
from gateway.agent.memory import note_into
from gateway.agent.ports import LoopOutcome, LoopPorts
from gateway.agent.tool_set import AgentTool
from gateway.artifacts import Artifact, NotKept, collecting, emit_artifact
from gateway.logs import describe_error
from gateway.memory import NotedFact
from gateway.observe.events import PendingStashed, ToolChunk
from gateway.observe.results import StopReason
from gateway.observe.runs import run_id_of
from gateway.observe.teller import RunTeller, begin_run
from gateway.providers.base import ModelMessage, ToolCall
from gateway.tools import Preview, Tool, ToolContext, ToolError, serialise
from gateway.tools.context import MOST_PROGRESS, PlannedTurn
from gateway.tools.stash import Stash, StashedTool, stashing

_ANSWERED: Final[frozenset[StopReason]] = frozenset({"answered", "terminal_tool", "stop_condition"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """Hands tasks of one turn over to other agents.

    The inner run has its own run id, made of the outer run id and the call, and the outer run as parent. The inner run
    asks the person of the outer turn. The steps of the inner run stand in the outer journal under the call's key.
    """

    progress: Progress
    on_confirm: OnConfirm | Unattended
    events: RunTeller
    ports: LoopPorts

    @property
    def asking(self) -> RunTeller:
        """The run for questions to people: this run, or the outer run of a handed-over task."""
        return self.ports.asking or self.events

    async def __call__(self, tool: AgentTool, key: str, task: str, context: ToolContext) -> CallResult:
        """Return the other agent's answer as the result of the call. Raises ProviderError in a chat."""
        outer = self.events.run_id
        events = begin_run(self.events.teller, run_id_of(outer, key), clock=context.clock, parent_run_id=outer)
        ports = replace(
            self.ports,
            journal=self.progress.inside(key),
            on_text=None,
            live=None,
            at_end=None,
            events=events,
            asking=self.asking,
            remembered=None,
            withdrawable={},
        )
        message = ModelMessage(role="user", content=task)
        return _result(
            await tool.agent.answer([message], context=context, on_confirm=self.on_confirm, ports=ports), tool.name
        )


def _result(outcome: LoopOutcome, name: str) -> CallResult:
    """Return an inner outcome as the result of the outer call."""
    done = CallResult(
        text=outcome.content,
        artifacts=outcome.artifacts,
        usage=outcome.usage,
        follow_ups=outcome.follow_ups,
        noted=outcome.noted,
    )
    if outcome.asked:
        told = "\n".join([*filter(None, [outcome.content]), *(serialise(each.confirmation) for each in outcome.asked)])
        return replace(done, text=told, asked=outcome.asked)
    if outcome.stop_reason in _ANSWERED:
        return done
    reason = outcome.error or outcome.stop_reason
    return replace(done, text=f"Tool {name!r}: the other agent ended without an answer ({reason}).", failed=True)


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Ran:
    """The result of a stashed executor after an immediate approval."""

    result: object


@dataclass(frozen=True, slots=True, kw_only=True)
class CallExecutor:
    """An executor of the tool calls of one turn."""

    config: AgentConfig
    context: ToolContext
    on_confirm: OnConfirm | Unattended
    events: RunTeller
    keep: Keep | None
    hand_over: HandOver
    caching: Caching | None
    withdrawable: Mapping[str, str] = field(default_factory=dict)
    """Name -> id of each open question of the person, for the model to take back."""
    on_progress: Callable[[str], None] | None = None
    """Shows the progress of a call to the person."""
    shows_pieces: bool = True
    """False if guards check the output: the pieces of a streaming tool bypass the guards."""
    collect: Callable[[], AbstractContextManager[list[Artifact]]] = collecting

    async def execute(self, each: CheckedCall) -> CallResult:
        """Run the tool. Raises CallFailed."""
        tool, call = each.tool, each.call
        planned, noted, withdrawn = list[PlannedTurn](), list[NotedFact](), list[str]()
        context = replace(
            self.context,
            idempotency_key=f"{self.context.idempotency_key}/{each.key}",
            emit=emit_artifact,
            plan=partial(_plan, planned) if self.context.address is not None else None,
            note=note_into(noted) if self._keeps_facts else None,
            on_progress=self.on_progress,
            withdraw=partial(_take_back, withdrawn, self.withdrawable) if self.withdrawable else None,
        )
        if isinstance(tool, AgentTool):
            result = await self.hand_over(tool, each.key, str(each.args["task"]), context)
            return replace(result, stop=self._stop(tool, result.text))

        caching = self.caching if tool.cacheable else None
        key = None if caching is None else caching.tool_key(tool, each.args, self.context.person)
        if caching is not None and key is not None and (known := await caching.result(key)) is not None:
            self.events.trace.step(
                "cache_hit", summary="the tool did not run", tool_name=tool.name, call_id=call.call_id
            )
            return replace(known, stop=self._stop(tool, known.text))

        with self.collect() as emitted, stashing(context) as stashed:
            try:
                seconds, on_chunk = self.config.tool_timeout_seconds, self._on_chunk(tool, call)
                raw = await tool.run(each.args, context, timeout_seconds=seconds, on_chunk=on_chunk)
            except ToolError as error:
                raise CallFailed(error_text(tool, error), error) from error
        if tool.completion_check and not isinstance(raw, bool):
            raise CallFailed(f"Tool {tool.name!r} returned {type(raw).__name__}, and a completion check returns bool.")
        asked: tuple[Asked, ...] = ()
        for stash in stashed:
            verdict = await self._stashed(call, stash, context)
            if isinstance(verdict, str):
                raise CallFailed(verdict)
            asked, raw = ((verdict,), verdict.confirmation) if isinstance(verdict, Asked) else ((), verdict.result)
        text, reply = _read(tool, raw)
        try:
            artifacts = tuple([await self._kept(artifact) for artifact in emitted])
        except NotKept as error:
            _log.error("tool %s has run, but its files are lost: %s", tool.name, error)
            artifacts, text = (), f"{text}\n\n{_FILES_LOST}"
        result = CallResult(
            text=text,
            artifacts=artifacts,
            stop=self._stop(tool, text),
            reply=reply,
            asked=asked,
            follow_ups=tuple(planned),
            noted=tuple(noted),
            withdrawn=tuple(withdrawn),
        )
        if key is None or caching is None or emitted or stashed or planned or noted or reply:
            return result
        result = replace(result, cache_key=key)
        await caching.keep_result(tool, result)
        return result

    @property
    def _keeps_facts(self) -> bool:
        """True if facts about the person are kept: in the person's private chat, and in a run outside of a chat."""
        address, called = self.context.address, self.context.conversation.partition("/")[2]
        if address is None and called:  # from `ask_channel`
            address = Address.parse(called)
        return self.config.knowledge_memory is not None and (address is None or is_private(address))

    def _on_chunk(self, tool: Tool, call: ToolCall) -> Callable[[str], None]:
        """Return the callback for the pieces of a streaming tool. Each piece is emitted; the person sees the newest."""
        is_shown, shown = self.shows_pieces and not tool.screen_output, ""

        def on_chunk(text: str) -> None:
            nonlocal shown
            self.events.tell_now(ToolChunk, call_id=call.call_id, tool_name=tool.name, chunk=text)
            if self.on_progress is not None and is_shown:
                shown = (shown + text)[-MOST_PROGRESS:]
                self.on_progress(shown)

        return on_chunk

    async def _stashed(self, call: ToolCall, stash: Stash, context: ToolContext) -> Asked | _Ran | str:
        """Ask a person about a stashed call. If the person is not asked, return the reason as a text."""
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
        if tool.completion_check and text == str(True):
            return "stop_condition"
        try:
            ends = self.config.stop_condition is not None and self.config.stop_condition(tool.name, text) is True
        except Exception as error:  # noqa: BLE001 - an error of the author's function must not fail the turn
            _log.warning("stop_condition raised %s after tool %s: taken as False", describe_error(error), tool.name)
            return None
        return "stop_condition" if ends else None


def _read(tool: Tool, raw: object) -> tuple[str, Reply | None]:
    """Return the text of a result, and the message returned by a terminal tool. Raises CallFailed for buttons."""
    if not (tool.terminal and isinstance(raw, Reply)):
        return serialise(raw), None
    if raw.buttons:
        raise CallFailed(f"Tool {tool.name!r} has run, but its Reply has buttons, which have no handler.")
    return raw.text, raw


_MOST_PLANNED = 5


def _plan(planned: list[PlannedTurn], turn: PlannedTurn) -> None:
    if len(planned) >= _MOST_PLANNED:
        raise ToolError(f"a call plans at most {_MOST_PLANNED} follow-ups")
    planned.append(turn)


def _take_back(withdrawn: list[str], withdrawable: Mapping[str, str], name: str) -> bool:
    """Mark an open question as taken back. Return False for an unknown name."""
    if name not in withdrawable:
        return False
    withdrawn.append(withdrawable[name])
    return True


_FILES_LOST = "But its files could not be kept: nobody gets them. Tell the person."
