"""Markdown for each platform, split at the platform's limits: the public names of `channels.formatting`."""

from channels.formatting import *
from channels.formatting import __all__ as __all__
