"""Models: the public names of `gateway.providers`."""

from gateway.providers import *
from gateway.providers import __all__ as __all__
