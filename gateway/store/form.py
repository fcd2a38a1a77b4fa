"""The form of all stored data: a number, the same for the store and for each sealed record."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

FORM: Final = 14
"""The form read and written by this release. Others are refused. Any change of the stored data raises the number."""
_RELEASE: Final = version("askfirst")


def other_form(found: int | str) -> str:
    """Return the error text for a store of another form: the found form, the form of this release, and the remedy."""
    shown = "".join(char for char in str(found)[:20] if char.isprintable())
    return (
        f"has form {shown}, and this release, Askfirst {_RELEASE}, reads form {FORM} alone. "
        "Run the release that wrote it, or export with that one what you need and start anew with an empty store "
        "(docs/deploy.md)."
    )
