"""One run of an agent: a loop of calls to the model and to tools, up to an answer or another reason to stop."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from channels import Reply
from gateway.agent.aside import Book, Expenses
from gateway.agent.calls import CallRunner
from gateway.agent.checking import CallChecker, CoherenceCheck
from gateway.agent.compress import Compressor, ContextCompressor, RawResults
from gateway.agent.confirming import OnConfirm, Unattended
from gateway.agent.executing import CallExecutor, HandOver
from gateway.agent.guarding import Blocked, Guarding, ReleasedText
from gateway.agent.journal import CallResult, Progress
from gateway.agent.model import ModelCaller, is_blank
from gateway.agent.ports import CancellationToken, LiveText, LoopOutcome, LoopPorts
from gateway.agent.replies import AnswerFormat, Replies
from gateway.agent.spec import AgentSpec
from gateway.observe.events import (
    BudgetExceeded,
    Cancelled,
    CostWarning,
    IterationEnd,
    RunEnd,
    RunError,
    RunStart,
    StructuredValidate,
    ToolLoopDetected,
)
from gateway.observe.results import StopReason
from gateway.observe.teller import SILENT, RunTeller, begin_run
from gateway.providers.base import (
    NO_USAGE,
    UNPRICED_USD_PER_MILLION,
    ModelMessage,
    Provider,
    ProviderConfigurationError,
    ProviderError,
    Request,
    Response,
    ToolCall,
    Usage,
)
from gateway.structured import validation_retry_message
from gateway.tools import ToolContext
from gateway.tools.stopping import Stopped, Stopping

log = logging.getLogger("askfirst.turns")

EQUAL_ROUNDS = 3
"""The number of equal calls with equal results that marks a stuck loop."""


@dataclass(slots=True, kw_only=True)
class Loop:
    """The state of one turn."""

    spec: AgentSpec
    events: RunTeller
    attended: bool
    """True in a chat, with a person to ask."""
    stopping: Stopping
    replies: Replies
    runner: CallRunner
    compressor: Compressor | None
    guarding: Guarding | None
    released: ReleasedText | None
    """The streamed text, if checked by guards."""
    book: Book
    progress: Progress
    expenses: Expenses | None
    answer_format: AnswerFormat | None
    cancellation: CancellationToken | None
    content: str = ""
    reply: Reply | None = None
    """The message returned by a terminal tool."""
    guarded: tuple[ModelMessage, ...] | None = None
    """The conversation at the start of the run, after the guards."""
    parsed: Any = None
    faults: int = 0
    """The number of answers that did not fit `answer_format`."""
    messages: list[ModelMessage] = field(default_factory=list)
    results: list[CallResult] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    usage: Usage = NO_USAGE
    served_by: str = ""
    """The provider of the last reply, if the reply names a provider."""
    iterations: int = 0
    rounds: list[list[tuple[ToolCall, CallResult]]] = field(default_factory=list)
    """The calls of each reply not yet in `seen`."""
    seen: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    async def run(self) -> LoopOutcome:
        """Run the turn. Raises ProviderError."""
        config, guarding = self.spec.config, self.guarding
        if guarding is not None and guarding.watches("input"):
            request = self.replies.request
            messages, is_blocked = await guarding.input(request.messages)
            self.guarded = tuple(messages)
            self.replies.request = replace(request, messages=self.guarded)
            if is_blocked:
                return await self._withheld(guarding)
        while self.iterations < config.max_iterations + self.faults:
            if self.stopping.is_set():
                return await self._cancelled()
            try:
                response = await self._reply_within_budgets()
            except Stopped:
                return await self._cancelled()
            if response is None:
                return self._end("budget")
            if guarding is not None and guarding.watches("output"):
                text = await self._guarded_answer(guarding, response.content)
                if isinstance(text, Blocked):
                    return await self._withheld(guarding)
                response = replace(response, content=text)
            if is_blank(response):
                why = "cut at its limit of tokens" if response.finish == "length" else "twice"
                log.error("the model of %s gave a blank answer, %s (run %s)", self.served_by, why, self.events.run_id)
                response = replace(response, content="")
            self.content = response.content
            self.calls += response.tool_calls
            if config.routing_only and response.tool_calls:
                return self._end("routed")
            self.messages.append(response.message)
            if not response.tool_calls:
                await self.events.tell(IterationEnd, iteration=self.iterations, response=response)
                if (fault := await self._read_answer(response)) is None:
                    return self._end("answered")
                if self.faults > config.structured_retries or response.finish == "refused":
                    return replace(self._end("error"), error=f"the answer does not fit the response_format: {fault}")
                self.messages.append(ModelMessage(role="user", content=validation_retry_message(fault)))
                continue
            results = await self._results(response)
            await self.events.tell(IterationEnd, iteration=self.iterations, response=response)
            if (reason := self._reason_to_stop(response.tool_calls, results)) is not None:
                if reason == "loop_detected":
                    details = f"{EQUAL_ROUNDS} equal calls of {', '.join(call.name for call in response.tool_calls)}"
                    await self.events.tell(ToolLoopDetected, detector_name="equal_rounds", details=details)
                if guarding is not None and reason in ("terminal_tool", "stop_condition"):
                    text = await guarding.check("output", self.content)
                    if isinstance(text, Blocked):
                        return await self._withheld(guarding)
                    self.content = text
                return self._end(reason)
        return self._end("max_iterations")

    async def _guarded_answer(self, guarding: Guarding, text: str) -> str | Blocked:
        """Return the text of a reply after the guards. Streamed text has passed the guards in part already."""
        if self.released is not None:
            shown = await self.released.end_of_reply()
            if self.released.blocked:
                return Blocked("output", "in a part of the text")
            text = shown or text
        return await guarding.check("output", text) if text else text

    async def _withheld(self, guarding: Guarding) -> LoopOutcome:
        """End the run with the sentence in place of a withheld text, unless the run was stopped."""
        if self.stopping.is_set():
            return await self._cancelled()
        self.content = guarding.sentence
        self.messages.append(ModelMessage(role="assistant", content=self.content))
        return self._end("guardrail")

    async def _read_answer(self, response: Response) -> str | None:
        """Read the value of an answer, if the run has a format. Return the faults of an answer that does not fit."""
        if self.answer_format is None:
            return None
        fault: str | None = None
        try:
            self.parsed = self.answer_format.read(response)
        except ValueError as error:
            fault = str(error)
        await self.events.tell(StructuredValidate, success=fault is None, attempt=self.faults + 1, error=fault)
        self.faults += fault is not None
        return fault

    async def _cancelled(self) -> LoopOutcome:
        given = self.cancellation.reason if self.cancellation is not None else ""
        await self.events.tell(Cancelled, iteration=self.iterations, reason=given or "it was stopped")
        return self._end("cancelled")

    def _spent(self) -> str | None:
        """Return a text about the exhausted budget of the turn, or None."""
        config, usage = self.spec.config, self.usage
        if config.max_total_tokens is not None and usage.total_tokens >= config.max_total_tokens:
            return f"max_total_tokens: {usage.total_tokens} of {config.max_total_tokens} tokens are used"
        if config.max_cost_usd is not None and usage.counted_usd >= config.max_cost_usd:
            said = f"max_cost_usd: {usage.counted_usd:.6f} of {config.max_cost_usd:g} US dollars are used"
            if usage.unpriced_tokens:
                price = f"{UNPRICED_USD_PER_MILLION:g} US dollars a million"
                said += f", {usage.unpriced_tokens} tokens of unknown price counted at {price}"
            return said
        return None

    async def _is_spent(self) -> bool:
        """Return True if a budget is exhausted: the turn then ends before the next reply."""
        if self._spent() is not None:
            return True
        expenses = self._limiting()
        return expenses is not None and await expenses.used_up() is not None

    def _limiting(self) -> Expenses | None:
        """Return the expenses that limit the next reply; None without a budget, and for a reply of a checkpoint."""
        limited = self.expenses is not None and self.expenses.limited
        return self.expenses if limited and self.progress.reply(self.iterations + 1) is None else None

    async def _reply_within_budgets(self) -> Response | None:
        """Return the next reply; None if a budget is exhausted. Raises ProviderError, Stopped."""
        spent = self._spent()
        if spent is None:
            expenses = self._limiting()
            if expenses is None:
                return await self._reply()
            estimate, seconds = self.replies.estimate(self.messages), self.spec.config.request_timeout_seconds
            async with AsyncExitStack() as block:
                reserved = expenses.reserved(estimate, seconds * (self.spec.config.max_retries + 1))
                spent = await self.stopping.unless_set(block.enter_async_context(reserved))
                if spent is None:
                    return await self._reply()
        tokens, cost = self.usage.total_tokens, self.usage.cost_usd
        await self.events.tell(BudgetExceeded, reason=spent, tokens_used=tokens, cost_used=cost)
        return None

    async def _reply(self) -> Response:
        self.iterations += 1
        response, is_new = await self.replies.reply(self.iterations, self.messages, self.usage)
        self.served_by = response.usage.provider
        before, self.usage = self.usage, self.usage + response.usage + self.book.take()
        limit, cost = self.spec.config.cost_warning_threshold, self.usage.least_usd
        if is_new and limit is not None and before.least_usd < limit <= cost:
            await self.events.tell(CostWarning, cost_used=cost, threshold=limit)
        return response

    async def _results(self, response: Response) -> list[CallResult]:
        if response.finish == "length":
            results = [CallResult(text=_CUT_OFF, failed=True) for _ in response.tool_calls]
        else:
            results = await self.runner.run(self.iterations, response.tool_calls)
        if self.guarding is not None:
            results = await self.guarding.results(response.tool_calls, results)
        if self.compressor is not None:
            model, calls = self.replies.request.model, response.tool_calls
            results = await self.compressor.shorten(self.iterations, calls, results, model, is_spent=self._is_spent)
        self.results += results
        self.usage = sum((result.usage for result in results), self.usage) + self.book.take()
        self.messages += [
            ModelMessage(role="tool", content=result.for_model, call_id=call.call_id, tool_name=call.name)
            for call, result in zip(response.tool_calls, results, strict=True)
        ]
        return results

    def _reason_to_stop(self, calls: Sequence[ToolCall], results: Sequence[CallResult]) -> StopReason | None:
        if any(result.asked for result in results):
            return "asked"
        for call, result in zip(calls, results, strict=True):
            if result.stop is not None:
                is_check = self.spec.tools[call.name].completion_check and result.stop == "stop_condition"
                self.content, self.reply = self._last_text() if is_check else result.text, result.reply
                return result.stop
        self.rounds.append(list(zip(calls, results, strict=True)))
        if self.iterations < EQUAL_ROUNDS:  # no call can be as often yet
            return None
        for made in self.rounds:
            self.seen.update(
                {(call.name, json.dumps(dict(call.args), sort_keys=True), result.text) for call, result in made}
            )
        self.rounds.clear()
        return "loop_detected" if max(self.seen.values()) >= EQUAL_ROUNDS else None

    def _last_text(self) -> str:
        """Return the model's last text in this run."""
        said = (message.content for message in reversed(self.messages) if message.role == "assistant")
        return next(filter(None, said), "")

    def failed(self, error: ProviderError) -> LoopOutcome:
        """Return the outcome of a run with an unreachable model."""
        return replace(self._end("provider_error"), content="", error=str(error))

    def _end(self, reason: StopReason) -> LoopOutcome:
        asked = tuple(asked for result in self.results for asked in result.asked)
        if reason == "asked" and not self.attended:
            reason = "needs_confirmation"
        self.events.trace.end(reason)
        by_tool = self.events.trace.by_tool()
        usage = replace(self.usage, by_tool=by_tool) if by_tool else self.usage
        if self.spec.config.enable_analytics:
            self.spec.meter.add(Usage(by_tool=by_tool))
        return LoopOutcome(
            content=self.content,
            parsed=self.parsed,
            stop_reason=reason,
            reply=replace(self.reply, text=self.content) if self.reply and reason == "terminal_tool" else None,
            messages=tuple(self.messages),
            artifacts=tuple(artifact for result in self.results for artifact in result.artifacts),
            pending=tuple(each.action for each in asked),
            asked=asked,
            tool_calls=tuple(self.calls),
            usage=usage,
            iterations=self.iterations,
            record=self.events.trace,
            provider_used=self.served_by or self.replies.caller.provider.name,
            guarded=self.guarded,
            follow_ups=tuple(planned for result in self.results for planned in result.follow_ups),
            noted=tuple(fact for result in self.results for fact in result.noted),
            withdrawn=tuple(dict.fromkeys(each for result in self.results for each in result.withdrawn)),
            raw_results={} if self.compressor is None else self.compressor.raw.all(),
        )


