"""Answers with a schema: the public names of `gateway.structured`."""

from gateway.structured import (
    build_schema_instruction,
    extract_json,
    parse_and_validate,
    schema_from_response_format,
    validation_retry_message,
)

__all__ = [
    "build_schema_instruction",
    "extract_json",
    "parse_and_validate",
    "schema_from_response_format",
    "validation_retry_message",
]
