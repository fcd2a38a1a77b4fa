"""Test tools for bots, channels and stores: the public names of `gateway.testing`."""

import typing

import gateway.testing

if typing.TYPE_CHECKING:
    from gateway.testing import *
    from gateway.testing import __all__ as __all__
else:
    __all__ = gateway.testing.__all__


def __getattr__(name: str) -> object:
    """Return a public name of `gateway.testing`. The contracts are imported only at the first access."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(gateway.testing, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
