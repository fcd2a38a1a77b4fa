"""The trace of a caller: a proxy or an application that made a request of ours part of its own trace."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

__all__ = ["TRACEPARENT"]

TRACEPARENT: Final[ContextVar[str]] = ContextVar("traceparent", default="")
"""The header ``traceparent`` (W3C Trace Context) of the request that is handled, unchecked; empty without one."""
