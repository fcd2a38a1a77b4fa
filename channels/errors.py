"""The base of the errors. Makes every error survive pickling and copying.

Python rebuilds an error by a call of its class with `args`. The call fails for an ``__init__`` with other parameters,
as in most of ours. A Portable error is rebuilt without a call of ``__init__``, with its arguments, attributes and
notes. The cause, the context and the traceback are left out, as in every pickled exception of Python.

A value of an error may not survive pickling by itself, for example the error of another library or a lock. The pickling
of the error then still succeeds. An attribute becomes the name of the value's type, because the value may hold a
secret. An argument becomes its text, already a part of the error's text. The same rule applies to a load of the pickle
in a process without the other library. `copy.copy` keeps all values as before.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


class Portable(Exception):
    """An exception that survives pickling and copying, for any parameters of ``__init__``."""

    def __reduce__(self) -> tuple[Any, ...]:
        state = self.__getstate__()  # with slots, as in the errors of telegram, a pair of mappings
        attributes: dict[str, Any] = {}
        for part in state if isinstance(state, tuple) else (state,):
            attributes |= part or {}
        args = [_Carried(value, str) for value in self.args]
        return _rebuilt, (type(self), args, {name: _Carried(value, _type_name) for name, value in attributes.items()})


class AskfirstError(Portable):
    """The base class of every error of Askfirst."""


@dataclass(frozen=True, slots=True)
class _Carried:
    """A value of an error. A value that does not survive pickling becomes `describe(value)`."""

    value: object
    describe: Callable[[object], str]

    def __reduce__(self) -> tuple[Any, ...]:
        # Its own pickle inside the pickle of the error: a failure, here or at the load, is confined to this value.
        try:
            pickled = pickle.dumps(self.value)
        except Exception:  # noqa: BLE001 - the value may be another author's, and may raise any error
            pickled = b""
        return _loaded, (pickled, self._description())

    def _description(self) -> str:
        try:
            return self.describe(self.value)
        except Exception:  # noqa: BLE001 - also the text of the value may be another author's
            return _type_name(self.value)


def _loaded(pickled: bytes, description: str) -> _Carried:
    try:
        return _Carried(pickle.loads(pickled), _type_name)  # noqa: S301 - the caller loads the pickle around it already
    except Exception:  # noqa: BLE001 - its class may raise any error, or may be missing here
        return _Carried(description, _type_name)


def _rebuilt(cls: type[Portable], args: list[_Carried], attributes: Mapping[str, _Carried]) -> Portable:
    error = cls.__new__(cls, *(carried.value for carried in args))
    error.__setstate__({name: carried.value for name, carried in attributes.items()})
    return error


def _type_name(value: object) -> str:
    return type(value).__qualname__
