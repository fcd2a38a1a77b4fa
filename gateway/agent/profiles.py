"""Settings of agents for common uses, and what the model is told of how to reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

__all__ = ["PROFILES", "STRATEGIES", "Profile", "ReasoningStrategy"]

Profile: TypeAlias = Literal["production", "production_cached", "dev", "budget"]
ReasoningStrategy: TypeAlias = Literal["react", "cot", "plan_then_act"]

_PRODUCTION: Final = {
    "max_tokens": 2000,
    "max_iterations": 10,
    "max_retries": 3,
    "retry_backoff_seconds": 2.0,
    "rate_limit_cooldown_seconds": 10.0,
    "request_timeout_seconds": 60.0,
    "tool_timeout_seconds": 30.0,
    "cost_warning_threshold": 0.5,
    "enable_analytics": True,
}
PROFILES: Final[Mapping[Profile, Mapping[str, Any]]] = {
    "production": _PRODUCTION,
    "production_cached": _PRODUCTION,
    "dev": {"max_iterations": 3},
    "budget": {"max_tokens": 500, "max_iterations": 3, "cost_warning_threshold": 0.01},
}
"""The settings of each profile. `AgentConfig.profile` adds the cache of `production_cached`, and the log of `dev`."""

STRATEGIES: Final[Mapping[ReasoningStrategy, str]] = {
    "react": (
        "Work in small steps. Before each tool call, write in one sentence why you make it. After its result, decide "
        "whether you know enough to answer."
    ),
    "cot": (
        "Think the task through step by step before you answer. Give the person the answer and its reasons in short, "
        "not your steps."
    ),
    "plan_then_act": (
        "Before your first tool call, write a short plan of the calls that you need. Then follow it, and change it "
        "when a result speaks against it."
    ),
}
"""The text that stands behind the instructions of an agent with this strategy."""
