"""The JSON Schema of an answer in a request: enforced by the vendor where it can, else asked for in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from channels import Json
from gateway.providers.base import Provider, Request, TakesSchemas
from gateway.structured import build_schema_instruction

__all__ = ["asking_for"]


def asking_for(provider: Provider, request: Request, schema: Mapping[str, Json]) -> Request:
    """Return the request with the schema: as its `schema` where the provider enforces it, else as an instruction.

    The instruction stands behind the system prompt, so that the vendor's prompt cache still knows that.
    """
    if isinstance(provider, TakesSchemas) and provider.takes_schema(schema, request.model):
        return replace(request, schema=schema)
    instruction = build_schema_instruction(schema)
    system = f"{request.system}\n\n{instruction}" if request.system else instruction
    return replace(request, system=system, schema=None)
