"""The forms of stored values: a release may read what an older or a newer one wrote."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Final, cast

from channels import AskfirstError

__all__ = ["BALLOTS", "FORM", "SEALED", "NewerForm", "check_form", "is_newer", "other_form"]

SEALED: Final = 2
"""The form in which the records of actions and the index of a conversation are sealed texts."""
BALLOTS: Final = 3
"""The form of actions whose approvers are asked in other chats, of their ballots and the events between both, and of
actions with a button to change them, or for all items of a plan."""
FORM: Final = 8
"""The form of stored values that this release reads and writes, and the number of a whole store.

A value that only a newer release can read has a higher number under ``form``. Without ``form`` it is form 1. A value
that refers to it (the checkpoint of a turn) has its form too.
"""
_RELEASE: Final = version("askfirst")


class NewerForm(AskfirstError):
    """A newer release wrote this value, in the form `needs`. It is kept for a worker that knows the form."""

    def __init__(self, needs: int = FORM + 1) -> None:
        super().__init__(f"it was written by a newer release (form {needs}; this one reads up to {FORM})")
        self.needs = needs


def other_form(found: int | str) -> str:
    """Return the error text for a store of another form: what was found, what this release reads, and the mend."""
    return (
        f"has form {found}, and this release, Askfirst {_RELEASE}, reads form {FORM} alone. "
        "Run the release that wrote it, or export with that one what you need and start anew with an empty store "
        "(docs/deploy.md)."
    )


def is_newer(stored: object) -> bool:
    """Return True for a stored value of a form that only a newer release can read."""
    form = stored.get("form") if isinstance(stored, (dict, Mapping)) else None  # mostly dicts
    return isinstance(form, int) and form > FORM


def check_form(stored: object) -> None:
    """Raise NewerForm for a stored value of a newer form. No other error is looked for."""
    if is_newer(stored):
        raise NewerForm(cast("Mapping[str, int]", stored)["form"])
