"""Observation for operators and authors: the live feed of events, and the logs."""

from gateway.observe.feed import Feed, Notice
from gateway.observe.logs import configure_logging, describe_error, redact
from gateway.observe.people import pseudonyms
from gateway.observe.ratelimit import RateLimitFilter

__all__ = ["Feed", "Notice", "RateLimitFilter", "configure_logging", "describe_error", "pseudonyms", "redact"]
