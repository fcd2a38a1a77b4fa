"""Tools whose arguments a JSON Schema describes, not the signature of their function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from channels import Json
from gateway.tools.errors import Problem, ToolValidationError
from gateway.tools.parameters import ToolParameter, schema_of
from gateway.tools.schema_arguments import SchemaArguments
from gateway.tools.tool import Tool

__all__ = ["SchemaTool"]


class SchemaTool(Tool):
    """A tool that `Tool.from_schema` makes. The function gets the arguments by name, as they are in JSON."""

    def __init__(
        self,
        function: Callable[..., Any],
        parameters: Mapping[str, Json] | Sequence[ToolParameter],
        *,
        name: str,
        description: str,
        **options: Any,
    ) -> None:
        """Raises ToolValidationError for a wrong schema, or one that the function does not fit."""
        try:
            self._described: Mapping[str, Any] = (
                parameters if isinstance(parameters, Mapping) else schema_of(parameters)
            )
        except (ValueError, AttributeError) as error:
            raise ToolValidationError(name, Problem("", f"parameters: {error}")) from None
        super().__init__(function, name=name, description=description, **options)

    def _read_arguments(self, metadata: Mapping[str, Mapping[str, Any]], documented: str) -> SchemaArguments:
        if metadata:
            raise self._undefined("param_metadata is for a function's signature", "Describe it in the schema")
        function = self._function
        extra = function.parameters.keys() - set(self._described.get("properties") or {})
        hidden = frozenset(
            {name for name in self._injected if name in function.parameters or function.takes_any}
            | {name for name in extra if self._injector is not None or name not in function.needs}
        )
        arguments = SchemaArguments(self.name, self._described, hidden=hidden)
        unfilled = sorted(function.needs - set(arguments.names) - hidden)
        dropped = sorted(set(arguments.names) - function.parameters.keys())
        if unfilled:
            raise self._undefined(f"the function needs {unfilled}, which are not in its parameters")
        if not function.takes_any and (dropped or arguments.open):
            what = f"take {dropped}" if dropped else "take arguments without a name in the schema"
            raise self._undefined(f"the function does not {what}", "Give it **arguments")
        optional = set(arguments.names) - set(arguments.schema["required"]) - set(arguments.defaults)
        if late := sorted(optional & function.needs):
            raise self._undefined(f"the function needs {late}, which a call may leave out", "Give them a default")
        return arguments
