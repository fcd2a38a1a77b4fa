"""The hint for a forgotten `await`: a call without one does nothing, and says so wherever its result is looked at."""

from __future__ import annotations

import functools
import inspect
import types
import warnings
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, ParamSpec, TypeVar, cast

_P = ParamSpec("_P")
_T = TypeVar("_T")

_HINT: Final = "{name} is async and has not run: write `await bot.{name}(...)`"


def hints_await(method: Callable[_P, Coroutine[Any, Any, _T]]) -> Callable[_P, Coroutine[Any, Any, _T]]:
    """Return the async method with calls that name a forgotten `await`. All else is as before."""
    return cast("Callable[_P, Coroutine[Any, Any, _T]]", _Method(method))


class _Method:
    """An async method. By its code it counts as a coroutine function, as before."""

    __name__: str

    def __init__(self, method: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        functools.update_wrapper(self, method)
        self._method: Any = method
        self.__code__ = self._method.__code__
        self.__defaults__, self.__kwdefaults__ = self._method.__defaults__, self._method.__kwdefaults__

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: Any, **options: Any) -> _Unawaited:
        return _Unawaited(self._method(*args, **options), self.__name__)


class _Unawaited(Coroutine[Any, Any, Any]):
    """A call to await. What a coroutine has is its coroutine's; anything else raises AttributeError with the hint."""

    def __init__(self, coroutine: Any, name: str) -> None:
        self._coroutine, self._hint, self._awaited = coroutine, _HINT.format(name=name), False

    def __await__(self) -> Generator[Any, Any, Any]:
        self._awaited = True  # from here on, the one who awaits holds the coroutine alone
        return cast("Generator[Any, Any, Any]", self._coroutine.__await__())

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self._coroutine, name)
        except AttributeError:
            raise AttributeError(f"no {name!r} here: {self._hint}", name=name, obj=self) from None

    def __repr__(self) -> str:
        return f"<{self._hint}>"

    def __del__(self) -> None:
        if not self._awaited and inspect.getcoroutinestate(self._coroutine) == inspect.CORO_CREATED:
            self._coroutine.close()  # else Python warns of the same once more
            warnings.warn(self._hint, RuntimeWarning, stacklevel=2)
