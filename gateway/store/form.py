"""The forms of what is stored: two releases side by side, or an older one put back, meet what the other wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from channels import AskfirstError

__all__ = ["FORM", "NewerForm", "check_form", "is_newer"]

FORM: Final = 2
"""The newest form of stored things that this release can read.

What only a newer release can read says so under ``form``, with a higher number; nothing under ``form`` is form 1. What
points at such a thing (the prompt of an action, the checkpoint of a turn) has its form too. Form 2: the records of
actions and the index of a conversation are sealed texts.
"""


class NewerForm(AskfirstError):
    """A newer release wrote this, in a form that only one that knows `needs` can read. It is kept for that one."""

    def __init__(self, needs: int = FORM + 1) -> None:
        super().__init__(f"it was written by a newer release (form {needs}; this one reads up to {FORM})")
        self.needs = needs


def is_newer(stored: object) -> bool:
    """Return True for a stored object of a form that only a newer release can read."""
    form = stored.get("form") if isinstance(stored, (dict, Mapping)) else None  # a dict, nearly always, is seen first
    return isinstance(form, int) and form > FORM


def check_form(stored: object) -> None:
    """Raise NewerForm for a stored object of a newer form; what else may be wrong with it others say."""
    if is_newer(stored):
        raise NewerForm(cast("Mapping[str, int]", stored)["form"])
