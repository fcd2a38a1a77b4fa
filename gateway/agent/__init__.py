"""The agent: its loop, its settings, and the ports through which a chat drives it."""

from gateway.agent.agent import Agent
from gateway.agent.calls import Keep
from gateway.agent.config import AgentConfig, ConfirmAction, StopCondition
from gateway.agent.confirming import Ask, Asked, OnConfirm, Verdict
from gateway.agent.journal import Journal
from gateway.agent.loop import AgentSpec, LoopOutcome, run_loop
from gateway.agent.model import OnEvent, OnText
from gateway.agent.ports import LoopPorts
from gateway.observe.results import AgentResult, StopReason, StreamChunk

__all__ = [
    "Agent",
    "AgentConfig",
    "AgentResult",
    "AgentSpec",
    "Ask",
    "Asked",
    "ConfirmAction",
    "Journal",
    "Keep",
    "LoopOutcome",
    "LoopPorts",
    "OnConfirm",
    "OnEvent",
    "OnText",
    "StopCondition",
    "StopReason",
    "StreamChunk",
    "Verdict",
    "run_loop",
]
