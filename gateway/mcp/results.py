"""The results of calls: the content of a server's answer, as text for the model and as files for the person."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from typing import Any

import mcp_types

from gateway.artifacts import MAX_PER_RUN
from gateway.guards import screen
from gateway.mcp.text import Cleaned, bounded, one_line
from gateway.tools import ToolContext, ToolFailed
from gateway.tools.results import LONGEST


def told(result: mcp_types.CallToolResult, ctx: ToolContext, clean: Cleaned) -> str | None:
    """Return the text of a result, and emit its files. Raises ToolFailed when the server says that the call failed."""
    texts = list(_texts(result.content, ctx))
    if result.structured_content is not None and not _says(texts, result.structured_content):
        texts.append(json.dumps(result.structured_content, ensure_ascii=False))
    text = clean(bounded("\n\n".join(texts), LONGEST - 100))
    if result.is_error:
        raise ToolFailed(screen(text).text or "the server says that it failed, and not why")
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
    """Emit a file, and return a note about it for the model."""
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
    """Return True if a text is the structured result: servers send it in both forms."""
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
