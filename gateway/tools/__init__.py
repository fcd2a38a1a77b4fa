"""Tools: functions for a model to call, with checks, previews, policy and execution."""

from gateway.tools.arguments import Injected
from gateway.tools.confirm import Approvers, Confirm, Preview, Standing
from gateway.tools.context import ToolContext
from gateway.tools.errors import (
    NothingDone,
    OutcomeUnknown,
    Problem,
    ToolBusy,
    ToolError,
    ToolExecutionError,
    ToolFailed,
    ToolTimeout,
    ToolValidationError,
    cause_of,
    leaves_open,
)
from gateway.tools.layout import Label, Money
from gateway.tools.pending_action import PendingAction, compute_args_digest
from gateway.tools.policy import ToolPolicy
from gateway.tools.registry import (
    Governed,
    Permission,
    ToolRegistry,
    ToolSource,
    permission,
    permissions,
    unasked,
    unclear,
)
from gateway.tools.results import Ambiguous, NotFound, PendingConfirmation, RateLimited, ToolResult, serialise
from gateway.tools.schema_arguments import ToolParameter
from gateway.tools.tool import Tool, tool

__all__ = [
    "Ambiguous",
    "Approvers",
    "Confirm",
    "Governed",
    "Injected",
    "Label",
    "Money",
    "NotFound",
    "NothingDone",
    "OutcomeUnknown",
    "PendingAction",
    "PendingConfirmation",
    "Permission",
    "Preview",
    "Problem",
    "RateLimited",
    "Standing",
    "Tool",
    "ToolBusy",
    "ToolContext",
    "ToolError",
    "ToolExecutionError",
    "ToolFailed",
    "ToolParameter",
    "ToolPolicy",
    "ToolRegistry",
    "ToolResult",
    "ToolSource",
    "ToolTimeout",
    "ToolValidationError",
    "cause_of",
    "compute_args_digest",
    "leaves_open",
    "permission",
    "permissions",
    "serialise",
    "tool",
    "unasked",
    "unclear",
]
