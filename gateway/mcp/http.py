"""Servers behind a URL: streamable HTTP, by the library, over a client that observes requests and bounds answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from gateway.mcp.sending import LARGEST, begun, refused_with

# They log addresses, which may hold a secret, and what a server has said.
logging.getLogger("httpx2").setLevel(logging.WARNING)
logging.getLogger("mcp").setLevel(logging.CRITICAL)


@contextlib.asynccontextmanager
async def http_transport(url: str, headers: Mapping[str, str], timeout_seconds: float) -> AsyncIterator[Any]:
    """Yield the streams of a connection to this URL. The first message is the first request."""
    client = await asyncio.to_thread(  # it reads the certificates of the machine
        httpx2.AsyncClient,
        headers={**headers, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(timeout_seconds, read=None),
        event_hooks={"request": [_observe], "response": [_bound]},
    )
    async with client, streamable_http_client(url, http_client=client, max_sse_event_size=LARGEST) as streams:
        yield streams


async def _observe(request: httpx2.Request) -> None:
    async def trace(event: str, _: Mapping[str, Any]) -> None:
        if event.endswith(".send_request_headers.started"):
            begun()

    request.extensions = {**request.extensions, "trace": trace}


async def _bound(response: httpx2.Response) -> None:
    refused_with(response.status_code)
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.DecodingError("it sent compressed data, which was not asked for", request=response.request)
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _Bounded(response.stream)


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = LARGEST
        async for chunk in self._stream:
            left -= len(chunk)
            if left < 0:
                raise httpx2.ReadError(f"it sent more than {LARGEST} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
