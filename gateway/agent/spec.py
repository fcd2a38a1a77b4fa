"""The parts of an agent shared by all turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gateway.agent.aside import SideProviders
from gateway.agent.caching import Caching
from gateway.agent.config import AgentConfig
from gateway.agent.window import Window
from gateway.observe.usage import UsageMeter
from gateway.providers.base import ToolSpec
from gateway.tools import Tool, ToolPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """The parts of an agent, constant from turn to turn."""

    tools: Mapping[str, Tool]
    specs: Sequence[ToolSpec]
    """The tools in the model's form."""
    config: AgentConfig
    policy: ToolPolicy | None = None
    window: Window = field(default_factory=Window)
    """The window, shared by all turns of an agent."""
    caching: Caching | None
    """The cache, or None."""
    sides: SideProviders
    """The providers of small calls beside the conversation."""
    meter: UsageMeter = field(default_factory=UsageMeter)
    """The meter, shared by all turns of an agent."""
