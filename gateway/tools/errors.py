"""The errors of tools, and the network errors that leave the effect of a request unknown.

AskfirstError
└── ToolError                   `tool_name` names the tool
    ├── ToolValidationError     a definition, or a model's arguments, are invalid; the function did not run
    ├── ToolExecutionError      the function raised; the cause is chained
    ├── ToolFailed              the function failed, with a text for the model
    ├── NothingDone             the call certainly had no effect
    │   └── ToolBusy            an unfinished call holds the lock
    └── OutcomeUnknown          the call may or may not have had an effect
        └── ToolTimeout         the call did not end in time
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from channels import AskfirstError
from gateway.logs import describe_error


class ToolError(AskfirstError):
    """The base of the errors of a tool. The text is for the model and the author, never for the person in the chat."""

    tool_name: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem with one parameter. `parameter` is empty for a problem of the whole tool."""

    parameter: str
    issue: str
    suggestion: str = ""

    def __str__(self) -> str:
        text = f"{self.parameter}: {self.issue}" if self.parameter else self.issue
        return f"{text}. {self.suggestion}" if self.suggestion else text


class ToolValidationError(ToolError):
    """A tool's definition, or the arguments of a call, are invalid. The function did not run."""

    def __init__(self, tool_name: str, *problems: Problem, expected: str = "") -> None:
        text = f"Tool {tool_name!r}: " + "; ".join(map(str, problems))
        super().__init__(f"{text} (expected: {expected})" if expected else text)
        self.tool_name, self.problems, self.expected = tool_name, problems, expected


class ToolExecutionError(ToolError):
    """The tool's function raised `error`, chained as the cause.

    The text names the type of `error` and the place of the raise. The text of `error` is left out: it may hold a secret
    or a person's words, and the model's vendor reads the result.
    """

    def __init__(self, tool_name: str, error: BaseException) -> None:
        super().__init__(f"Error executing tool {tool_name!r}: {describe_error(error)}")
        self.tool_name, self.error = tool_name, error


class ToolFailed(ToolError):
    """Raised by a failed tool. The model gets `text`; for any other error, only the type and the place.

    `person`: the reason for the person who confirmed the call, in the person's language. Quoted, at most 300
    characters.
    """

    def __init__(self, text: str, *, person: str | None = None) -> None:
        super().__init__(text)
        self.person = person


def cause_of(error: BaseException) -> BaseException:
    """Return the error raised by the tool's function."""
    return error.error if isinstance(error, ToolExecutionError) else error


class NothingDone(ToolError):
    """Raised by a tool if the call certainly had no effect."""


class ToolBusy(NothingDone):
    """The tool did not run: an earlier call in a thread, past the timeout, still holds the lock `key`."""

    def __init__(self, tool_name: str, key: str) -> None:
        super().__init__(f"Tool {tool_name!r} did not run: a call that has not ended in time holds {key!r}")
        self.tool_name, self.key = tool_name, key


class OutcomeUnknown(ToolError):
    """Raised by a tool if the call may or may not have had an effect."""


class ToolTimeout(OutcomeUnknown):
    """The tool did not end in time. The call was cancelled, but a function in a thread may still be running."""

    def __init__(self, tool_name: str, seconds: float) -> None:
        super().__init__(f"Tool {tool_name!r} timed out after {seconds:g} seconds")
        self.tool_name, self.seconds = tool_name, seconds


# The error classes are known by name, so that no library has to be installed for this. Sources: the exception pages of
# aiohttp (client_reference), httpx (exceptions), requests (api#exceptions), urllib3 (reference/urllib3.exceptions).
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
"""Errors while the request or the answer was in transit."""
_WRAPPERS = {
    "requests.exceptions.ConnectionError": True,
    "requests.exceptions.SSLError": True,
    "urllib3.exceptions.MaxRetryError": False,
    "urllib3.exceptions.SSLError": True,
    "urllib.error.URLError": False,
}
"""Errors around an inner, deciding error. The value is the answer without an inner error."""


def leaves_open(error: BaseException) -> bool:
    """Return True if the effect of a request is unknown after this error.

    The first known error of the chain decides. The chain is the error itself, the wrapped errors, the cause, and the
    error that was handled when it was raised (unless raised ``from None``). A single open error of a group is enough.
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
    """Yield the error and all errors behind it, the nearest first, each once."""
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