_CUT_OFF = "Not run: the reply was cut off at its length limit. Try again with fewer calls or shorter arguments."


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
    """Run one turn over the conversation, up to the new message at the end. Emit the events of the start and the end.

    `context.idempotency_key` names the turn. `context.stopping` ends the turn between two steps. Without a chat, an
    unreachable model is an outcome. In a chat, raises ProviderError for an unreachable model. All recorded steps stay.
    """
    raw = RawResults(ports.earlier_results) if spec.config.tool.compress_results else None
    loop = _RunParts(
        spec=spec,
        messages=messages,
        provider=provider,
        context=context if raw is None else replace(context, raw_results=raw.of),
        on_confirm=on_confirm,
        system=system,
        answer_format=answer_format,
        ports=ports,
        events=ports.events or begin_run(SILENT, clock=context.clock),
        raw=raw,
    ).loop()
    events, request = loop.events, loop.replies.request
    await events.tell(
        RunStart,
        messages=request.messages,
        system_prompt=request.system,
        model=request.model or "",
        provider=provider.name,
        parent_run_id=events.trace.parent_run_id,
    )
    try:
        try:
            outcome = await loop.run()
        except Exception as error:
            where = {"iteration": loop.iterations, "provider": provider.name}
            await events.tell(RunError, error=error, context=where)
            if loop.attended or not isinstance(error, ProviderError) or isinstance(error, ProviderConfigurationError):
                raise
            outcome = loop.failed(error)
        if ports.at_end is not None:
            outcome = await ports.at_end(outcome)
    except asyncio.CancelledError:
        events.tell_now(Cancelled, iteration=loop.iterations, reason="its task was cancelled")
        raise
    await events.tell(RunEnd, result=outcome)
    return outcome


