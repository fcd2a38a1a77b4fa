"""The usage of an agent: the sums of all its runs in this process."""

from __future__ import annotations

from gateway.agent.config import AgentConfig
from gateway.observe.usage import AgentAnalytics, UsageMeter, usage_text

__all__ = ["Metered"]


class Metered:
    """The part of an Agent that tells its usage."""

    config: AgentConfig
    _meter: UsageMeter

    @property
    def total_tokens(self) -> int:
        """The tokens of all runs of this agent in this process since the last `reset_usage`."""
        return self._meter.total().total_tokens

    @property
    def total_cost(self) -> float | None:
        """The cost of these runs in US dollars. None: the price of a model is unknown."""
        return self._meter.total().cost_usd

    def get_usage_summary(self) -> str:
        """Return the usage of these runs in one line."""
        return usage_text(self._meter.total())

    def reset_usage(self) -> None:
        """Begin to count anew at 0."""
        self._meter.reset()

    def get_analytics(self) -> AgentAnalytics | None:
        """Return how the tools were used since the last `reset_usage`. None without `enable_analytics`."""
        return AgentAnalytics(by_tool=self._meter.total().by_tool) if self.config.enable_analytics else None
