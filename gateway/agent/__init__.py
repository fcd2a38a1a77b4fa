"""The agent: its loop, its settings, and the ports through which a chat drives it."""

from gateway.agent.agent import Agent
from gateway.agent.cancellation import CancellationToken
from gateway.agent.coherence import CoherenceConfig
from gateway.agent.config import AgentConfig, ConfirmAction, StopCondition
from gateway.agent.confirming import Ask, Asked, OnConfirm, Verdict
from gateway.agent.expenses import Expenses
from gateway.agent.files import ReadFile, image_message, is_shown
from gateway.agent.interceptors import Interceptors, Stage, Vetoed
from gateway.agent.journal import Journal, Keep
from gateway.agent.model import OnText
from gateway.agent.outcome import LoopOutcome
from gateway.agent.ports import LiveText, LoopPorts
from gateway.agent.run import run_loop
from gateway.agent.spec import AgentSpec
from gateway.agent.tool_config import ToolConfig

__all__ = [
    "Agent",
    "AgentConfig",
    "AgentSpec",
    "Ask",
    "Asked",
    "CancellationToken",
    "CoherenceConfig",
    "ConfirmAction",
    "Expenses",
    "Interceptors",
    "Journal",
    "Keep",
    "LiveText",
    "LoopOutcome",
    "LoopPorts",
    "OnConfirm",
    "OnText",
    "ReadFile",
    "Stage",
    "StopCondition",
    "ToolConfig",
    "Verdict",
    "Vetoed",
    "image_message",
    "is_shown",
    "run_loop",
]
