"""The register of defective channels: each names the contract test that must fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from channels import Channel, Parsed

C = TypeVar("C", bound=type[Channel])
Test = Callable[..., Any]

DEFECTS: dict[type[Channel], tuple[str, str]] = {}
"""Channel -> the test that must fail, and the beginning of its failure."""


def seen_by(test: Test, error: type[BaseException] | None = None) -> Callable[[C], C]:
    """Note the contract test that must fail. `error`: the channel's own error; None: a failed assertion."""

    def note(channel: C) -> C:
        DEFECTS[channel] = (test.__name__, error.__name__ if error else "AssertionError|assert|Failed")
        return channel

    return note


def every_event(parsed: Parsed, **fields: Any) -> Parsed:
    return replace(parsed, events=tuple(replace(event, **fields) for event in parsed.events))
