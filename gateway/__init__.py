"""Askfirst: a gateway for chat bots that ask first."""

from channels import Address, AskfirstError, Attachment, Button, Json, Reply, WebhookRequest, WebhookResponse
from gateway.agent import Agent, AgentConfig, AgentResult, StreamChunk
from gateway.app import Gateway
from gateway.artifacts import Artifact, emit_artifact
from gateway.channel_agent import ChannelAgent, NotAllowed
from gateway.pending import PendingAction
from gateway.providers import Provider, ProviderError
from gateway.settings import Settings
from gateway.tools import (
    Ambiguous,
    Approvers,
    Confirm,
    NotFound,
    NothingDone,
    OutcomeUnknown,
    PendingConfirmation,
    Preview,
    RateLimited,
    Tool,
    ToolContext,
    ToolPolicy,
    ToolRegistry,
    ToolResult,
    tool,
)

__all__ = [
    "Address",
    "Agent",
    "AgentConfig",
    "AgentResult",
    "Ambiguous",
    "Approvers",
    "Artifact",
    "AskfirstError",
    "Attachment",
    "Button",
    "ChannelAgent",
    "Confirm",
    "Gateway",
    "Json",
    "NotAllowed",
    "NotFound",
    "NothingDone",
    "OutcomeUnknown",
    "PendingAction",
    "PendingConfirmation",
    "Preview",
    "Provider",
    "ProviderError",
    "RateLimited",
    "Reply",
    "Settings",
    "StreamChunk",
    "Tool",
    "ToolContext",
    "ToolPolicy",
    "ToolRegistry",
    "ToolResult",
    "WebhookRequest",
    "WebhookResponse",
    "emit_artifact",
    "tool",
]
