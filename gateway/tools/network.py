"""Network errors after which the effect of a request is unknown.

The error classes are known by name, so that no library has to be installed for this. Sources: the exception pages of
aiohttp (client_reference), httpx (exceptions), requests (api#exceptions), urllib3 (reference/urllib3.exceptions).
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["leaves_open"]

_NOT_SENT = frozenset(
    {
        "builtins.ConnectionRefusedError",
        "socket.gaierror",
        "socket.herror",
        "ssl.SSLCertVerificationError",
        "aiohttp.client_exceptions.ClientConnectorError",
        "aiohttp.client_exceptions.ConnectionTimeoutError",
        "aiohttp.client_exceptions.ServerFingerprintMismatch",
        *(
            f"{library}.{name}"
            for library in ("httpx", "httpcore", "httpx2", "httpcore2")
            for name in ("ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol")
        ),
        "requests.exceptions.ConnectTimeout",
        "requests.exceptions.ProxyError",
        "urllib3.exceptions.ClosedPoolError",
        "urllib3.exceptions.ConnectTimeoutError",
        "urllib3.exceptions.EmptyPoolError",
        "urllib3.exceptions.NameResolutionError",
        "urllib3.exceptions.NewConnectionError",
        "urllib3.exceptions.ProxyError",
    }
)
"""Errors without a connection: the request was not sent."""
_OPEN = frozenset(
    {
        "builtins.ConnectionError",
        "builtins.TimeoutError",
        "asyncio.exceptions.CancelledError",
        "asyncio.exceptions.IncompleteReadError",
        "concurrent.futures._base.CancelledError",
        "http.client.BadStatusLine",
        "http.client.IncompleteRead",
        "ssl.SSLError",
        "aiohttp.client_exceptions.ClientConnectionError",
        "aiohttp.client_exceptions.ClientPayloadError",
        *(f"{library}.{name}" for library in ("httpx", "httpx2") for name in ("TransportError", "DecodingError")),
        *(
            f"{library}.{name}"
            for library in ("httpcore", "httpcore2")
            for name in ("NetworkError", "ProtocolError", "TimeoutException")
        ),
        "requests.exceptions.ChunkedEncodingError",
        "requests.exceptions.ContentDecodingError",
        "requests.exceptions.Timeout",
        "urllib3.exceptions.DecodeError",
        "urllib3.exceptions.IncompleteRead",
        "urllib3.exceptions.ProtocolError",
        "urllib3.exceptions.TimeoutError",
    }
)
"""Errors while the request or its answer was in transit."""
_WRAPPERS = {
    "requests.exceptions.ConnectionError": True,
    "requests.exceptions.SSLError": True,
    "urllib3.exceptions.MaxRetryError": False,
    "urllib3.exceptions.SSLError": True,
    "urllib.error.URLError": False,
}
"""Errors that wrap another error, which decides. The value is the answer without an inner error."""


def leaves_open(error: BaseException) -> bool:
    """Return True if the effect of a request is unknown after this error.

    The first known error of the chain decides. The chain is the error itself, the errors that it wraps, its cause, and
    the error that was being handled when it was raised (unless it was raised ``from None``). One open error of a group
    is enough.
    """
    return any(map(_decided, error.exceptions)) if isinstance(error, BaseExceptionGroup) else _decided(error)


def _decided(error: BaseException) -> bool:
    known = False
    for each in _chain(error):
        if isinstance(each, BaseExceptionGroup):
            return leaves_open(each)
        for kind in type(each).__mro__:
            name = f"{kind.__module__}.{kind.__qualname__}"
            if name in _NOT_SENT:
                return False
            if name in _OPEN:
                return True
            if name in _WRAPPERS:
                known = _WRAPPERS[name]
                break
    return known


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and all errors that led to it, the nearest first, each once."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop(0)
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        within = [getattr(each, "reason", None), *each.args]
        left += [one for one in within if isinstance(one, BaseException)]
        left += [each.__cause__, None if each.__suppress_context__ else each.__context__]
