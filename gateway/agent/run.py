"""One run of an agent: the parts of its loop are put together, and its begin and end are told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from gateway.agent.answer_format import AnswerFormat
from gateway.agent.aside import Book
from gateway.agent.calls import CallRunner
from gateway.agent.checking import CallChecker
from gateway.agent.coherence_check import CoherenceCheck
from gateway.agent.compress import Compressor
from gateway.agent.compress_context import ContextCompressor
from gateway.agent.confirming import OnConfirm
from gateway.agent.executing import CallExecutor
from gateway.agent.full_result import RawResults
from gateway.agent.guarding import Guarding, ReleasedText
from gateway.agent.handing_over import HandOver
from gateway.agent.journal import Progress
from gateway.agent.loop import Loop
from gateway.agent.model import ModelCaller
from gateway.agent.outcome import LoopOutcome
from gateway.agent.ports import LiveText, LoopPorts
from gateway.agent.replies import Replies
from gateway.agent.spec import AgentSpec
from gateway.agent.unattended import Unattended
from gateway.observe.events import Cancelled, RunEnd, RunError, RunStart
from gateway.observe.teller import SILENT, RunTeller, begin_run
from gateway.providers.base import ModelMessage, Provider, ProviderConfigurationError, ProviderError, Request
from gateway.tools import ToolContext

__all__ = ["run_loop"]


async def run_loop(
    spec: AgentSpec,
    messages: Sequence[ModelMessage],
    *,
    provider: Provider,
    context: ToolContext,
    on_confirm: OnConfirm | Unattended,
    system: str = "",
    answer_format: AnswerFormat | None = None,
    ports: LoopPorts,
) -> LoopOutcome:
    """Run one turn over the conversation so far, which ends with the new message.

    `context.idempotency_key` names the turn. `context.stopping` ends it between two steps. Raises ProviderError when
    the model cannot be reached. All recorded steps stay.
    """
    progress = Progress(ports.journal)
    events = ports.events or begin_run(SILENT, clock=context.clock)
    book = Book(meter=spec.meter, expenses=ports.expenses)
    guarding = _guarding(spec, context, events)
    released = _released(guarding, ports)
    raw = RawResults(ports.earlier_results) if spec.config.tool.compress_results else None
    if raw is not None:
        context = replace(context, raw_results=raw.of)
    loop = Loop(
        spec=spec,
        events=events,
        attended=not isinstance(on_confirm, Unattended),
        stopping=context.stopping,
        replies=Replies(
            spec=spec,
            events=events,
            caller=_caller(spec, provider, context, events, ports, released),
            progress=progress,
            expenses=ports.expenses,
            request=_request(spec, system, messages, context.language),
            answer_format=answer_format,
            person=context.person,
            read_file=ports.read_file,
            compressor=_context_compressor(spec, context, events, book),
        ),
        runner=CallRunner(
            checker=_checker(spec, messages, context, events, ports, guarding, book),
            executor=_executor(spec, context, progress, on_confirm, events, ports, guarding),
            progress=progress,
            on_confirm=on_confirm,
            context=context,
            events=events,
            in_parallel=spec.config.parallel_tool_execution,
        ),
        compressor=None if raw is None else _compressor(spec, context, events, progress, raw, book),
        guarding=guarding,
        released=released,
        book=book,
        progress=progress,
        expenses=ports.expenses,
        answer_format=answer_format,
        cancellation=ports.cancellation,
    )
    return await _told(loop, ports.at_end)


def _request(spec: AgentSpec, system: str, messages: Sequence[ModelMessage], language: str) -> Request:
    return Request(
        system=system,
        messages=tuple(messages),
        tools=spec.specs,
        model=spec.config.model,
        temperature=spec.config.temperature,
        max_tokens=spec.config.max_tokens,
        timeout_seconds=spec.config.request_timeout_seconds,
        language=language,
    )


def _caller(
    spec: AgentSpec,
    provider: Provider,
    context: ToolContext,
    events: RunTeller,
    ports: LoopPorts,
    released: ReleasedText | None,
) -> ModelCaller:
    live = ports.live
    on_text, on_restart = (ports.on_text, None) if live is None else (live.add, live.restart)
    if released is not None:
        on_text = released.add
        if live is not None:
            on_restart = partial(_restart, released, live)
    return ModelCaller(
        provider=provider,
        config=spec.config,
        stopping=context.stopping,
        on_text=on_text,
        on_restart=on_restart,
        events=events,
        sleep=ports.sleep,
        jitter=ports.jitter,
    )


def _released(guarding: Guarding | None, ports: LoopPorts) -> ReleasedText | None:
    """Return what passes the streamed text through the guards; None if it is not streamed, or none checks it."""
    on_text = ports.on_text if ports.live is None else ports.live.add
    if guarding is None or on_text is None or not guarding.watches("output"):
        return None
    return ReleasedText(guarding, on_text)


def _restart(released: ReleasedText, live: LiveText) -> None:
    released.restart()
    live.restart()


def _compressor(
    spec: AgentSpec, context: ToolContext, events: RunTeller, progress: Progress, raw: RawResults, book: Book
) -> Compressor:
    return Compressor(spec=spec, events=events, progress=progress, stopping=context.stopping, raw=raw, book=book.add)


def _context_compressor(
    spec: AgentSpec, context: ToolContext, events: RunTeller, book: Book
) -> ContextCompressor | None:
    if not spec.config.compress_context:
        return None
    return ContextCompressor(spec=spec, events=events, stopping=context.stopping, book=book.keep)


def _guarding(spec: AgentSpec, context: ToolContext, events: RunTeller) -> Guarding | None:
    guardrails, tools = spec.config.guardrails, spec.tools
    if not guardrails and not any(tool.screen_output for tool in tools.values()):
        return None
    return Guarding(guardrails=guardrails, context=context, events=events, tools=tools)


def _checker(
    spec: AgentSpec,
    messages: Sequence[ModelMessage],
    context: ToolContext,
    events: RunTeller,
    ports: LoopPorts,
    guarding: Guarding | None,
    book: Book,
) -> CallChecker:
    coherence = None
    if spec.config.coherence is not None:
        asked = next((each.content for each in reversed(messages) if each.role == "user"), "")
        coherence = CoherenceCheck(
            config=spec.config.coherence,
            spec=spec,
            asked=asked,
            events=events,
            stopping=context.stopping,
            book=book.keep,
        )
    return CallChecker(
        tools=spec.tools,
        policy=spec.policy,
        context=context,
        events=events,
        interceptors=ports.interceptors,
        guarding=guarding,
        coherence=coherence,
    )


def _executor(
    spec: AgentSpec,
    context: ToolContext,
    progress: Progress,
    on_confirm: OnConfirm | Unattended,
    events: RunTeller,
    ports: LoopPorts,
    guarding: Guarding | None,
) -> CallExecutor:
    return CallExecutor(
        config=spec.config,
        context=context,
        on_confirm=on_confirm,
        events=events,
        keep=ports.keep,
        hand_over=HandOver(progress=progress, on_confirm=on_confirm, events=events, ports=ports),
        caching=spec.caching,
        on_progress=None if ports.live is None else ports.live.progress,
        shows_pieces=guarding is None or not (guarding.watches("output") or guarding.watches("tool_results")),
    )


async def _told(loop: Loop, at_end: Callable[[LoopOutcome], Awaitable[LoopOutcome]] | None) -> LoopOutcome:
    """Run a loop, and tell its begin and its end."""
    events, request = loop.events, loop.replies.request
    await events.tell(
        RunStart,
        messages=request.messages,
        system_prompt=request.system,
        model=request.model or "",
        provider=loop.replies.caller.provider.name,
        parent_run_id=events.trace.parent_run_id,
    )
    try:
        outcome = await _ended(loop)
        if at_end is not None:
            outcome = await at_end(outcome)
    except asyncio.CancelledError:
        events.tell_now(Cancelled, iteration=loop.iterations, reason="its task was cancelled")
        raise
    await events.tell(RunEnd, result=outcome)
    return outcome


async def _ended(loop: Loop) -> LoopOutcome:
    """Run a loop. Without a chat, an unreachable model is an outcome. All other errors are told and raised."""
    try:
        return await loop.run()
    except Exception as error:
        where = {"iteration": loop.iterations, "provider": loop.replies.caller.provider.name}
        await loop.events.tell(RunError, error=error, context=where)
        if loop.attended or not isinstance(error, ProviderError) or isinstance(error, ProviderConfigurationError):
            raise
        return loop.failed(error)
