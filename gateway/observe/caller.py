"""The trace of a caller: a proxy or an application with a trace around a request to the gateway."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

TRACEPARENT: Final[ContextVar[str]] = ContextVar("traceparent", default="")
"""The header ``traceparent`` (W3C Trace Context) of the current request, unchecked. Empty without the header."""
