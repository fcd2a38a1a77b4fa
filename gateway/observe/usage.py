"""The usage of an agent in this process: the sum over the runs, and the analytics of the tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock

from channels import Json
from gateway.providers.base import NO_USAGE, ToolUsage, Usage

_MOST_UNSUMMED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAnalytics:
    """The calls of an agent's tools in this process, by tool."""

    by_tool: Mapping[str, ToolUsage]

    def to_dict(self) -> dict[str, Json]:
        """Return the calls, the failures, the failure rate and the mean duration in milliseconds of each tool."""
        return {
            name: {
                "calls": used.calls,
                "failed": used.failed,
                "failure_rate": used.failed / used.calls if used.calls else 0.0,
                "average_duration_ms": used.duration_ms / used.calls if used.calls else 0.0,
            }
            for name, used in self.by_tool.items()
        }

    def summary(self) -> str:
        """Return a line for each tool, the most used tool first."""
        lines = [
            f"{name}: {used.calls} calls, {used.failed} failed, {used.duration_ms / max(used.calls, 1):.0f} ms each"
            for name, used in sorted(self.by_tool.items(), key=lambda each: (-each[1].calls, each[0]))
        ]
        return "\n".join(lines) or "no tool was called"


class UsageMeter:
    """Sums the usage of runs. Thread-safe."""

    def __init__(self) -> None:
        self._sum = NO_USAGE
        self._new: list[Usage] = []
        self._lock = Lock()

    def add(self, usage: Usage) -> None:
        """Add the usage of a call to the model, or of the tools of a run."""
        self._new.append(usage)
        if len(self._new) >= _MOST_UNSUMMED:
            self.total()

    def total(self) -> Usage:
        """Return the sum since the last reset."""
        with self._lock:
            new, self._new = self._new, []
            self._sum = sum(new, self._sum)
            return self._sum

    def reset(self) -> None:
        """Start again at 0."""
        with self._lock:
            self._sum, self._new = NO_USAGE, []


def usage_text(usage: Usage) -> str:
    """Return a usage in a line: all tokens, the cached tokens, and the cost or the number of unpriced calls."""
    cached = f", {usage.cached_prompt_tokens} of them cached" if usage.cached_prompt_tokens else ""
    tokens = f"{usage.total_tokens} tokens ({usage.prompt_tokens} in{cached}, {usage.completion_tokens} out)"
    return f"{tokens}, {_cost_text(usage)}"


def _cost_text(usage: Usage) -> str:
    if usage.cost_usd is not None:
        return f"${usage.cost_usd:.4f}"
    if not usage.least_usd:
        return "cost unknown"
    calls = "1 call is" if usage.unpriced_calls == 1 else f"{usage.unpriced_calls} calls is"
    return f"at least ${usage.least_usd:.4f}; the price of {calls} unknown"
