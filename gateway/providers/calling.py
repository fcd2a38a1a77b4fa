"""Helpers for calls to the APIs of all vendors: connections, and the arguments of a tool call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from gateway.providers.base import ToolCall

__all__ = ["Connections", "fault_of", "no_constant", "tool_call"]


class _Closes(Protocol):
    async def close(self) -> None: ...


Client = TypeVar("Client", bound=_Closes)


class Connections(Generic[Client]):
    """A holder of a vendor's client for the running loop: connections of another loop (see `run_sync`) are dead."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._connecting: tuple[asyncio.AbstractEventLoop, asyncio.Future[Client]] | None = None

    async def client(self) -> Client:
        loop = asyncio.get_running_loop()
        if self._connecting is None or self._connecting[0] is not loop:
            # In a thread, because the vendors' libraries read all certificates of the system.
            self._connecting = loop, asyncio.ensure_future(asyncio.to_thread(self._connect))
        return await asyncio.shield(self._connecting[1])

    async def close(self) -> None:
        """Close the connections. The next call of `client` opens new ones."""
        connecting, self._connecting = self._connecting, None
        if connecting and connecting[0] is asyncio.get_running_loop():
            await (await connecting[1]).close()


def tool_call(call_id: str, name: str, arguments: str) -> ToolCall:
    """Return a call with arguments from JSON text. An empty text means no arguments."""
    try:
        args = json.loads(arguments or "{}", parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        return ToolCall(call_id=call_id, name=name, parse_error=fault_of(error))
    if isinstance(args, dict):
        return ToolCall(call_id=call_id, name=name, args=args)
    return ToolCall(call_id=call_id, name=name, parse_error="not a JSON object")


def fault_of(error: Exception) -> str:
    """Return the `parse_error` of a call whose text a JSON decoder refused."""
    where = f"line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
    return f"not valid JSON: {where}"


def no_constant(name: str) -> None:
    """Refuse NaN and the infinities, as a decoder's `parse_constant`. Raises ValueError."""
    raise ValueError(f"{name} is not a JSON value")
