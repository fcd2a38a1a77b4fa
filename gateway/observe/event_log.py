"""The event log: log lines of the events of a gateway, from the receipt to the delivery.

`event` is the platform's id of the answered event, or the id of the action with this outcome. `run` is the id of the
run. `conversation` is the conversation. A line may name several events: a turn names all events of the turn, and events
stored at the same moment share a line.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping

from gateway.observe import events
from gateway.observe.reader import EventReader
from gateway.observe.runs import action_event_id, run_id_of

log = logging.getLogger("askfirst.events")
REFUSALS = "gateway.web.webhooks"
"""The logger of refused requests. Anybody can send a request to be refused, so the web server limits the lines."""
refusals = logging.getLogger(REFUSALS)

_MOST_IN_A_LINE = 50
"""The most events in a line. Some log collectors cut a line after 16 KiB."""
_MOST_RUNS = 10_000


class EventLog(EventReader):
    """A reader that writes the lines. No field has the text of a person or of an exception, or a confirmation code.

    `content`: the lines also have the model's text and the tools' arguments and results.
    """

    def __init__(self, *, content: bool = False) -> None:
        self._content = content
        self._runs: OrderedDict[str, Mapping[str, object]] = OrderedDict()
        """Run id -> the common fields of all lines of the run."""
        self._received: list[events.MessageReceived] = []
        self._scheduled: asyncio.AbstractEventLoop | None = None

    # ── events of platforms ──

    def message_received(self, event: events.MessageReceived) -> None:
        """Gather the events stored in one round of the event loop into one line.

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
        """Write the line of the gathered events."""
        received, self._received, self._scheduled = self._received, [], None
        if received:
            runs = [run_id_of(each.conversation, each.event_id) for each in received]
            about = {"event": ", ".join([each.event_id for each in received]), "run": ", ".join(runs)}
            log.info("accepted", extra={**about, "conversation": ", ".join([each.conversation for each in received])})

    def webhook_rejected(self, event: events.WebhookRejected) -> None:
        said, level = _REFUSED.get(event.status, ("a request was not stored", logging.WARNING))
        if event.error is not None:
            said, level = _BROKEN.get(event.status, said), logging.ERROR
        elif event.signed:
            level = logging.WARNING
        why = {"why": event.why} if event.why else {}
        about = {"channel": event.channel, "reason": event.reason, **why}
        refusals.log(level, said, exc_info=event.error, extra=about)

    def duplicate_dropped(self, event: events.DuplicateDropped) -> None:
        log.info("seen before", extra={"event": event.event_id, "conversation": event.conversation})

    def event_settled(self, event: events.EventSettled) -> None:
        self.flush()
        about = {"event": ", ".join(event.event_ids), "run": event.run_id, "conversation": event.conversation}
        actions = {"actions": list(event.actions)} if event.actions else {}
        log.info("committed", extra={**about, "how": event.how, "parts": list(event.parts), **actions})

    # ── turns ──

    def turn_start(self, event: events.TurnStart) -> None:
        self.flush()
        about = {"run": event.run_id, "conversation": event.conversation}
        self._runs[event.run_id] = {"event": event.cause, **about}
        if len(self._runs) > _MOST_RUNS:
            self._runs.popitem(last=False)
        tries = {"tries": event.attempt - 1} if event.attempt > 1 else {}
        log.info("turn begun", extra={"event": ", ".join(event.event_ids), **about, **tries})

    def turn_end(self, event: events.TurnEnd) -> None:
        self._runs.pop(event.run_id, None)

    def turn_failed(self, event: events.TurnFailed) -> None:
        self._runs.pop(event.run_id, None)

    def _of(self, event: events.RunEvent) -> Mapping[str, object]:
        return self._runs.get(event.run_id) or {"run": event.run_id}

    def llm_end(self, event: events.LlmEnd) -> None:
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

    def cache_hit(self, event: events.CacheHit) -> None:
        log.info("cache answered", extra={**self._of(event), "model": event.model})

    def llm_error(self, event: events.LlmError) -> None:
        wait = {} if event.retry_in_seconds is None else {"retry_in_seconds": event.retry_in_seconds}
        log.warning("model failed", extra={**self._of(event), "attempt": event.attempt, **wait})

    def provider_fallback(self, event: events.ProviderFallback) -> None:
        names = {"failed_provider": event.failed_provider, "next_provider": event.next_provider}
        log.warning("next model asked", extra={**self._of(event), **names})

    def tool_end(self, event: events.ToolEnd) -> None:
        if event.from_checkpoint:
            return
        content = {"result": event.result} if self._content else {}
        took = {"tool": event.tool_name, "milliseconds": round(event.duration_ms)}
        log.info("tool ran", extra={**self._of(event), **took, **content})

    def tool_error(self, event: events.ToolErrorRaised) -> None:
        if event.from_checkpoint:
            return
        content = {"arguments": dict(event.tool_args)} if self._content else {}
        log.warning("tool failed", extra={**self._of(event), "tool": event.tool_name, "what": event.what, **content})

    def pending_stashed(self, event: events.PendingStashed) -> None:
        if event.from_checkpoint:
            return
        action = event.action
        content = {"arguments": dict(action.args)} if self._content else {}
        log.info(
            "tool asks", extra={**self._of(event), "tool": action.kind, "action": action.pending_action_id, **content}
        )

    def vetoed(self, event: events.InterceptorVetoed) -> None:
        named = {"event": event.event_id, "tool": event.tool_name}
        about = {"conversation": event.conversation, **{name: value for name, value in named.items() if value}}
        by = {"stage": event.stage, "interceptor": event.interceptor}
        log.info("vetoed", extra={**self._of(event), **about, **by})

    def budget_warning(self, event: events.BudgetWarning) -> None:
        how = "is used up" if event.used_up else "is nearly used up"
        spent = {"holder": event.holder, "used": round(event.used, 6)}
        log.warning("the budget %s %s", event.budget, how, extra={**self._of(event), **spent})

    # ── actions ──

    def action_audited(self, event: events.ActionAudited) -> None:
        person = {"person": event.person} if event.person else {}
        about = {"event": action_event_id(event.action_id), "action": event.action_id, **person}
        log.info("action %s", event.what, extra=about)

    def effect_end(self, event: events.EffectEnd) -> None:
        action = event.action
        event_id = action_event_id(action.pending_action_id)
        about = {"event": event_id, "run": run_id_of(action.conversation, event_id)}
        took = {"tool": action.kind, "state": event.state, "milliseconds": round(event.duration_ms)}
        where = {"conversation": action.conversation, "action": action.pending_action_id}
        log.info("effect ended", extra={**about, **where, **took})

    # ── delivery ──

    def message_sent(self, event: events.MessageSent) -> None:
        log.info("delivered", extra={**_of_part(event), "call": event.call})

    def delivery_retried(self, event: events.DeliveryRetried) -> None:
        took = {"milliseconds": round(event.duration_ms)}
        wait = {"call": event.call, **took, "again_in_seconds": event.wait_seconds}
        log.warning("not delivered yet: %s", event.why, extra={**_of_part(event), **wait})

    def delivery_failed(self, event: events.DeliveryFailed) -> None:
        # Without a part of ours, it is a platform's report about a message that we no longer know.
        level = logging.WARNING if not event.part_id else logging.INFO if event.suppressed else logging.ERROR
        log.log(level, "not delivered: %s", event.reason, extra=_of_part(event))


_BROKEN: Mapping[int, str] = {400: "parse broke its contract", 401: "verify broke its contract"}
_REFUSED: Mapping[int, tuple[str, int]] = {
    400: ("a request could not be read", logging.INFO),
    401: ("a request was refused", logging.INFO),
}


def _of_part(event: events.MessageSent | events.DeliveryRetried | events.DeliveryFailed) -> dict[str, object]:
    part = {"part": event.part_id} if event.part_id else {}
    return {"event": event.cause, "run": event.run_id, "conversation": event.conversation, **part}
