"""The results of calls, as text for the model and as files for the person, and the errors of calls."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from typing import Any

import anyio
import mcp_types
from mcp import MCPError

from gateway.artifacts import MAX_PER_RUN
from gateway.guards import QUICK, screen
from gateway.logs import describe_error
from gateway.mcp.text import Cleaned, bounded, one_line
from gateway.mcp.transports import Sending
from gateway.tools import NothingDone, OutcomeUnknown, ToolContext, ToolError, ToolFailed
from gateway.tools.results import LONGEST


def told(result: mcp_types.CallToolResult, ctx: ToolContext, clean: Cleaned) -> str | None:
    """Return the text of a result, and emit the files. Raises ToolFailed if the server reports a failure."""
    texts = list(_texts(result.content, ctx))
    if result.structured_content is not None and not _says(texts, result.structured_content):
        texts.append(json.dumps(result.structured_content, ensure_ascii=False))
    text = clean(bounded("\n\n".join(texts), LONGEST - 100))
    if result.is_error:
        raise ToolFailed(screen(bounded(text, QUICK)).text or "the server says that it failed, and not why")
    return text or None


def _texts(content: Sequence[Any], ctx: ToolContext) -> Iterator[str]:
    files = 0
    for block in content:
        match block:
            case mcp_types.TextContent():
                yield block.text
            case mcp_types.ResourceLink():
                yield f"{one_line(block.name, 200)}: {one_line(str(block.uri), 2_000)}"
            case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents() as resource):
                yield resource.text
            case mcp_types.ImageContent() | mcp_types.AudioContent():
                yield _emitted(block.data, block.mime_type, "", ctx, files)
                files += 1
            case mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents() as resource):
                name = str(resource.uri).rstrip("/").rpartition("/")[2]
                yield _emitted(resource.blob, resource.mime_type, name, ctx, files)
                files += 1
            case _:
                yield "(a kind of content that is not supported)"


def _emitted(data: str, mime_type: str | None, name: str, ctx: ToolContext, files: int) -> str:
    """Emit a file, and return a note about the file for the model."""
    kind = one_line(mime_type or "application/octet-stream", 100)
    if files >= MAX_PER_RUN:
        return f"(a file of type {kind} is left out: at most {MAX_PER_RUN} of one call)"
    try:
        content = base64.b64decode(data, validate=True)
        artifact = ctx.emit_artifact(content=content, mime_type=kind, filename=one_line(name, 100) or None)
    except binascii.Error:
        return f"(a file of type {kind} is left out: it is not base64)"
    except ValueError as error:
        return f"(a file of type {kind} is left out: {error})"
    return f"(a file of type {artifact.mime_type or kind}, {len(content)} bytes, is sent to the person)"


def _says(texts: Sequence[str], structured: Any) -> bool:
    """Return True if a text is the structured result: servers send both forms."""
    inner = structured.get("result") if isinstance(structured, dict) and len(structured) == 1 else None
    for text in texts:
        if text == inner:
            return True
        try:
            read = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if read == structured or (inner is not None and read == inner):
            return True
    return False


_REFUSED = frozenset({mcp_types.METHOD_NOT_FOUND, mcp_types.INVALID_PARAMS, mcp_types.URL_ELICITATION_REQUIRED})
"""The codes for a server's refusal of a call before the begin of the call."""
_REFUSED_STATUS = frozenset({*range(300, 400), 400, 401, 403, 404, 405, 413, 429})
_LONGEST = 500


def is_closed(error: Exception, sending: Sending) -> bool:
    """Return True if the connection is no longer usable: ended, or forgotten by the server."""
    if isinstance(error, MCPError):
        return error.code == mcp_types.CONNECTION_CLOSED or sending.status == 404
    return isinstance(error, anyio.ClosedResourceError | anyio.BrokenResourceError)


def failure(error: Exception, sending: Sending, label: str, clean: Cleaned) -> ToolError:
    """Return the error of a call as an error of tools."""
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
