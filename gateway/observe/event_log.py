"""The event log: the lines that the events of a gateway leave in the log, from the receipt to the delivery.

`event` is the platform's id of the event that something answers, or the id of the action whose outcome it is. `run` is
the id of the run. `conversation` is the conversation. A line may name several events: a turn names all of its events,
and events that were stored at the same moment share a line.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from gateway.observe.events import (
    ActionAudited,
    BudgetWarning,
    CacheHit,
    DeliveryFailed,
    DeliveryRetried,
    DuplicateDropped,
    EffectEnd,
    EventSettled,
    InterceptorVetoed,
    LlmEnd,
    LlmError,
    MessageReceived,
    MessageSent,
    ObservedEvent,
    PendingStashed,
    ProviderFallback,
    RunEvent,
    ToolEnd,
    ToolErrorRaised,
    TurnEnd,
    TurnFailed,
    TurnStart,
    WebhookRejected,
)
from gateway.observe.runs import action_event_id, run_id_of

__all__ = ["REFUSALS", "EventLog"]

log = logging.getLogger("askfirst.events")
REFUSALS = "gateway.web.webhooks"
"""The name of the logger of refused requests. Anybody can send these, so the web server limits its lines."""
refusals = logging.getLogger(REFUSALS)

_MOST_IN_A_LINE = 50
"""Some log collectors cut a line after 16 KiB."""
_MOST_RUNS = 10_000


class EventLog:
    """A reader that writes the lines. No field holds the text of a person or of an exception, or a code that confirms.

    `content`: the lines also have the model's text and the tools' arguments and results.
    """

    def __init__(self, *, content: bool = False) -> None:
        self.kinds = frozenset(_LINES)
        self._content = content
        self._runs: OrderedDict[str, Mapping[str, object]] = OrderedDict()
        """Run id -> the fields that all lines of this run have."""
        self._received: list[MessageReceived] = []
        self._scheduled: asyncio.AbstractEventLoop | None = None

    def read(self, event: ObservedEvent) -> None:
        """Write the line of an event."""
        _LINES[type(event)](self, event)

    # ── events of platforms ──

    def message_received(self, event: MessageReceived) -> None:
        """Gather the events that were stored in one round of the event loop, for one line.

        A line for each event would take as long as reading the message.
        """
        self._received.append(event)
        loop = asyncio.get_running_loop()
        if len(self._received) >= _MOST_IN_A_LINE:
            self.flush()
        elif self._scheduled is not loop:
            self._scheduled = loop
            loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write the line of the events that were gathered."""
        received, self._received, self._scheduled = self._received, [], None
        if received:
            runs = [run_id_of(each.conversation, each.event_id) for each in received]
            about = {"event": ", ".join([each.event_id for each in received]), "run": ", ".join(runs)}
            log.info("accepted", extra={**about, "conversation": ", ".join([each.conversation for each in received])})

    def webhook_rejected(self, event: WebhookRejected) -> None:
        said, level = _REFUSED.get(event.status, ("a request was not stored", logging.WARNING))
        if event.error is not None:
            said, level = _BROKEN.get(event.status, said), logging.ERROR
        elif event.signed:
            level = logging.WARNING
        why = {"why": event.why} if event.why else {}
        about = {"channel": event.channel, "reason": event.reason, **why}
        refusals.log(level, said, exc_info=event.error, extra=about)

    def duplicate_dropped(self, event: DuplicateDropped) -> None:
        log.info("seen before", extra={"event": event.event_id, "conversation": event.conversation})

    def event_settled(self, event: EventSettled) -> None:
        self.flush()
        about = {"event": ", ".join(event.event_ids), "run": event.run_id, "conversation": event.conversation}
        actions = {"actions": list(event.actions)} if event.actions else {}
        log.info("committed", extra={**about, "how": event.how, "parts": list(event.parts), **actions})

    # ── turns ──

    def turn_start(self, event: TurnStart) -> None:
        self.flush()
        about = {"run": event.run_id, "conversation": event.conversation}
        self._runs[event.run_id] = {"event": event.cause, **about}
        if len(self._runs) > _MOST_RUNS:
            self._runs.popitem(last=False)
        tries = {"tries": event.attempt - 1} if event.attempt > 1 else {}
        log.info("turn begun", extra={"event": ", ".join(event.event_ids), **about, **tries})

    def forget_run(self, event: TurnEnd | TurnFailed) -> None:
        self._runs.pop(event.run_id, None)

    def _of(self, event: RunEvent) -> Mapping[str, object]:
        return self._runs.get(event.run_id) or {"run": event.run_id}

    def llm_end(self, event: LlmEnd) -> None:
        if event.from_checkpoint or event.from_cache:
            return
        usage = event.usage
        said: dict[str, object] = {
            "model": event.response.model,
            "milliseconds": round(event.duration_ms),
            "total_tokens": usage.total_tokens,
        }
        if usage.cached_prompt_tokens:
            said["cached_prompt_tokens"] = usage.cached_prompt_tokens
        if usage.cost_usd is not None:
            said["cost_usd"] = round(usage.cost_usd, 6)
        elif usage.total_tokens:
            said["cost"] = "unknown"
        if self._content:
            said["content"] = event.response.content
        log.info("model answered", extra={**self._of(event), **said})

    def cache_hit(self, event: CacheHit) -> None:
        log.info("cache answered", extra={**self._of(event), "model": event.model})

    def llm_error(self, event: LlmError) -> None:
        wait = {} if event.retry_in_seconds is None else {"retry_in_seconds": event.retry_in_seconds}
        log.warning("model failed", extra={**self._of(event), "attempt": event.attempt, **wait})

    def provider_fallback(self, event: ProviderFallback) -> None:
        names = {"failed_provider": event.failed_provider, "next_provider": event.next_provider}
        log.warning("next model asked", extra={**self._of(event), **names})

    def tool_end(self, event: ToolEnd) -> None:
        if event.from_checkpoint:
            return
        content = {"result": event.result} if self._content else {}
        took = {"tool": event.tool_name, "milliseconds": round(event.duration_ms)}
        log.info("tool ran", extra={**self._of(event), **took, **content})

    def tool_error(self, event: ToolErrorRaised) -> None:
        if event.from_checkpoint:
            return
        content = {"arguments": dict(event.tool_args)} if self._content else {}
        log.warning("tool failed", extra={**self._of(event), "tool": event.tool_name, "what": event.what, **content})

    def pending_stashed(self, event: PendingStashed) -> None:
        if event.from_checkpoint:
            return
        action = event.action
        content = {"arguments": dict(action.args)} if self._content else {}
        log.info(
            "tool asks", extra={**self._of(event), "tool": action.kind, "action": action.pending_action_id, **content}
        )

    def vetoed(self, event: InterceptorVetoed) -> None:
        named = {"event": event.event_id, "tool": event.tool_name}
        about = {"conversation": event.conversation, **{name: value for name, value in named.items() if value}}
        by = {"stage": event.stage, "interceptor": event.interceptor}
        log.info("vetoed", extra={**self._of(event), **about, **by})

    def budget_warning(self, event: BudgetWarning) -> None:
        how = "is used up" if event.used_up else "is nearly used up"
        spent = {"holder": event.holder, "used": round(event.used, 6)}
        log.warning("the budget %s %s", event.budget, how, extra={**self._of(event), **spent})

    # ── actions ──

    def action_audited(self, event: ActionAudited) -> None:
        person = {"person": event.person} if event.person else {}
        about = {"event": action_event_id(event.action_id), "action": event.action_id, **person}
        log.info("action %s", event.what, extra=about)

    def effect_end(self, event: EffectEnd) -> None:
        action = event.action
        event_id = action_event_id(action.pending_action_id)
        about = {"event": event_id, "run": run_id_of(action.conversation, event_id)}
        took = {"tool": action.kind, "state": event.state, "milliseconds": round(event.duration_ms)}
        where = {"conversation": action.conversation, "action": action.pending_action_id}
        log.info("effect ended", extra={**about, **where, **took})

    # ── delivery ──

    def message_sent(self, event: MessageSent) -> None:
        log.info("delivered", extra={**_of_part(event), "call": event.call})

    def delivery_retried(self, event: DeliveryRetried) -> None:
        wait = {"call": event.call, "again_in_seconds": event.wait_seconds}
        log.warning("not delivered yet: %s", event.why, extra={**_of_part(event), **wait})

    def delivery_failed(self, event: DeliveryFailed) -> None:
        # Without a part of ours, it is a platform's report about a message that we no longer know.
        level = logging.WARNING if not event.part_id else logging.INFO if event.suppressed else logging.ERROR
        log.log(level, "not delivered: %s", event.reason, extra=_of_part(event))


