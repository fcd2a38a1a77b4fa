"""Confirmation: the public names of `gateway.pending`."""

from gateway.pending import *
from gateway.pending import __all__ as __all__
