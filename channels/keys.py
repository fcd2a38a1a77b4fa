"""Key rotation: the new and the old value of a secret, separated by a comma."""

from __future__ import annotations


def keys(secret: str) -> tuple[str, ...]:
    """Return the values of a secret in order, without empty values. The first value signs and all values verify."""
    return tuple(key for part in secret.split(",") if (key := part.strip()))
