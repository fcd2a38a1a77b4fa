"""The transport of the vendor's client to the Web API: the process's one HTTP session."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from channels.channel import Ambiguous
from channels.limited_read import read_bounded

__all__ = ["LibrarySession"]

# At DEBUG the library writes every message's text.
logging.getLogger("slack_sdk").setLevel(logging.INFO)

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 30.0
_LONGEST_ANSWER = 16 * 2**20
"""Bytes. The two hundred messages that are looked through at most are well below."""


class LibrarySession:
    """The process's HTTP session as the library uses one, with limits of time and size, and its answers read whole."""

    closed = False

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    @asynccontextmanager
    async def request(
        self, method: str, url: str, *, proxy: str | None = None, ssl: object = None, **arguments: Any
    ) -> AsyncIterator[_Answer]:
        """One HTTP call. The session itself knows the `proxy`, and which hosts are reached without it."""
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS, connect=_CONNECT_SECONDS)
        async with self._http.request(method, url, timeout=timeout, allow_redirects=False, **arguments) as response:
            payload = await read_bounded(response, _LONGEST_ANSWER)
        if payload is None:
            raise Ambiguous("answer_too_large")
        yield _Answer(response.status, response.headers, payload)


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer as the library reads one."""

    status: int
    headers: Mapping[str, str]
    payload: bytes
    content_type: str = "application/json"

    async def json(self) -> dict[str, Any]:
        """What it says; nothing when it is no JSON object."""
        try:
            said = json.loads(self.payload)
        except (ValueError, RecursionError):
            return {}
        return said if isinstance(said, dict) else {}
