"""What calls to every vendor's API have in common: connections, the wait a server asks for, a tool call's arguments."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Generic, Protocol, TypeVar
from urllib.parse import urlsplit

from gateway.providers.base import ProviderConfigurationError, ToolCall

__all__ = ["Connections", "base_url_and_key", "retry_after_seconds", "tool_call"]


class _Closes(Protocol):
    async def close(self) -> None: ...


Client = TypeVar("Client", bound=_Closes)


class Connections(Generic[Client]):
    """A vendor's client for the running loop: the connections of another loop (`run_sync` ends its own) are dead."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._connecting: tuple[asyncio.AbstractEventLoop, asyncio.Future[Client]] | None = None

    async def client(self) -> Client:
        loop = asyncio.get_running_loop()
        if self._connecting is None or self._connecting[0] is not loop:
            # In a thread: the vendors' libraries read all certificates of the system.
            self._connecting = loop, asyncio.ensure_future(asyncio.to_thread(self._connect))
        return await asyncio.shield(self._connecting[1])

    async def close(self) -> None:
        """Close them; the next call for a client opens new ones."""
        connecting, self._connecting = self._connecting, None
        if connecting and connecting[0] is asyncio.get_running_loop():
            await (await connecting[1]).close()


def base_url_and_key(vendor: str, vendor_url: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Of ``{VENDOR}_BASE_URL`` and ``{VENDOR}_API_KEY``; a server that is not the vendor's own may do without a key.

    Raises ProviderConfigurationError.
    """
    url_variable, key_variable = f"{vendor.upper()}_BASE_URL", f"{vendor.upper()}_API_KEY"
    base_url = environ.get(url_variable, "").strip() or vendor_url
    key = environ.get(key_variable, "").strip()
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ProviderConfigurationError(vendor, f"{url_variable} is not an http or https URL", env_var=url_variable)
    if not key and parts.hostname == urlsplit(vendor_url).hostname:
        raise ProviderConfigurationError(
            vendor, f"{key_variable} is not set; set it, or use the offline provider: demo", env_var=key_variable
        )
    return base_url, key or "none"


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Retry-After (RFC 9110, 10.2.3): seconds, or a date, which is counted from the answer's own Date."""
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,6}(\.\d+)?", value):
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - parsedate_to_datetime(headers["date"])).total_seconds())
    except (ValueError, TypeError, KeyError):
        return None


def tool_call(call_id: str, name: str, arguments: str) -> ToolCall:
    """A call whose arguments came as JSON text; no text at all is no arguments."""
    try:
        args = json.loads(arguments or "{}", parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        reason = f"line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
        return ToolCall(call_id=call_id, name=name, parse_error=f"not valid JSON: {reason}")
    if isinstance(args, dict):
        return ToolCall(call_id=call_id, name=name, args=args)
    return ToolCall(call_id=call_id, name=name, parse_error="not a JSON object")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")
