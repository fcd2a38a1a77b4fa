"""Answers with a schema: the public names of `gateway.structured`."""

from gateway.structured import *
from gateway.structured import __all__ as __all__
