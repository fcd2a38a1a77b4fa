"""The agent: loop, settings, and the ports of a chat to the loop."""

from gateway.agent.agent import Agent
from gateway.agent.aside import Expenses
from gateway.agent.config import AgentConfig, CoherenceConfig, ConfirmAction, StopCondition, ToolConfig
from gateway.agent.confirming import Ask, Asked, OnConfirm, Verdict
from gateway.agent.interceptors import Interceptors, Stage, Vetoed
from gateway.agent.journal import Journal, Keep
from gateway.agent.loop import run_loop
from gateway.agent.model import OnText
from gateway.agent.ports import CancellationToken, LiveText, LoopOutcome, LoopPorts
from gateway.agent.replies import ReadFile, image_message, is_shown
from gateway.agent.spec import AgentSpec

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