@dataclass(frozen=True, kw_only=True)
class _RunParts:
    """The parts of one run. A shared part is made once."""

    spec: AgentSpec
    messages: Sequence[ModelMessage]
    provider: Provider
    context: ToolContext
    on_confirm: OnConfirm | Unattended
    system: str
    answer_format: AnswerFormat | None
    ports: LoopPorts
    events: RunTeller
    raw: RawResults | None

    def loop(self) -> Loop:
        """Return the loop of the run."""
        spec, raw = self.spec, self.raw
        return Loop(
            spec=spec,
            events=self.events,
            attended=not isinstance(self.on_confirm, Unattended),
            stopping=self.context.stopping,
            replies=self._replies(),
            runner=self._runner(),
            compressor=None
            if raw is None
            else Compressor(
                spec=spec,
                events=self.events,
                progress=self.progress,
                stopping=self.context.stopping,
                raw=raw,
                book=self.book,
            ),
            guarding=self.guarding,
            released=self.released,
            book=self.book,
            progress=self.progress,
            expenses=self.ports.expenses,
            answer_format=self.answer_format,
            cancellation=self.ports.cancellation,
        )

    @cached_property
    def progress(self) -> Progress:
        """The steps of this turn, and of earlier attempts at the turn."""
        return Progress(self.ports.journal)

    @cached_property
    def book(self) -> Book:
        """The book of the small calls."""
        return Book(meter=self.spec.meter, expenses=self.ports.expenses)

    @cached_property
    def guarding(self) -> Guarding | None:
        """The guards; None without any check."""
        guardrails, tools = self.spec.config.guardrails, self.spec.tools
        if not guardrails and not any(tool.screen_output for tool in tools.values()):
            return None
        return Guarding(guardrails=guardrails, context=self.context, events=self.events, tools=tools)

    @cached_property
    def released(self) -> ReleasedText | None:
        """The streamed text on the way through the guards; None without a stream or without guards of the output."""
        on_text = self.ports.on_text if self.ports.live is None else self.ports.live.add
        if self.guarding is None or on_text is None or not self.guarding.watches("output"):
            return None
        return ReleasedText(self.guarding, on_text)

    def _replies(self) -> Replies:
        spec, config, context = self.spec, self.spec.config, self.context
        compressor = None
        if config.compress_context:
            compressor = ContextCompressor(spec=spec, events=self.events, stopping=context.stopping, book=self.book)
        return Replies(
            spec=spec,
            events=self.events,
            caller=self._caller(),
            progress=self.progress,
            expenses=self.ports.expenses,
            request=Request(
                system=self.system,
                messages=tuple(self.messages),
                tools=spec.specs,
                model=config.model,
                temperature=config.temperature,
                max_tokens=config.max_tokens,
                timeout_seconds=config.request_timeout_seconds,
                language=context.language,
            ),
            answer_format=self.answer_format,
            person=context.person,
            read_file=self.ports.read_file,
            compressor=compressor,
        )

    def _caller(self) -> ModelCaller:
        live, released = self.ports.live, self.released
        on_text, on_restart = (self.ports.on_text, None) if live is None else (live.add, live.restart)
        if released is not None:
            on_text = released.add
            if live is not None:
                on_restart = partial(_restart, released, live)
        return ModelCaller(
            provider=self.provider,
            config=self.spec.config,
            stopping=self.context.stopping,
            on_text=on_text,
            on_restart=on_restart,
            events=self.events,
            sleep=self.ports.sleep,
            jitter=self.ports.jitter,
        )

    def _runner(self) -> CallRunner:
        spec, ports, guarding = self.spec, self.ports, self.guarding
        coherence = None
        if spec.config.coherence is not None:
            coherence = CoherenceCheck(
                config=spec.config.coherence,
                spec=spec,
                asked=next((each.content for each in reversed(self.messages) if each.role == "user"), ""),
                events=self.events,
                stopping=self.context.stopping,
                book=self.book,
            )
        checker = CallChecker(
            tools=spec.tools,
            policy=spec.policy,
            context=self.context,
            events=self.events,
            interceptors=ports.interceptors,
            guarding=guarding,
            coherence=coherence,
        )
        executor = CallExecutor(
            config=spec.config,
            context=self.context,
            on_confirm=self.on_confirm,
            events=self.events,
            keep=ports.keep,
            hand_over=HandOver(progress=self.progress, on_confirm=self.on_confirm, events=self.events, ports=ports),
            caching=spec.caching,
            withdrawable=ports.withdrawable,
            on_progress=None if ports.live is None else ports.live.progress,
            shows_pieces=guarding is None or not (guarding.watches("output") or guarding.watches("tool_results")),
        )
        return CallRunner(
            checker=checker,
            executor=executor,
            progress=self.progress,
            on_confirm=self.on_confirm,
            context=self.context,
            events=self.events,
            in_parallel=spec.config.parallel_tool_execution,
        )


def _restart(released: ReleasedText, live: LiveText) -> None:
    released.restart()
    live.restart()
