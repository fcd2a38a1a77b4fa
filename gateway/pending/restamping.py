"""Sealing the bodies that an older release left in a store: once, when no process of that release can still write."""

from __future__ import annotations

from functools import partial

from channels import Json
from gateway.pending.seal import Keyring, step_context
from gateway.store.codec import micros
from gateway.store.embedded import Rewriting, Stored

__all__ = ["restamping"]


def restamping(keyring: Keyring) -> Rewriting:
    """Return a function that seals each body without a seal, and leaves every other body as it is."""
    return partial(_restamped, keyring)


def _restamped(keyring: Keyring, stored: Stored) -> Json:
    body = stored.body
    if stored.kind == "steps":
        return _chained(keyring, stored.conversation, body) if isinstance(body, list) else body
    if not isinstance(body, dict) or "mac" in body:
        return body
    more: dict[str, Json] = {}
    if stored.stamp is not None:
        more["received"] = micros(stored.stamp)
    if stored.kind == "event" and stored.is_dead:
        more["replayed"] = True
    return keyring.stamped(stored.kind, stored.conversation, {**body, **more})


def _chained(keyring: Keyring, conversation: str, steps: list[Json]) -> Json:
    chain: list[Json] = []
    last_mac = ""
    for step in steps:
        if not isinstance(step, dict) or "mac" in step:
            return steps
        sealed = keyring.stamped("step", step_context(conversation, last_mac), step)
        last_mac = str(sealed["mac"])
        chain.append(sealed)
    return chain
