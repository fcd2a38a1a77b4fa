"""Key rotation: a secret with its new and its old value, separated by a comma."""

from __future__ import annotations


def keys(secret: str) -> tuple[str, ...]:
    """Return the values of a secret in order, without empty ones. The first one signs and all of them verify."""
    return tuple(key for part in secret.split(",") if (key := part.strip()))
