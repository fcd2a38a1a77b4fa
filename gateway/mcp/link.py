"""The connection to a server in one event loop: opened on first use, kept by its own task, opened again after its end.

The scopes of anyio must be entered and left by the same task, so a separate task enters and leaves the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import mcp_types
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.client.subscriptions import ListenNotSupportedError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from gateway.logs import describe_error
from gateway.mcp.sieve import MOST_TOOLS, sifted


@dataclass(slots=True)
class Backoff:
    """Growing pauses: one second after the first failure, doubled after each further failure, a minute at most."""

    failures: int = 0
    until: float = 0.0

    def left(self, now: float) -> float:
        """Return the seconds until the next try; 0 for none."""
        return max(0.0, self.until - now)

    def failed(self, now: float) -> None:
        """Note a failure."""
        self.until = now + min(60.0, 2.0**self.failures)
        self.failures = min(self.failures + 1, 6)

    def worked(self) -> None:
        """Note a success: the next failure counts as the first again."""
        self.failures, self.until = 0, 0.0


log = logging.getLogger("askfirst.mcp")

_FIRST_VERSION = "2025-11-25"
"""The version until both sides have agreed. No list is requested before."""
_MOST_PAGES = 50


class NoConnection(Exception):
    """There is no connection to the server. The text gives the reason."""

    def __init__(self, why: str, *, is_paused: bool = False) -> None:
        super().__init__(why)
        self.is_paused = is_paused
        """True if no try was made, because the last try was a moment ago."""


class _Connection:
    """A connection: opening, open, or at its end."""

    def __init__(self) -> None:
        self.opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.stop = asyncio.Event()
        self.why = "it has not answered yet"
        """The reason of the end."""
        self.version = _FIRST_VERSION
        """The version of the protocol spoken by both sides."""

    def end(self, why: str) -> None:
        """Note that the connection is no longer usable."""
        if not self.stop.is_set():
            self.why = why
            self.stop.set()


class Link:
    """The connections to a server, one after another, and the age of the list of tools."""

    def __init__(
        self, label: str, transport: Callable[[Callable[[str], None]], Any], *, timeout_seconds: float
    ) -> None:
        """`transport` makes a transport of the `mcp` library. Its argument is called at the end of a process."""
        self.label = label
        self.stale = True
        """True if the server's list may differ from the last list over this connection."""
        self.takes_input = False
        """True if the server may want more input for a call, and get the input with a further request."""
        self.listed_at = 0.0
        self._transport, self._timeout_seconds = transport, timeout_seconds
        self._backoff = Backoff()
        self._now: _Connection | None = None
        self._tasks: dict[asyncio.Task[None], _Connection] = {}
        self._why = ""

    @property
    def open(self) -> bool:
        """True while there is a connection."""
        now = self._now
        return now is not None and now.opened.done() and not now.stop.is_set()

    async def client(self) -> Client:
        """Return the client of the connection, opened if need be. Raises NoConnection."""
        now = self._now
        if now is None or now.stop.is_set():
            if (left := self._backoff.left(asyncio.get_running_loop().time())) > 0:
                raise NoConnection(f"{self._why}; it is tried again in {left:.0f} s", is_paused=True)
            self._now, self.stale = (now := _Connection()), True
            task = asyncio.create_task(self._run(now), name=f"connection to {self.label}")
            self._tasks[task] = now
            task.add_done_callback(self._tasks.pop)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await asyncio.shield(now.opened)
        except TimeoutError:
            raise NoConnection("it has not answered in time") from None

    async def tools(self) -> list[mcp_types.Tool]:
        """Return the server's list of tools, page by page. Raises NoConnection."""
        client = await self.client()
        found: list[mcp_types.Tool] = []
        cursor: str | None = None
        seen: set[str] = set()
        self.stale = False  # a change that is told while the list is taken counts
        try:
            async with asyncio.timeout(self._timeout_seconds):
                for _ in range(_MOST_PAGES):
                    params = mcp_types.PaginatedRequestParams(cursor=cursor)
                    page = await client.session.list_tools(params=params)
                    found += page.tools
                    cursor = page.next_cursor
                    if not cursor or cursor in seen or len(found) > MOST_TOOLS:
                        break
                    seen.add(cursor)
        except Exception as error:  # a server and its library may raise anything
            self.stale = True
            why = f"it has not listed its tools: {describe_error(error)}"
            self._backoff.failed(asyncio.get_running_loop().time())
            self.drop(client, why)
            self._why = why
            raise NoConnection(why) from error
        if cursor or len(found) > MOST_TOOLS:
            log.warning(
                "%s lists more than %d tools or %d pages: the rest is left out", self.label, MOST_TOOLS, _MOST_PAGES
            )
        self._backoff.worked()
        self.takes_input = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        self.listed_at = asyncio.get_running_loop().time()
        return found[:MOST_TOOLS]

    def drop(self, client: Client, why: str) -> None:
        """End the connection with this client."""
        for connection in self._tasks.values():
            if connection.opened.done() and not connection.opened.exception() and connection.opened.result() is client:
                connection.end(why)

    async def close(self) -> None:
        """Close the connections."""
        for task, connection in list(self._tasks.items()):
            connection.end("it was closed")
            if not connection.opened.done():
                task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _run(self, connection: _Connection) -> None:
        opened = connection.opened
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(self._timeout_seconds):
                    client = await stack.enter_async_context(self._made(connection))
                connection.version = client.protocol_version
                await stack.enter_async_context(self._listening(client))
                opened.set_result(client)
                await connection.stop.wait()
        except Exception as error:  # noqa: BLE001 - a server and its library may raise anything
            connection.end(_said(_cause(error)))
        finally:
            connection.end("it was closed")
            self._why = connection.why
            if not opened.done():
                self._backoff.failed(asyncio.get_running_loop().time())
                opened.set_exception(NoConnection(connection.why))
                opened.exception()  # there may be nobody left who waits

    def _made(self, connection: _Connection) -> Client:
        return Client(
            sifted(self._transport(connection.end), self.label, lambda: connection.version),
            client_info=mcp_types.Implementation(name="askfirst", version="1"),
            message_handler=self._on_message,
            elicitation_callback=_cancelled,
            read_timeout_seconds=self._timeout_seconds,
            cache=None,
        )

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self.stale = True

    @contextlib.asynccontextmanager
    async def _listening(self, client: Client) -> AsyncIterator[None]:
        """Follow the changes of the list inside the block."""
        tools = client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            yield
            return
        task = asyncio.create_task(self._listen(client))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _listen(self, client: Client) -> None:
        """Subscribe to the changes of the list. Since revision 2026-07-28 a server notifies only subscribers."""
        try:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self.stale = True
        except ListenNotSupportedError:
            return
        except Exception as error:  # noqa: BLE001 - the list is taken now and then instead
            log.debug("%s tells no more changes: %s", self.label, describe_error(error))


async def _cancelled(context: ClientRequestContext, params: Any) -> mcp_types.ElicitResult:
    """Cancel a question of a server in the middle of a call, because no person can be asked then."""
    return mcp_types.ElicitResult(action="cancel")


def _said(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError | PermissionError):
        return "its command cannot be started"
    return "it has not answered in time" if isinstance(error, TimeoutError) else describe_error(error)


def _cause(error: BaseException) -> BaseException:
    """Return the first error of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
