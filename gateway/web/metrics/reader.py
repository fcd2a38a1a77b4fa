"""The reader for counting the events of a gateway."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Final, get_args

from prometheus_client import Counter

from gateway.agent.checking import CallFailed
from gateway.observe import StopReason, events
from gateway.observe.reader import EventReader
from gateway.store.types import KINDS
from gateway.tools.pending_action import Reason
from gateway.web.metrics.definitions import OTHER, UNKNOWN, Closed, Definitions, Series, first_models

_REJECTED: Final = {
    "Forged": "forged",
    "NotOurs": "forged",
    "Stale": "stale",
    "Malformed": "unreadable",
    "MailboxFull": "overloaded",
    "Overloaded": "overloaded",
    "NotStarted": "not_started",
    "StoreUnavailable": "store_unavailable",
    "TimeoutError": "store_unavailable",
}
"""Class of an error -> reason of the refused request."""
_OWN: Final = "default"
"""Label of a model chosen by the provider itself."""
_STATUSES: Final = range(100, 600)


class EventCounts(EventReader):
    """A reader for counting events. `channels` and `tools` are the names of the gateway's own."""

    def __init__(self, metrics: Definitions, channels: Collection[str], tools: Collection[str]) -> None:
        self._metrics, self._model = metrics, first_models()
        self._channel, self._tool = Closed(channels), Closed(tools, UNKNOWN)
        self._stop_reason = Closed(frozenset(get_args(StopReason)))
        self._status = Closed({"done", "failed", "unknown", *get_args(Reason)})
        self._webhooks: dict[tuple[str, int], Series] = {}
        self._accepted: dict[str, Counter] = {}
        self._begin_at_zero(channels)

    def _begin_at_zero(self, channels: Collection[str]) -> None:
        """Create the series watched by alerts at zero, so the first increase counts too."""
        metrics = self._metrics
        for channel in channels:
            self._accepted[channel] = metrics.accepted.labels(channel)
            metrics.duplicates.labels(channel)
            metrics.delivery_retries.labels(channel)
            for outcome in ("sent", "failed", "suppressed"):
                metrics.deliveries.labels(channel, outcome)
        for kind in KINDS:
            metrics.leases_lost.labels(kind)
            metrics.takeovers.labels(kind)
        for why in ("unknown", "forged", "undeliverable"):
            metrics.doubts.labels(why)

    # ── what comes in ──

    def webhook_handled(self, event: events.WebhookHandled) -> None:
        asked = (event.channel, event.status)
        found = self._webhooks.get(asked)  # a look-up by labels takes as long as counting
        if found is None:
            status = str(event.status) if event.status in _STATUSES else OTHER
            found = self._webhooks[asked] = self._metrics.webhooks.labels(self._channel(event.channel), status)
        found.observe(event.duration_ms / 1000)

    def webhook_rejected(self, event: events.WebhookRejected) -> None:
        self._metrics.rejected.labels(self._channel(event.channel), _REJECTED.get(event.reason, OTHER)).inc()

    def message_received(self, event: events.MessageReceived) -> None:
        found = self._accepted.get(event.address.channel)
        (found or self._metrics.accepted.labels(OTHER)).inc()

    def duplicate_dropped(self, event: events.DuplicateDropped) -> None:
        self._metrics.duplicates.labels(self._channel(event.address.channel)).inc()

    def rate_exceeded(self, event: events.RateExceeded) -> None:
        self._metrics.rate_limited.labels(self._channel(event.address.channel), event.share).inc()

    def poll_failed(self, event: events.PollFailed) -> None:
        self._metrics.poll_failures.labels(self._channel(event.channel)).inc()

    # ── turns, models, tools ──

    def turn_end(self, event: events.TurnEnd) -> None:
        self._metrics.turns.labels(self._stop_reason(event.stop_reason)).observe(event.duration_ms / 1000)

    def turn_failed(self, event: events.TurnFailed) -> None:
        self._metrics.turns_failed.inc()

    def llm_end(self, event: events.LlmEnd) -> None:
        if event.from_checkpoint or event.from_cache:  # an earlier attempt has counted it, or no call was made
            return
        metrics, usage = self._metrics, event.usage
        which = (event.provider, self._model(event.requested_model or _OWN))
        metrics.model_calls.labels(*which, "ok").observe(event.duration_ms / 1000)
        fresh = usage.prompt_tokens - usage.cached_prompt_tokens - usage.cache_write_tokens
        for kind, count in (
            ("input", fresh),
            ("cached", usage.cached_prompt_tokens),
            ("cache_write", usage.cache_write_tokens),
            ("output", usage.completion_tokens),
        ):
            if count > 0:
                metrics.tokens.labels(*which, kind).inc(count)
        if usage.cost_usd is None:
            metrics.unpriced.labels(*which).inc()
        else:
            metrics.cost.labels(*which).inc(max(0.0, usage.cost_usd))

    def llm_error(self, event: events.LlmError) -> None:
        which = (event.provider, self._model(event.model or _OWN))
        self._metrics.model_calls.labels(*which, "error").observe(event.duration_ms / 1000)
        if event.retry_in_seconds is not None:
            self._metrics.model_retries.labels(*which).inc()

    def tool_end(self, event: events.ToolEnd) -> None:
        if event.from_checkpoint:  # an earlier attempt has counted it
            return
        self._metrics.tools.labels(self._tool(event.tool_name), "ok").observe(event.duration_ms / 1000)

    def tool_error(self, event: events.ToolErrorRaised) -> None:
        if event.from_checkpoint:  # an earlier attempt has counted it
            return
        tool = self._tool(event.tool_name)
        if isinstance(event.error, CallFailed):
            self._metrics.tools_refused.labels(tool).inc()
        else:
            self._metrics.tools.labels(tool, "error").observe(event.duration_ms / 1000)

    # ── actions ──

    def pending_stashed(self, event: events.PendingStashed) -> None:
        if event.from_checkpoint:  # an earlier attempt has counted it
            return
        self._metrics.asked.labels(self._tool(event.action.kind)).inc()

    def pending_decided(self, event: events.PendingDecided) -> None:
        action = event.action
        asked, decided = action.shown_at or action.requested_at, _decided_at(event)
        self._metrics.decisions.labels(event.intent).observe(max(0.0, (decided - asked).total_seconds()))

    def effect_end(self, event: events.EffectEnd) -> None:
        self._metrics.effects.labels(self._tool(event.action.kind), event.state).observe(event.duration_ms / 1000)

    def pending_resolved(self, event: events.PendingResolved) -> None:
        self._metrics.ended.labels(self._tool(event.action.kind), self._status(event.status)).inc()

    def doubt_raised(self, event: events.DoubtRaised) -> None:
        self._metrics.doubts.labels(event.why).inc()

    # ── delivery ──

    def message_sent(self, event: events.MessageSent) -> None:
        self._metrics.deliveries.labels(self._channel(event.address.channel), "sent").inc()

    def delivery_failed(self, event: events.DeliveryFailed) -> None:
        outcome = "suppressed" if event.suppressed else "failed"
        self._metrics.deliveries.labels(self._channel(event.address.channel), outcome).inc()

    def delivery_retried(self, event: events.DeliveryRetried) -> None:
        self._metrics.delivery_retries.labels(self._channel(event.channel)).inc()

    # ── leases ──

    def lease_lost(self, event: events.LeaseLost) -> None:
        self._metrics.leases_lost.labels(event.kind).inc()

    def lease_taken_over(self, event: events.LeaseTakenOver) -> None:
        self._metrics.takeovers.labels(event.kind).inc()


def _decided_at(event: events.PendingDecided) -> datetime:
    """Return the moment of a decision: of the last vote, while more votes are needed."""
    action = event.action
    return action.decided_at or max((vote.at for vote in action.votes), default=action.requested_at)
