"""The lists of a server without invalid definitions.

The library refuses a whole list for a single tool without a name. Here an invalid definition is removed before the
library reads the list.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse
from mcp_types.methods import validate_server_result

from gateway.mcp.text import one_line

log = logging.getLogger("askfirst.mcp")

_METHOD: Final = "tools/list"
MOST_TOOLS: Final = 200
"""The most tools of a server. A page is read up to one more tool: the sign of a longer list."""


@asynccontextmanager
async def sifted(
    transport: AbstractAsyncContextManager[Any], label: str, version: Callable[[], str]
) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the streams of a transport. `version` returns the version of the protocol spoken by both sides."""
    async with transport as (reading, writing, *_):
        yield _Sieve(reading, label, version), writing


class _Sieve:
    """A stream of messages without the wrong definitions in lists of tools."""

    def __init__(self, stream: Any, label: str, version: Callable[[], str]) -> None:
        self._stream, self._label, self._version = stream, label, version

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        left: bool | None = await self._stream.__aexit__(kind, error, trace)
        return left

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return self._sift(await self._stream.__anext__())

    async def receive(self) -> Any:
        return self._sift(await self._stream.receive())

    async def aclose(self) -> None:
        await self._stream.aclose()

    def _sift(self, item: Any) -> Any:
        """Return a message. A list of tools is reduced to the valid tools of the protocol."""
        message = item.message if isinstance(item, SessionMessage) else None
        if not isinstance(message, JSONRPCResponse) or not isinstance(message.result.get("tools"), list):
            return item
        result = {**message.result, "tools": message.result["tools"][: MOST_TOOLS + 1]}
        if not self._is_right(result) and self._is_right({**result, "tools": []}):
            judged = [(each, self._is_right({**result, "tools": [each]})) for each in result["tools"]]
            result["tools"] = [each for each, is_right in judged if is_right]
            log.error(
                "tools of %s are left out, since they have no name or no schema of an object: %s",
                self._label,
                one_line(", ".join(_named(each) for each, is_right in judged if not is_right), 300),
            )
        return replace(item, message=message.model_copy(update={"result": result}))

    def _is_right(self, result: Mapping[str, Any]) -> bool:
        try:
            validate_server_result(_METHOD, self._version(), result)
        except (KeyError, ValueError):  # pydantic's error is a ValueError
            return False
        return True


def _named(tool: Any) -> str:
    name = tool.get("name") if isinstance(tool, Mapping) else None
    return repr(name) if isinstance(name, str) else "no name"
