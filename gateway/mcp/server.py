"""MCPServer: an MCP server among the tools of an agent."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

import mcp_types
from pydantic import Field, SkipValidation

from channels import Json
from gateway.config.clear import refuse_clear
from gateway.config.options import WrongOption, checked
from gateway.logs import describe_error, redact
from gateway.mcp.exchange import exchange
from gateway.mcp.link import Link, NoConnection
from gateway.mcp.results import failure, is_closed, told
from gateway.mcp.tools import MCPTool, made
from gateway.mcp.transports import Process, http_transport, sending
from gateway.tools import NothingDone, Tool, ToolContext, ToolError, ToolPolicy

log = logging.getLogger("askfirst.mcp")

_FIRST_WAIT_SECONDS = 10.0
"""The longest wait for a server before the first turn. A later list comes with a later turn."""
_WAIT_SECONDS = 2.0
"""The longest wait of a turn for a server connected before, or after a failure."""
_FRESH_SECONDS = 60.0
"""The age of a list after which the list is requested again, also from a server with notifications of changes."""
_MOST_STDERR_LINES = 100
"""The most lines of stderr in the log in a minute."""
_PREFIX = re.compile(r"[A-Za-z0-9_-]{0,32}")
_T = TypeVar("_T")
_Unquoted: TypeAlias = Annotated[_T, SkipValidation]
"""An option checked here, because pydantic's errors quote values, and values may hold a secret."""


