"""Suggestions for misspelt settings: unread variables with a prefix of Askfirst."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from channels import AskfirstError
from channels.catalogue import names, settings_of
from gateway.config.environment import SECRETS
from gateway.config.settings import VARIABLES

_PREFIXES = ("ASKFIRST_", "TELEGRAM_", "SLACK_", "TWILIO_")
"""Checked prefixes. Other prefixes are not checked: vendors' libraries read variables of their own (OPENAI_ORG_ID)."""


def misspelt(environ: Iterable[str] | None = None) -> Iterator[str]:
    """Yield a warning for each unread variable, with the probable setting."""
    known = {*VARIABLES, *_of_channels(), *(f"{name}_FILE" for name in SECRETS)}
    for name in sorted({*(os.environ if environ is None else environ)} - known):
        if name.startswith(_PREFIXES):
            meant = get_close_matches(name, sorted(known), n=1, cutoff=0.75)
            mend = f"did you mean {meant[0]}?" if meant else "docs/settings.md lists every setting"
            yield f"{name} is set, and nothing reads it: {mend}"


def _of_channels() -> Iterator[str]:
    for name in names():
        try:
            yield from (setting.name for setting in settings_of(name))
        except AskfirstError:  # a channel of another distribution that fails to load is reported elsewhere
            continue
