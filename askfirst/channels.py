"""Platforms: the public names of the package `channels`, with the parts for writing a channel."""

from channels import *
from channels import __all__ as _names
from channels.catalogue import EVERY_WAY as EVERY_WAY
from channels.catalogue import Setting as Setting
from channels.fields import Fields as Fields

__all__ = [*_names, "EVERY_WAY", "Fields", "Setting"]
