"""JSON Schemas: whether one is well-formed, and the faults that a value has by it. Nothing is ever fetched."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft202012Validator, validator_for
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from channels import Json

__all__ = ["checked", "faults"]


def checked(schema: Mapping[str, Json]) -> dict[str, Json]:
    """Return the schema as a dict.

    Raises ValueError for one that is no JSON Schema, or whose ``$ref`` leads nowhere or back to itself.
    """
    schema = dict(schema)
    try:
        json.dumps(schema, allow_nan=False)
        validator_for(schema, Draft202012Validator).check_schema(schema)
        _follow_references(schema)
    except SchemaError as error:
        raise ValueError(f"it is no JSON Schema: {_place(error.path)}{error.message}") from None
    except Unresolvable as error:
        raise ValueError(f"it has a $ref that leads nowhere: {error.ref}") from None
    except RecursionError:
        raise ValueError("it has a $ref that leads back to itself") from None
    except TypeError as error:
        raise ValueError(f"it is no JSON: {error}") from None
    return schema


def faults(schema: Mapping[str, Json], value: Json) -> list[str]:
    """Return what does not fit in a value, by a schema that was checked; empty if all fits."""
    validator = validator_for(schema, Draft202012Validator)(dict(schema), registry=Registry())
    try:
        return [f"{_place(each.absolute_path)}{each.message}" for each in validator.iter_errors(value)]
    except RecursionError:
        return ["the value is nested too deeply"]
    except Unresolvable as error:  # relative to an inner $id
        return [f"the schema has a $ref that leads nowhere: {error.ref}"]


def _place(path: Iterable[Any]) -> str:
    """Return the path of a value as a beginning of its fault, such as ``items[0].price: ``."""
    said = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
    return f"{said}: " if said else ""


def _follow_references(schema: dict[str, Json]) -> None:
    """Follow each ``$ref``. Raises Unresolvable and RecursionError."""
    resource = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = Registry().with_resource("", resource).resolver()
    waiting: list[Json] = [schema]
    while waiting:
        match waiting.pop():
            case dict() as each:
                if isinstance(reference := each.get("$ref"), str):
                    resolver.lookup(reference)
                waiting += each.values()
            case list() as several:
                waiting += several
    validator_for(schema, Draft202012Validator)(schema, registry=Registry()).is_valid({})
