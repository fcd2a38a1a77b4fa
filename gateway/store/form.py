"""The form of what is stored: one number, the same for the store and for each sealed record in it."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

FORM: Final = 11
"""The form that this release reads and writes. Another one is refused. A change of anything stored raises it."""
_RELEASE: Final = version("askfirst")


def other_form(found: int | str) -> str:
    """Return the error text for a store of another form: what was found, what this release reads, and the mend."""
    shown = "".join(char for char in str(found)[:20] if char.isprintable())
    return (
        f"has form {shown}, and this release, Askfirst {_RELEASE}, reads form {FORM} alone. "
        "Run the release that wrote it, or export with that one what you need and start anew with an empty store "
        "(docs/deploy.md)."
    )