class MCPServer:
    """The tools of an MCP server, among the tools of an Agent. Each tool asks unless `policy` allows it.

    - `url`: the address of a server with streamable HTTP. `headers` are sent with each request to the server.
    - `command`: the command line of a server that is a process and speaks over standard input and output. `env` is the
      environment of the process, beside HOME, LOGNAME, PATH, SHELL, TERM and USER.
    - `prefix`: the beginning of the names of the tools here, for example ``github_``.
    - `policy`: the tools that run at once, ask or never run, by their names with the prefix. None: all ask.
    - `timeout_seconds`: the limit of one call, of connecting and of listing the tools.

    The server is connected on first use, once in each process, and again after the connection ended.
    """

    @checked
    def __init__(
        self,
        *,
        url: str | None = None,
        command: _Unquoted[Sequence[str] | None] = None,
        env: _Unquoted[Mapping[str, str] | None] = None,
        headers: _Unquoted[Mapping[str, str] | None] = None,
        prefix: str | None = None,
        policy: ToolPolicy | None = None,
        timeout_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 30.0,
    ) -> None:
        """Raises WrongOption for a wrong value, and unless exactly one of `url` and `command` is given.

        Raises MissingSetting for a server in clear on another host that ASKFIRST_CLEAR does not allow.
        """
        _check(url, command, env, headers, prefix)
        refuse_clear("mcp", url or "", "MCPServer(url=)")
        self._url, self._command = url, tuple(command or ())
        self._env, self._headers = dict(env or {}), dict(headers or {})
        self.prefix, self.policy, self.timeout_seconds = prefix or "", policy, timeout_seconds
        self.label = f"MCP server {_name(url, self._command, self.prefix)}"
        self.identity = hashlib.sha256("\0".join(self._command or (url or "",)).encode()).hexdigest()
        given = [*self._env.values(), *self._headers.values()]
        self.clean = redact([*given, *(part for each in given for part in each.split())])
        self._links: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Link] = weakref.WeakKeyDictionary()
        self._refreshing: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[None]] = (
            weakref.WeakKeyDictionary()
        )
        self._tools: tuple[Tool, ...] = ()
        self._defined: tuple[list[mcp_types.Tool], bool] | None = None
        self._stderr_since, self._stderr_lines = 0.0, 0

    def __repr__(self) -> str:
        return f"<{self.label}>"

    def listed(self) -> Sequence[Tool]:
        """Return the tools of the last list: the same object until the list changes."""
        return self._tools

    async def refresh(self) -> None:
        """Bring the list up to date. An unreachable server keeps the last list, with a line in the log."""
        link = self._link()
        if not self._is_old(link):
            return
        first = self._defined is None and asyncio.get_running_loop() not in self._refreshing
        await asyncio.wait({self._refresh(link)}, timeout=_FIRST_WAIT_SECONDS if first else _WAIT_SECONDS)

    async def close(self) -> None:
        """Close the connection of this event loop. A later use opens a new connection."""
        loop = asyncio.get_running_loop()
        if (task := self._refreshing.pop(loop, None)) is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})
        if (link := self._links.pop(loop, None)) is not None:
            await link.close()

    async def lists(self, tool: MCPTool, within_seconds: float | None = None) -> bool:
        """Return False if the server lists the tool no more, or with another definition.

        An unreachable server counts as unchanged.
        """
        link, limit = self._link(), min(self.timeout_seconds, within_seconds or self.timeout_seconds)
        running = self._refreshing.get(asyncio.get_running_loop())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                if running is not None and not running.done():
                    await asyncio.wait({running})  # it may have read the list before a change
                link.stale = True
                await asyncio.wait({self._refresh(link)})
        return self._has(tool)

    async def call(self, tool: MCPTool, arguments: Mapping[str, Json], ctx: ToolContext) -> str | None:
        """Call a tool of the server. Raises NothingDone, OutcomeUnknown and ToolFailed."""
        for again in (True, False):
            link = self._link()
            client = await self._connected(link, tool)
            with sending() as state:
                try:
                    async with asyncio.timeout(self.timeout_seconds):
                        result = await exchange(client, tool.remote_name, arguments, self.clean)
                except ToolError:
                    raise
                except Exception as error:
                    failed = failure(error, state, self.label, self.clean)
                    if is_closed(error, state):
                        link.drop(client, "its connection has ended")
                        if again and isinstance(failed, NothingDone):
                            continue
                    raise failed from error
            return told(result, ctx, self.clean)
        raise AssertionError("the second try ends the loop")

    async def _connected(self, link: Link, tool: MCPTool) -> Any:
        """Return the client of a connection over which this tool was listed unchanged. Raises NothingDone."""
        try:
            async with asyncio.timeout(self.timeout_seconds):
                client = await link.client()
                if link.stale:
                    await asyncio.wait({self._refresh(link)})
        except (NoConnection, TimeoutError) as error:
            said = str(error) or "it has not answered in time"
            raise NothingDone(f"{self.label} cannot be reached: {said}") from error
        if not self._has(tool):
            raise NothingDone(f"{self.label} has changed this tool, so it was not called. Look at its tools again.")
        return client

    def _has(self, tool: MCPTool) -> bool:
        return any(each.name == tool.name and each.version_hash == tool.version_hash for each in self._tools)

    def _link(self) -> Link:
        loop = asyncio.get_running_loop()
        if (link := self._links.get(loop)) is None:
            self._links[loop] = link = Link(self.label, self._transport, timeout_seconds=self.timeout_seconds)
        return link

    def _transport(self, on_end: Callable[[str], None]) -> Any:
        if self._url is not None:
            return http_transport(self._url, self._headers, self.timeout_seconds)
        return Process(self._command, env=self._env, on_stderr=self._on_stderr, on_end=on_end)

    def _is_old(self, link: Link) -> bool:
        age = asyncio.get_running_loop().time() - link.listed_at
        return not link.open or link.stale or age >= _FRESH_SECONDS

    def _refresh(self, link: Link) -> asyncio.Task[None]:
        """Return the task that requests the list. There is a single task at a time, which ends by itself."""
        loop = asyncio.get_running_loop()
        task = self._refreshing.get(loop)
        if task is None or task.done():
            self._refreshing[loop] = task = asyncio.create_task(self._take(link), name=f"list of {self.label}")
        return task

    async def _take(self, link: Link) -> None:
        try:
            defined = (await link.tools(), link.takes_input)
            if defined != self._defined:
                # The library of JSON Schema reads files when it is loaded.
                self._tools = await asyncio.to_thread(made, defined[0], self, takes_input=defined[1])
                self._defined = defined
        except NoConnection as error:
            if error.is_paused:
                return  # it is told already
            log.warning("%s: %s; its tools stay as they were listed last", self.label, error)
        except Exception as error:  # noqa: BLE001 - a server may send anything
            log.error("the tools of %s could not be listed: %s", self.label, describe_error(error))

    def _on_stderr(self, line: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._stderr_since >= 60:
            self._stderr_since, self._stderr_lines = now, 0
        self._stderr_lines += 1
        if self._stderr_lines <= _MOST_STDERR_LINES:
            log.info("%s: %s", self.label, self.clean(line))
        elif self._stderr_lines == _MOST_STDERR_LINES + 1:
            log.warning("%s writes too much to stderr: the rest of this minute is left out", self.label)


def _check(
    url: str | None,
    command: Sequence[str] | None,
    env: Mapping[str, str] | None,
    headers: Mapping[str, str] | None,
    prefix: str | None,
) -> None:
    """Raise WrongOption for options that do not fit together.

    Only the value of `prefix` is named: the other values may hold a secret.
    """
    wrong: dict[str, str] = {}
    if (url is None) == (command is None):
        wrong["url"] = "or command has to be given, and not both"
    if url is not None and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
        wrong["url"] = "should be an address such as https://example.org/mcp"
    if command is not None and not _is_command(command):
        wrong["command"] = 'should be a list of words such as ["uvx", "weather-server"]'
    if env is not None and url is not None:
        wrong["env"] = "is for a command: a server behind a URL has its own environment"
    if headers is not None and command is not None:
        wrong["headers"] = "are for a url: a command gets what it needs by env"
    for name, texts in (("env", env), ("headers", headers)):
        if texts is not None and not _are_texts(texts):
            wrong[name] = "should be a mapping of texts to texts"
    if prefix is not None and not _PREFIX.fullmatch(prefix):
        wrong["prefix"] = f"should be at most 32 letters, digits, _ or -, not {prefix[:40]!r}"
    if wrong:
        raise WrongOption("MCPServer", wrong)


def _is_command(command: object) -> bool:
    words = command if isinstance(command, Sequence) and not isinstance(command, str | bytes) else ()
    return bool(words) and all(isinstance(word, str) for word in words) and bool(words[0])


def _are_texts(texts: object) -> bool:
    return isinstance(texts, Mapping) and all(isinstance(each, str) for each in (*texts, *texts.values()))


def _name(url: str | None, command: Sequence[str], prefix: str) -> str:
    """Return the name of a server in logs and lists: without address and arguments, because both may hold a secret."""
    if named := prefix.strip("_-"):
        return named
    return urlsplit(url).netloc.rpartition("@")[2] if url is not None else PurePath(command[0]).name
