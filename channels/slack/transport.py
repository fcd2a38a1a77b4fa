"""The transport of the vendor's library to the Web API: the process's one HTTP session."""

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

# At DEBUG the library logs the text of each message.
logging.getLogger("slack_sdk").setLevel(logging.INFO)

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 30.0
_LONGEST_ANSWER = 16 * 2**20
"""In bytes. An answer holds at most 200 messages (`SlackChannel.look_up`), which are well below this."""


class LibrarySession:
    """Transport of slack_sdk over an aiohttp session, with limits of time and size. Answers are read completely."""

    closed = False

    def __init__(self, http: aiohttp.ClientSession, *, longest_answer: int = _LONGEST_ANSWER) -> None:
        """`longest_answer`: in bytes."""
        self._http, self._longest_answer = http, longest_answer

    @asynccontextmanager
    async def request(
        self, method: str, url: str, *, proxy: str | None = None, ssl: object = None, **arguments: Any
    ) -> AsyncIterator[_Answer]:
        """Make one HTTP call. `proxy` is ignored: the session itself knows the proxy, and the hosts outside of it.

        Raises Ambiguous for an answer that is too large, and aiohttp's errors.
        """
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS, connect=_CONNECT_SECONDS)
        async with self._http.request(method, url, timeout=timeout, allow_redirects=False, **arguments) as response:
            payload = await read_bounded(response, self._longest_answer)
        if payload is None:
            raise Ambiguous("answer_too_large")
        yield _Answer(response.status, response.headers, payload)


@dataclass(frozen=True, slots=True)
class _Answer:
    """An HTTP answer with the interface that the library reads."""

    status: int
    headers: Mapping[str, str]
    payload: bytes
    content_type: str = "application/json"

    async def json(self) -> dict[str, Any]:
        """Return the JSON object of the body, or an empty one when it holds none."""
        try:
            answer = json.loads(self.payload)
        except (ValueError, RecursionError):
            return {}
        return answer if isinstance(answer, dict) else {}
