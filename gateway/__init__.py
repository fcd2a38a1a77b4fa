"""Askfirst: a gateway for chat bots that ask first."""

import importlib
import typing

import channels

if not hasattr(channels, "AskfirstError"):  # the package that was installed last overwrites the other
    raise ImportError(
        f"the package `channels` in {channels.__path__[0]} is not Askfirst's: Django Channels has the same name. "
        "Install Askfirst in an environment of its own: python -m venv bot && bot/bin/pip install askfirst"
    )

from channels import Address, AskfirstError, Attachment, Button, Json, Reply, WebhookRequest, WebhookResponse
from gateway.agent import (
    Agent,
    AgentConfig,
    CancellationToken,
    CoherenceConfig,
    ToolConfig,
    Vetoed,
    image_message,
)
from gateway.artifacts import Artifact, emit_artifact
from gateway.cache import Cache, CacheStats, InMemoryCache
from gateway.channel_agent import ChannelAgent, NotAllowed
from gateway.guards import Guardrail, GuardrailVerdict, InjectionGuardrail, LengthGuardrail, PiiGuardrail
from gateway.memory import ConversationMemory, EntityMemory, KnowledgeGraphMemory, KnowledgeMemory
from gateway.observe import AgentObserver, AgentResult, AgentTrace, LoggingObserver, StopReason, StreamChunk, TraceStep
from gateway.privacy.conversations import Conversations
from gateway.providers import FallbackProvider, ModelMessage, Provider, ProviderError, Request, Response, Usage
from gateway.tools import (
    Ambiguous,
    Approvers,
    Confirm,
    Injected,
    Label,
    Money,
    NotFound,
    NothingDone,
    OutcomeUnknown,
    PendingConfirmation,
    Preview,
    RateLimited,
    Standing,
    Tool,
    ToolContext,
    ToolExecutionError,
    ToolFailed,
    ToolParameter,
    ToolPolicy,
    ToolRegistry,
    ToolResult,
    ToolValidationError,
    tool,
)
from gateway.tools.pending_action import PendingAction
from gateway.tools.stash import stash_pending

if typing.TYPE_CHECKING:
    from gateway.access.chat_users import ChatUser
    from gateway.app import Gateway
    from gateway.cache.stored import StoreCache
    from gateway.config.settings import Settings
    from gateway.mcp import MCPServer

__all__ = [
    "Address",
    "Agent",
    "AgentConfig",
    "AgentObserver",
    "AgentResult",
    "AgentTrace",
    "Ambiguous",
    "Approvers",
    "Artifact",
    "AskfirstError",
    "Attachment",
    "Button",
    "Cache",
    "CacheStats",
    "CancellationToken",
    "ChannelAgent",
    "ChatUser",
    "CoherenceConfig",
    "Confirm",
    "ConversationMemory",
    "Conversations",
    "EntityMemory",
    "FallbackProvider",
    "Gateway",
    "Guardrail",
    "GuardrailVerdict",
    "InMemoryCache",
    "Injected",
    "InjectionGuardrail",
    "Json",
    "KnowledgeGraphMemory",
    "KnowledgeMemory",
    "Label",
    "LengthGuardrail",
    "LoggingObserver",
    "MCPServer",
    "ModelMessage",
    "Money",
    "NotAllowed",
    "NotFound",
    "NothingDone",
    "OutcomeUnknown",
    "PendingAction",
    "PendingConfirmation",
    "PiiGuardrail",
    "Preview",
    "Provider",
    "ProviderError",
    "RateLimited",
    "Reply",
    "Request",
    "Response",
    "Settings",
    "Standing",
    "StopReason",
    "StoreCache",
    "StreamChunk",
    "Tool",
    "ToolConfig",
    "ToolContext",
    "ToolExecutionError",
    "ToolFailed",
    "ToolParameter",
    "ToolPolicy",
    "ToolRegistry",
    "ToolResult",
    "ToolValidationError",
    "TraceStep",
    "Usage",
    "Vetoed",
    "WebhookRequest",
    "WebhookResponse",
    "emit_artifact",
    "image_message",
    "stash_pending",
    "tool",
]

_SERVER = {
    "ChatUser": "gateway.access.chat_users",
    "Gateway": "gateway.app",
    "MCPServer": "gateway.mcp",
    "Settings": "gateway.config.settings",
    "StoreCache": "gateway.cache.stored",
}
"""Names imported on first access.

A tool under test and an agent in a script need no server, store or channel, and few bots have tools of an MCP server.
"""


def __getattr__(name: str) -> object:
    if name not in _SERVER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_SERVER[name]), name)