_BROKEN: Mapping[int, str] = {400: "parse broke its contract", 401: "verify broke its contract"}
_REFUSED: Mapping[int, tuple[str, int]] = {
    400: ("a request could not be read", logging.INFO),
    401: ("a request was refused", logging.INFO),
}


def _of_part(event: MessageSent | DeliveryRetried | DeliveryFailed) -> dict[str, object]:
    part = {"part": event.part_id} if event.part_id else {}
    return {"event": event.cause, "run": event.run_id, "conversation": event.conversation, **part}


_LINES: Mapping[type[ObservedEvent], Callable[[EventLog, Any], None]] = {
    WebhookRejected: EventLog.webhook_rejected,
    MessageReceived: EventLog.message_received,
    DuplicateDropped: EventLog.duplicate_dropped,
    EventSettled: EventLog.event_settled,
    TurnStart: EventLog.turn_start,
    TurnEnd: EventLog.forget_run,
    TurnFailed: EventLog.forget_run,
    LlmEnd: EventLog.llm_end,
    CacheHit: EventLog.cache_hit,
    LlmError: EventLog.llm_error,
    ProviderFallback: EventLog.provider_fallback,
    ToolEnd: EventLog.tool_end,
    ToolErrorRaised: EventLog.tool_error,
    PendingStashed: EventLog.pending_stashed,
    InterceptorVetoed: EventLog.vetoed,
    BudgetWarning: EventLog.budget_warning,
    ActionAudited: EventLog.action_audited,
    EffectEnd: EventLog.effect_end,
    MessageSent: EventLog.message_sent,
    DeliveryRetried: EventLog.delivery_retried,
    DeliveryFailed: EventLog.delivery_failed,
}
