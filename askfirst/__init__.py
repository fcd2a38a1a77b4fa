"""Public names of Askfirst: ``from askfirst import Agent, ChannelAgent, tool``.

The code is in the packages `gateway` and `channels`. This package re-exports the public names of `gateway`. Further
public modules: `askfirst.channels`, `askfirst.formatting`, `askfirst.pending`, `askfirst.providers`,
`askfirst.structured`, `askfirst.testing`, `askfirst.tools` and `askfirst.web`.
"""

import typing

import gateway

if typing.TYPE_CHECKING:
    from gateway import *
    from gateway import __all__ as __all__
else:
    __all__ = gateway.__all__


def __getattr__(name: str) -> object:
    """Return a public name of `gateway`. The server is imported only at the first access to a server name."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(gateway, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
