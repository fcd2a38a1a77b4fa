"""The hash of the parts of a tool that open questions rely on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from gateway.tools.pending_action import canonical_json

__all__ = ["version_hash"]


def version_hash(name: str, version: str, parameters: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a tool's name, version and parameters, without their descriptions and defaults."""
    relied_on = {"name": name, "version": version, "parameters": _types_only(parameters)}
    return hashlib.sha256(canonical_json(relied_on)).hexdigest()


def _types_only(schema: Any) -> Any:
    """Return a JSON Schema without descriptions, titles, examples and defaults."""
    if isinstance(schema, list):
        return [_types_only(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs") and isinstance(value, dict):
            kept[key] = {name: _types_only(inner) for name, inner in value.items()}
        elif key not in ("description", "title", "default", "examples"):
            kept[key] = _types_only(value)
    return kept
