"""Web server: the public names of `gateway.web`."""

from gateway.web import *
from gateway.web import __all__ as __all__
