"""A secret that is being changed: the new one and the old one, with a comma between."""

from __future__ import annotations

__all__ = ["keys"]


def keys(secret: str) -> tuple[str, ...]:
    """Return the values in order, without empty ones: the first signs, all verify."""
    return tuple(key for part in secret.split(",") if (key := part.strip()))
