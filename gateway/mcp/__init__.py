"""MCP servers as sources of tools: https://modelcontextprotocol.io. No other room of the gateway imports `mcp`."""

try:
    from gateway.mcp.server import MCPServer
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
        raise
    raise ImportError("MCPServer needs the package mcp, which is not installed: pip install 'askfirst[mcp]'") from error

__all__ = ["MCPServer"]
