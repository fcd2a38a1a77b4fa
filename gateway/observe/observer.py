"""AgentObserver: the base class of observers of the runs of an agent and the events of its gateway."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, ClassVar

from channels import Address, Json, Person
from gateway.observe.events import EVENTS, ObservedEvent
from gateway.observe.results import AgentResult
from gateway.tools.pending_action import PendingAction


class AgentObserver:
    """An observer of events. Every method does nothing, and may be overridden as `def` or `async def`.

    Observers are called in list order. Errors raised by a method are logged and counted, and do not change the run.
    With `blocking`, the run waits for an async method, up to `timeout_seconds`. Without `blocking`, async methods run
    in order in the background and are awaited at shutdown. Beyond 1,000 waiting events, new events are dropped and
    counted. A `def` method runs at once and must not block. After exceeding `timeout_seconds` once, an observer is
    never waited for again.

    Three kinds of events are emitted without waiting: webhooks, because a platform waits for the answer; changes of
    actions and failed deliveries, because an effect or the parts behind wait under a lease. An observer gets copies of
    arguments: changing the copies changes no run.

    `run_id` is the same for every attempt at a turn, so a turn taken over by another process continues the trace.
    """

    blocking: ClassVar[bool] = False
    timeout_seconds: ClassVar[float] = 5.0

    def on_event(self, event: ObservedEvent) -> Any:
        """Call the method of this event. Override to get every event as an object of `gateway.observe.events`."""
        method = getattr(self, f"on_{event.name}", None)
        return method(*[getattr(event, each) for each in arguments(event.name)]) if method is not None else None

    def wants(self, name: str) -> bool:
        """Return True if the observer overrides `on_event` or the method of the event of this name."""
        own, base = type(self), AgentObserver
        if own.on_event is not base.on_event:
            return True
        method = getattr(own, f"on_{name}", None)
        return method is not None and method is not getattr(base, f"on_{name}")

    # ── a run ──

    def on_run_start(self, run_id: str, messages: Sequence[Any], system_prompt: str) -> Any:
        """The loop begins."""

    def on_run_end(self, run_id: str, result: AgentResult) -> Any:
        """The loop has ended, for any reason but an error."""

    def on_error(self, run_id: str, error: BaseException, context: Mapping[str, Any]) -> Any:
        """The loop has ended with an error. `context` has the place, without texts of people."""

    def on_iteration_start(self, run_id: str, iteration: int, messages: Sequence[Any]) -> Any:
        """The loop asks the model, for the `iteration`-th time (from 1) in this run."""

    def on_iteration_end(self, run_id: str, iteration: int, response: Any) -> Any:
        """The model has replied and all tool calls of the reply have results."""

    def on_llm_start(self, run_id: str, messages: Sequence[Any], model: str, system_prompt: str) -> Any:
        """A call to the model begins."""

    def on_llm_end(self, run_id: str, response: Any, usage: Any) -> Any:
        """A call to the model was answered."""

    def on_llm_retry(
        self, run_id: str, attempt: int, max_retries: int, error: BaseException, backoff_seconds: float
    ) -> Any:
        """A failed call to the model is repeated after `backoff_seconds`. `attempt` is the failed attempt, from 1."""

    def on_llm_error(self, run_id: str, attempt: int, error: BaseException, duration_ms: float) -> Any:
        """A call to the model failed. For a retry, `on_llm_retry` follows."""

    def on_cache_hit(self, run_id: str, model: str, response: Any) -> Any:
        """A reply came from the response cache."""

    def on_usage(self, run_id: str, usage: Any) -> Any:
        """The tokens and the cost of one call to the model."""

    def on_tool_start(self, run_id: str, call_id: str, tool_name: str, tool_args: Mapping[str, Json]) -> Any:
        """A tool begins, with validated arguments. The end or error of the call has the same `call_id`."""

    def on_tool_end(self, run_id: str, call_id: str, tool_name: str, result: str, duration_ms: float) -> Any:
        """A tool has returned. `result` is the text for the model."""

    def on_tool_error(
        self,
        run_id: str,
        call_id: str,
        tool_name: str,
        error: BaseException,
        tool_args: Mapping[str, Json],
        duration_ms: float,
    ) -> Any:
        """A tool raised, or the call was refused before the start."""

    def on_tool_chunk(self, run_id: str, call_id: str, tool_name: str, chunk: str) -> Any:
        """A streaming tool has yielded a piece."""

    def on_tool_loop_detected(self, run_id: str, detector_name: str, details: str) -> Any:
        """The model repeats equal calls with equal results, so the loop ends."""

    def on_policy_decision(
        self, run_id: str, tool_name: str, decision: str, reason: str, tool_args: Mapping[str, Json]
    ) -> Any:
        """The policy decided about a call: allow, review or deny, with the rule as its reason."""

    def on_structured_validate(self, run_id: str, success: bool, attempt: int, error: str | None) -> Any:
        """A structured answer was validated."""

    def on_provider_fallback(self, run_id: str, failed_provider: str, next_provider: str, error: BaseException) -> Any:
        """A provider failed, and the next provider is asked."""

    def on_model_switch(self, run_id: str, iteration: int, old_model: str, new_model: str) -> Any:
        """Another model is asked from this iteration on."""

    def on_cost_warning(self, run_id: str, cost_used: float, threshold: float) -> Any:
        """The cost of the run has crossed `cost_warning_threshold`, both in US dollars. Emitted once a run."""

    def on_budget_exceeded(self, run_id: str, reason: str, tokens_used: int, cost_used: float | None) -> Any:
        """A budget stops the run before its next call to the model. `cost_used` is None when the price is unknown."""

    def on_cancelled(self, run_id: str, iteration: int, reason: str) -> Any:
        """The run ends because the person, the deployment or the caller stopped it."""

    def on_guardrail_triggered(self, run_id: str, stage: str, guardrail_name: str, action: str, detail: str) -> Any:
        """A guard warned, rewrote or blocked a text at this stage: input, output, tool_args or tool_results."""

    def on_prompt_compressed(self, run_id: str, before_tokens: int, after_tokens: int, messages_compressed: int) -> Any:
        """Older messages were compressed before a call to the model."""

    def on_session_load(self, run_id: str, session_id: str, message_count: int) -> Any:
        """The history of a conversation was read."""

    def on_session_save(self, run_id: str, session_id: str, message_count: int) -> Any:
        """The messages of a turn were stored in the final commit of the turn."""

    def on_memory_trim(self, run_id: str, messages_removed: int, messages_remaining: int, reason: str) -> Any:
        """Messages left the memory of a conversation, or were left out of a call to the model."""

    def on_memory_summarize(self, run_id: str, summary: str, messages_summarized: int) -> Any:
        """Messages outside of the window were summarised."""

    def on_entity_extraction(self, run_id: str, entities_extracted: int, turn_count: int) -> Any:
        """Entities were taken out of the conversation."""

    def on_kg_extraction(self, run_id: str, triples_extracted: int) -> Any:
        """Relations were taken out of the conversation."""

    def on_batch_start(self, batch_id: str, prompts_count: int) -> Any:
        """A batch of runs begins."""

    def on_batch_end(self, batch_id: str, results_count: int, errors_count: int, total_duration_ms: float) -> Any:
        """All runs of a batch have ended."""

    # ── the gateway ──

    def on_webhook_rejected(self, channel: str, status: int, reason: str) -> Any:
        """A request was refused: forged, stale, unreadable, not stored. `reason` is the name of the error's class."""

    def on_message_received(self, event_id: str, address: Address, person: Person | None) -> Any:
        """An event of a platform was stored. `event_id` is the platform's."""

    def on_duplicate_dropped(self, event_id: str, address: Address) -> Any:
        """An event of a platform was stored before."""

    def on_turn_start(self, run_id: str, conversation: str, event_ids: Sequence[str], attempt: int) -> Any:
        """A turn begins. `attempt` counts from 1."""

    def on_turn_end(self, run_id: str, conversation: str, stop_reason: str, duration_ms: float) -> Any:
        """A turn has ended, and the end is stored."""

    def on_vetoed(self, run_id: str, stage: str, interceptor: str, tool_name: str) -> Any:
        """An interceptor stopped a message, a call of the model (`tool_call`), or a confirmed action (`launch`)."""

    def on_pending_stashed(self, run_id: str, action: PendingAction) -> Any:
        """A person is to be asked about an action."""

    def on_pending_decided(self, action: PendingAction, person: str, intent: str) -> Any:
        """A person has decided an action. `intent`: confirm or cancel."""

    def on_pending_launched(self, action: PendingAction) -> Any:
        """The effect of a confirmed action begins."""

    def on_pending_resolved(self, action: PendingAction, status: str) -> Any:
        """An action has ended. `status`: the state, or the reason of a closed action."""

    def on_message_sent(self, run_id: str, address: Address, message_id: str | None) -> Any:
        """A platform accepted a call of a reply."""

    def on_feedback(self, run_id: str, conversation: str, message_id: str, value: str | None) -> Any:
        """A person has rated a message of the bot. `value`: up, down, or None when the rating was taken back.

        `run_id` and `message_id` are those of `on_message_sent`. Called at least once for each rating.
        """

    def on_delivery_failed(self, run_id: str, address: Address, reason: str) -> Any:
        """A part of a reply is a dead letter."""

    def on_artifact_delivered(self, run_id: str, address: Address, sha256: str) -> Any:
        """A platform took a file."""


@cache
def arguments(name: str) -> tuple[str, ...]:
    """Return the names of the fields passed to the method of an event, in order. Without a method: all fields."""
    method = getattr(AgentObserver, f"on_{name}", None)
    if method is None:
        return tuple(each.name for each in fields(EVENTS[name]))  # type: ignore[arg-type]
    return tuple(inspect.signature(method).parameters)[1:]
