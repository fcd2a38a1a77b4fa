"""The OpenTelemetry names of a trace: the GenAI semantic conventions, in this one place.

The names are of the conventions' first release of their own, v0.1.0, which all stand at the stage "Development". A
later release may rename them: https://github.com/open-telemetry/semantic-conventions-genai. What the conventions do not
know has a name under ``askfirst.``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from gateway.tools.pending_action import json_text

if TYPE_CHECKING:
    from gateway.observe.trace import AgentTrace, TraceStep

__all__ = ["gateway_span", "root_link", "span_id", "spans", "trace_id"]

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
AGENT_NAME: Final = "gen_ai.agent.name"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
ERROR_TYPE: Final = "error.type"

CONVERSATION: Final = "gen_ai.conversation.id"

CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"
INVOKE_AGENT: Final = "invoke_agent"

STEP_TYPE: Final = "askfirst.step.type"
STEP_SUMMARY: Final = "askfirst.step.summary"
STEP_REASONING: Final = "askfirst.step.reasoning"
STEPS_LEFT_OUT: Final = "askfirst.step.left_out"
FROM_CHECKPOINT: Final = "askfirst.from_checkpoint"
COST_USD: Final = "askfirst.cost_usd"
STOP_REASON: Final = "askfirst.stop_reason"
METADATA: Final = "askfirst.metadata."
RECEIVE: Final = "receive"
DELIVER: Final = "deliver"
DECIDE: Final = "decide"
PENDING_ACTION: Final = "pending_action"
CHANNEL: Final = "askfirst.channel"
EVENT: Final = "askfirst.event"
PART: Final = "askfirst.part"
DELIVERY_CALL: Final = "askfirst.delivery.call"
ACTION: Final = "askfirst.action"
ATTEMPT: Final = "askfirst.attempt"
OUTCOME: Final = "askfirst.outcome"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TRACE_ID = re.compile("[0-9a-f]{32}")
_FAILED = frozenset({"error", "provider_error"})
"""The stop reasons of a run that failed."""


def spans(trace: AgentTrace, *, content: bool, agent_name: str) -> list[dict[str, Any]]:
    """Return the spans of a trace: the root, then one for each step, in order."""
    root = _root(trace, content, agent_name)
    tools = {step.tool_name for step in trace.steps if step.type != "tool_selection"}
    return [root, *(_child(trace, number, step, content, tools) for number, step in enumerate(trace.steps, start=1))]


def gateway_span(
    run_id: str,
    name: str,
    *,
    kind: str = "INTERNAL",
    own_id: str | None = None,
    began: datetime,
    ended: datetime,
    attributes: Mapping[str, Any],
    links: Sequence[Mapping[str, str]] = (),
    error_type: str | None = None,
) -> dict[str, Any]:
    """Return a span of the gateway in the trace of a run: its root without an `own_id`, else a child of the root."""
    root = span_id(run_id, 0)
    known = {**attributes, ERROR_TYPE: error_type}
    return {
        "name": name,
        "kind": kind,
        "trace_id": trace_id(run_id),
        "span_id": own_id or root,
        "parent_span_id": root if own_id else None,
        "attributes": {key: value for key, value in known.items() if value is not None},
        "links": list(links),
        "start_time_unix_nano": _nanoseconds(min(began, ended)),
        "end_time_unix_nano": _nanoseconds(ended),
        "status": {"status_code": "UNSET" if error_type is None else "ERROR"},
    }


def root_link(run_id: str) -> dict[str, str]:
    """Return a link to the root span of a run."""
    return {"trace_id": trace_id(run_id), "span_id": span_id(run_id, 0)}


def trace_id(run_id: str) -> str:
    """Return the trace id of a run: its own id if that is one, else 32 hex digits that follow from it."""
    if _TRACE_ID.fullmatch(run_id) and run_id.strip("0"):
        return run_id
    return hashlib.blake2b(run_id.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def span_id(run_id: str, number: int) -> str:
    """Return the span id of a step, counted from 1; 0 is the run itself."""
    return hashlib.blake2b(f"{run_id}/{number}".encode(errors="surrogatepass"), digest_size=8).hexdigest()


def _root(trace: AgentTrace, content: bool, agent_name: str) -> dict[str, Any]:
    calls = trace.filter(type="llm_call")
    attributes: dict[str, Any] = {
        OPERATION: INVOKE_AGENT,
        AGENT_NAME: agent_name or None,
        PROVIDER: calls[-1].provider if calls else None,
        REQUEST_MODEL: calls[-1].requested_model or calls[-1].model if calls else None,
        INPUT_TOKENS: sum(step.prompt_tokens or 0 for step in calls),
        OUTPUT_TOKENS: sum(step.completion_tokens or 0 for step in calls),
        STOP_REASON: trace.stop_reason,
    }
    failed = trace.stop_reason in _FAILED
    if failed:
        attributes[ERROR_TYPE] = next((step.error_type for step in reversed(trace.steps) if step.error_type), "_OTHER")
    if content:
        attributes |= {f"{METADATA}{key}": _attribute(value) for key, value in trace.metadata.items()}
    span = _span(trace, 0, f"{INVOKE_AGENT} {agent_name}".rstrip(), "INTERNAL", attributes)
    ends = [step.started_at + timedelta(milliseconds=step.duration_ms or 0.0) for step in trace.steps]
    span["parent_span_id"] = None
    if trace.parent_run_id is not None:
        span["links"] = [root_link(trace.parent_run_id)]
    span["start_time_unix_nano"] = _nanoseconds(trace.started_at)
    span["end_time_unix_nano"] = _nanoseconds(trace.ended_at or max(ends, default=trace.started_at))
    span["status"] = {"status_code": "ERROR" if failed else "UNSET"}
    return span


def _child(
    trace: AgentTrace, number: int, step: TraceStep, content: bool, tools: Container[str | None]
) -> dict[str, Any]:
    name, kind, attributes = _conventional(step, content, tools)
    attributes |= {STEP_TYPE: step.type, FROM_CHECKPOINT: step.from_checkpoint or None}
    if step.left_out:
        attributes[STEPS_LEFT_OUT] = step.left_out
    if step.error is not None:
        attributes[ERROR_TYPE] = step.error_type or "_OTHER"
    if content:
        attributes |= {STEP_SUMMARY: step.summary or None, STEP_REASONING: step.reasoning or None}
    span = _span(trace, number, name, kind, attributes)
    span["parent_span_id"] = span_id(trace.run_id, 0)
    span["start_time_unix_nano"] = _nanoseconds(step.started_at)
    span["end_time_unix_nano"] = _nanoseconds(step.started_at + timedelta(milliseconds=step.duration_ms or 0.0))
    span["status"] = {"status_code": "UNSET" if step.error is None else "ERROR"}
    if content and step.error is not None:
        span["status"]["description"] = step.error
    return span


def _conventional(step: TraceStep, content: bool, tools: Container[str | None]) -> tuple[str, str, dict[str, Any]]:
    """Return the name, the kind and the attributes of a step's span by the conventions."""
    is_failed_call = step.type == "error" and step.model is not None
    if step.type == "llm_call" or is_failed_call:
        attributes: dict[str, Any] = {
            OPERATION: CHAT,
            PROVIDER: step.provider,
            REQUEST_MODEL: step.requested_model or step.model,
            RESPONSE_MODEL: None if is_failed_call else step.model,
            INPUT_TOKENS: step.prompt_tokens,
            OUTPUT_TOKENS: step.completion_tokens,
            COST_USD: step.cost_usd,
        }
        return f"{CHAT} {step.model or ''}".rstrip(), "CLIENT", attributes
    # A selection has the name that the model wrote, which may be no tool's. The other steps have a tool's name.
    named = content or step.type != "tool_selection" or step.tool_name in tools
    attributes = {TOOL_NAME: step.tool_name if named else None, TOOL_CALL_ID: step.call_id}
    if content:
        attributes[TOOL_ARGUMENTS] = None if step.tool_args is None else json_text(dict(step.tool_args))
        attributes[TOOL_RESULT] = step.tool_result
    if step.type == "tool_execution":
        attributes |= {OPERATION: EXECUTE_TOOL, TOOL_TYPE: "function"}
        return f"{EXECUTE_TOOL} {step.tool_name or ''}".rstrip(), "INTERNAL", attributes
    return step.type, "INTERNAL", attributes


def _span(trace: AgentTrace, number: int, name: str, kind: str, attributes: dict[str, Any]) -> dict[str, Any]:
    known = {key: value for key, value in attributes.items() if value is not None}
    return {
        "name": name,
        "kind": kind,
        "trace_id": trace_id(trace.run_id),
        "span_id": span_id(trace.run_id, number),
        "attributes": known,
        "links": [],
    }


def _attribute(value: Any) -> Any:
    """Return a value that a span may hold as an attribute."""
    return value if value is None or isinstance(value, (str, bool, int, float)) else json_text(value)


def _nanoseconds(at: datetime) -> int:
    """Return the nanoseconds since 1970, without the rounding of a float."""
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000
