"""What the vendors' servers refuse in the JSON Schema of an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["fault_of_schema"]

# https://platform.openai.com/docs/guides/structured-outputs#supported-schemas,
# https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations
_REFUSED = {"allOf", "not", "if", "then", "else", "patternProperties", "prefixItems", "oneOf", "minLength", "maxLength"}


def fault_of_schema(schema: Any) -> str | None:
    """Return the first reason why a vendor refuses the schema of an answer; None when it takes it."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "schema must be a JSON Schema of 'type: \"object\"'"
    for each in _parts(schema):
        if refused := sorted(_REFUSED & each.keys()):
            return f"'{refused[0]}' is not permitted"
        if "$ref" in each and len(each) > 1:
            return "'$ref' cannot have keywords beside it"
        if each.get("type") == "object":
            if each.get("additionalProperties") is not False:
                return "'additionalProperties' is required to be supplied and to be false"
            if sorted(each.get("required", [])) != sorted(each.get("properties", {})):
                return "'required' is required to be an array including every key in properties"
    return None


def _parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    several = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", [])]
    for each in [*several, *([schema["items"]] if "items" in schema else [])]:
        yield from _parts(each)
