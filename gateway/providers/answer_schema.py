"""The JSON Schema of an answer: in the form enforced by vendors, and in a request.

Vendors enforce shapes only, with every property required and further properties forbidden. Source of the rules:
https://platform.openai.com/docs/guides/structured-outputs#supported-schemas and
https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations. The gateway validates
each answer itself. A constraint not enforced by a vendor therefore only stands in a description.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from channels import Json
from gateway.providers.base import Provider, Request, TakesSchemas
from gateway.structured import build_schema_instruction

_KEPT: Final = frozenset({"type", "enum", "const", "title", "description", "$ref"})
_DROPPED: Final = frozenset({"default", "examples", "discriminator", "$schema", "$id", "$comment", "deprecated"})
_NOTED: Final = frozenset(
    {
        *("minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
    }
)
"""The constraints moved into a description."""
_DEEPEST: Final = 10


class _NotStrict(Exception):
    """The schema has no form in the vendors' subset."""


def strict_schema(schema: Mapping[str, Json]) -> dict[str, Any] | None:
    """Return the schema in the form enforced by both vendors; None if enforcement is impossible.

    Vendors cannot enforce: an answer other than an object, free names of properties, optional properties neither
    nullable nor with a default, a recursive schema, and the keywords for combined schemas other than ``anyOf``.
    """
    definitions = schema.get("$defs", {})
    if schema.get("type") != "object" or not isinstance(definitions, Mapping):
        return None
    try:
        _check_nesting(dict(schema), definitions, ())
        strict: dict[str, Any] = _strict({name: value for name, value in schema.items() if name != "$defs"}, 0)
        if definitions:
            strict["$defs"] = {name: _strict(each, 0) for name, each in definitions.items()}
    except _NotStrict:
        return None
    return strict


def _strict(schema: Json, depth: int) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        raise _NotStrict
    if isinstance(schema.get("$ref"), str):
        return {"$ref": schema["$ref"]}  # beside it no other keyword may stand
    made: dict[str, Any] = {}
    noted: dict[str, Json] = {}
    for name, value in schema.items():
        match name:
            case "properties" | "required" | "additionalProperties":
                continue
            case "items":
                made["items"] = _strict(value, depth + 1)
            case "anyOf" | "oneOf" if isinstance(value, list) and depth:
                made["anyOf"] = [_strict(each, depth) for each in value]
            case _ if name in _KEPT:
                made[name] = value
            case _ if name in _NOTED:
                noted[name] = value
            case _ if name not in _DROPPED:
                raise _NotStrict
    if schema.get("type") == "object":
        made |= _object(schema, depth)
    if noted:
        made["description"] = f"{made.get('description', '')} {json.dumps(noted, ensure_ascii=False)}".strip()
    return made


def _object(schema: Mapping[str, Json], depth: int) -> dict[str, Any]:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        raise _NotStrict
    if schema.get("additionalProperties", False) is not False or not properties:
        raise _NotStrict
    for name, each in properties.items():
        if name not in required and not _may_be_given(each):
            raise _NotStrict
    strict = {name: _strict(each, depth + 1) for name, each in properties.items()}
    return {"properties": strict, "required": list(properties), "additionalProperties": False}


def _may_be_given(schema: Json) -> bool:
    """Return True if an optional property can always have a value: null, or a value like the default."""
    if not isinstance(schema, Mapping):
        return False
    choices = schema.get("anyOf", [])
    kinds = [schema.get("type"), *(each.get("type") for each in _list(choices) if isinstance(each, Mapping))]
    return "default" in schema or any(kind == "null" or "null" in _list(kind) for kind in kinds)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _check_nesting(schema: Json, definitions: Mapping[str, Json], path: tuple[str, ...]) -> None:
    """Follow each reference. Raises _NotStrict for a reference back to itself, or out of the schema."""
    waiting = [schema]
    while waiting:
        match waiting.pop():
            case dict() as each:
                reference = each.get("$ref")
                if isinstance(reference, str):
                    name = reference.removeprefix("#/$defs/")
                    if name not in definitions or name in path or len(path) > _DEEPEST:
                        raise _NotStrict
                    _check_nesting(definitions[name], definitions, (*path, name))
                waiting += [value for key, value in each.items() if key != "$defs"]
            case list() as several:
                waiting += several


def asking_for(provider: Provider, request: Request, schema: Mapping[str, Json]) -> Request:
    """Return the request with the schema: as `schema` where the provider enforces the schema, else as an instruction.

    The instruction stands behind the system prompt, to keep the system prompt in the vendor's prompt cache.
    """
    if isinstance(provider, TakesSchemas) and provider.takes_schema(schema, request.model):
        return replace(request, schema=schema)
    instruction = build_schema_instruction(schema)
    system = f"{request.system}\n\n{instruction}" if request.system else instruction
    return replace(request, system=system, schema=None)
