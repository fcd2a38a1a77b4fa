"""The errors of a call: it certainly had no effect, or its outcome is unknown."""

from __future__ import annotations

import anyio
import mcp_types
from mcp import MCPError

from gateway.logs import describe_error
from gateway.mcp.sending import Sending
from gateway.mcp.text import Cleaned, one_line
from gateway.tools import NothingDone, OutcomeUnknown, ToolError

_REFUSED = frozenset({mcp_types.METHOD_NOT_FOUND, mcp_types.INVALID_PARAMS, mcp_types.URL_ELICITATION_REQUIRED})
"""The codes with which a server refuses a call before it begins."""
_REFUSED_STATUS = frozenset({*range(300, 400), 400, 401, 403, 404, 405, 413, 429})
_LONGEST = 500


def is_closed(error: Exception, sending: Sending) -> bool:
    """Return True if the connection is of no use any more: it has ended, or the server has forgotten it."""
    if isinstance(error, MCPError):
        return error.code == mcp_types.CONNECTION_CLOSED or sending.status == 404
    return isinstance(error, anyio.ClosedResourceError | anyio.BrokenResourceError)


def failure(error: Exception, sending: Sending, label: str, clean: Cleaned) -> ToolError:
    """Return the error of a call as one of those of tools."""
    said = clean(one_line(error.message, _LONGEST)) if isinstance(error, MCPError) else describe_error(error)
    if isinstance(error, TimeoutError):
        said = "it has not answered in time"
    if not sending.begun:
        return NothingDone(f"{label} could not be asked: {said}")
    if sending.status in _REFUSED_STATUS:
        return NothingDone(f"{label} refused the call with HTTP status {sending.status}: {said}")
    if isinstance(error, MCPError) and error.code in _REFUSED:
        return NothingDone(f"{label} refused the call: {said}")
    return OutcomeUnknown(f"the call was sent to {label}, and failed: {said}")
