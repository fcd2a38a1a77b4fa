"""The OpenTelemetry names of spans: the GenAI semantic conventions, all in this module.

The names are from v0.1.0, the first release of the conventions in a repository of their own. All names have the
stability "Development". A later release may rename them: https://github.com/open-telemetry/semantic-conventions-genai.
Names outside of the conventions begin with ``askfirst.``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

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
    """Return a span of the gateway in the trace of a run: the root without an `own_id`, else a child of the root."""
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
        "start_time_unix_nano": nanoseconds(min(began, ended)),
        "end_time_unix_nano": nanoseconds(ended),
        "status": {"status_code": "UNSET" if error_type is None else "ERROR"},
    }


def root_link(run_id: str) -> dict[str, str]:
    """Return a link to the root span of a run."""
    return {"trace_id": trace_id(run_id), "span_id": span_id(run_id, 0)}


def trace_id(run_id: str) -> str:
    """Return the trace id of a run: the run id if valid as a trace id, else 32 hex digits hashed from the run id."""
    if _TRACE_ID.fullmatch(run_id) and run_id.strip("0"):
        return run_id
    return hashlib.blake2b(run_id.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def span_id(run_id: str, number: int) -> str:
    """Return the span id of a step, counted from 1. The number 0 is the run."""
    return hashlib.blake2b(f"{run_id}/{number}".encode(errors="surrogatepass"), digest_size=8).hexdigest()


def nanoseconds(at: datetime) -> int:
    """Return the nanoseconds since 1970, without the rounding of a float."""
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000
