"""The platforms: the public names of the package `channels`, and what a channel of one's own is made of."""

from channels import *
from channels import __all__ as _names
from channels.catalogue import EVERY_WAY as EVERY_WAY
from channels.catalogue import Setting as Setting
from channels.fields import Fields as Fields

__all__ = [*_names, "EVERY_WAY", "Fields", "Setting"]
