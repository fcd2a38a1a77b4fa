"""Checks of a bot's options, with the allowed values in the errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, validate_call
from pydantic_core import ErrorDetails

from channels import AskfirstError

_P = ParamSpec("_P")
_R = TypeVar("_R")
_SHOULD_BE = "Input should be "
_SEQUENCE = "an instance of Sequence"
_LONGEST = 60
"""Maximum number of characters of a value in an error."""


class WrongOption(AskfirstError, ValueError):
    """Options of `owner`, a class of Askfirst, have unknown names or wrong values.

    `issues` maps each option to a sentence with the fault and the allowed values.
    """

    def __init__(self, owner: str, issues: Mapping[str, str]) -> None:
        super().__init__(f"{owner}: " + "; ".join(f"{option} {issue}" for option, issue in issues.items()))
        self.owner, self.issues = owner, dict(issues)


class Options(BaseModel):
    """Named options, frozen. An unknown name or a wrong value raises WrongOption."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    if not TYPE_CHECKING:  # type checkers read the fields from the class

        def __init__(self, **values: object) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                issues = wrong_options(error, list(type(self).model_fields))
            else:
                return
            raise WrongOption(type(self).__name__, issues)


def checked(init: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate an ``__init__`` to check the arguments against the annotations. Wrong arguments raise WrongOption."""
    owner = init.__qualname__.partition(".")[0]
    names = list(inspect.signature(init).parameters)
    validated = validate_call(config=ConfigDict(strict=True, arbitrary_types_allowed=True))(init)

    @wraps(init)
    def with_checks(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return validated(*args, **kwargs)
        except ValidationError as error:
            issues = wrong_options(error, names)
        raise WrongOption(owner, issues)

    return with_checks


def wrong_options(error: ValidationError, known: Sequence[str]) -> dict[str, str]:
    """Return the issue of each option refused by pydantic. `known`: the names of all options."""
    found: dict[str, list[ErrorDetails]] = {}
    for each in error.errors(include_url=False, include_context=False):
        found.setdefault(_path(each["loc"], known), []).append(each)
    return {option: _issue(option, errors, known) for option, errors in found.items()}


def _path(loc: tuple[int | str, ...], known: Sequence[str]) -> str:
    """Return the name of the refused option or item. A positional argument gets the name of the parameter."""
    first, *rest = loc or ("options",)
    if isinstance(first, int):
        first = known[first] if first < len(known) else f"argument {first}"
    return f"{first}[{rest[0]}]" if rest and isinstance(rest[0], int) else first


def _issue(option: str, errors: Sequence[ErrorDetails], known: Iterable[str]) -> str:
    kind, value = errors[0]["type"], errors[0]["input"]
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return _no_option(option, known)
    if kind == "unexpected_positional_argument":
        return "has to be given by its name"
    if kind.startswith("missing"):
        return "is missing"
    said = [each["msg"] for each in errors]  # a value that fits none of several types has one message per type
    wants = [text.removeprefix(_SHOULD_BE) for text in said if text.startswith(_SHOULD_BE)]
    if not wants:
        return f"is not allowed ({said[0]}): {_shown(value)}"
    return f"should be {' or '.join(dict.fromkeys(wants)).replace(_SEQUENCE, 'a list')}, not {_shown(value)}"


def _no_option(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches  # imported only on an error, to keep the start fast

    known = sorted(set(known) - {"self"})
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"is no option: did you mean {near[0]}?" if near else f"is no option; there are {', '.join(known)}"


def _shown(value: object) -> str:
    """Return a plain value, truncated. For any other value, return only the type: the value may contain a secret."""
    if value is None or isinstance(value, (bool, int, float, str)):
        text = repr(value)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return f"a value of type {type(value).__name__}"
