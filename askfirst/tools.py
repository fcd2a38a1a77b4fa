"""Tools and related types: the public names of `gateway.tools`."""

from gateway.tools import *
from gateway.tools import __all__ as __all__
