"""Logs: their lines without secrets, pseudonyms of people, errors without their text, and a limit for repeats."""

from gateway.logs.lines import configure_logging, describe_error, redact
from gateway.logs.people import pseudonyms
from gateway.logs.ratelimit import RateLimitFilter

__all__ = ["RateLimitFilter", "configure_logging", "describe_error", "pseudonyms", "redact"]
