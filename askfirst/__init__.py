"""Askfirst under its own name: ``from askfirst import Agent, ChannelAgent, tool``.

The code lives in the packages `gateway` and `channels`. This one gives the public names of `gateway`, and beside them
`askfirst.channels`, `askfirst.pending`, `askfirst.providers` and `askfirst.testing`.
"""

import typing

import gateway

if typing.TYPE_CHECKING:
    from gateway import *
    from gateway import __all__ as __all__
else:
    __all__ = gateway.__all__


def __getattr__(name: str) -> object:
    """Return a public name of `gateway`, which imports its server only when that is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(gateway, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
