"""The words of standing permissions: what a prompt offers, and what a person has allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from channels import Json
from gateway.pending.index import StandingPermission
from gateway.pending.words import safe_words
from gateway.tools.escape import plain, shown
from gateway.tools.pending_action import PendingAction, StandingOffer
from gateway.wording import duration, listing, say

__all__ = ["covers", "described", "offered"]


def offered(action: PendingAction, offer: StandingOffer, letters: Callable[[str], str]) -> str:
    """Return the text of the permission that a prompt offers: all that it covers, and its code."""
    language, (yes, _) = action.language, safe_words(action.language)
    values = {
        "duration": duration(offer.seconds, language),
        "count": offer.uses,
        "same": _fixed({name: action.args.get(name) for name in offer.same}, language),
        "yes_word": letters(yes),
        "code": offer.code,
    }
    return say("standing_offer", language, letters, **values)


def covers(permission: StandingPermission, language: str) -> str:
    """Return the tool and the fixed arguments of a permission, as Markdown."""
    return f"{plain(permission.kind.replace('_', ' '))} ({_fixed(permission.same, language)})"


def described(permission: StandingPermission, now: datetime, language: str, letters: Callable[[str], str] = str) -> str:
    """Return the sentence that tells a permission, with the uses and the time that are left."""
    values = {
        "duration": duration((permission.until - now).total_seconds(), language),
        "count": permission.uses,
        "covered": covers(permission, language),
    }
    return say("standing_given", language, letters, **values)


def _fixed(arguments: Mapping[str, Json], language: str) -> str:
    """Return the arguments that a standing permission fixes, with their values, as Markdown."""
    return listing([f"{plain(name)} {plain(shown(value))}" for name, value in arguments.items()], language)
