"""How a channel that breaks a promise says which, and which test must see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from channels import Channel, Parsed

C = TypeVar("C", bound=type[Channel])
Test = Callable[..., Any]

DEFECTS: dict[type[Channel], tuple[str, str]] = {}
"""Channel -> the test that must fail on it, and how what it fails with begins."""


def seen_by(test: Test, error: type[BaseException] | None = None) -> Callable[[C], C]:
    """The test of the contract that must fail. `error`: what it lets through, where it is the channel that raises."""

    def note(channel: C) -> C:
        DEFECTS[channel] = (test.__name__, error.__name__ if error else "AssertionError|assert|Failed")
        return channel

    return note


def every_event(parsed: Parsed, **fields: Any) -> Parsed:
    return replace(parsed, events=tuple(replace(event, **fields) for event in parsed.events))
