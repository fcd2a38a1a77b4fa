"""The texts about a standing permission: the offer in a question, and a given permission."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from channels import Json
from gateway.pending.words import safe_words
from gateway.tools.escape import plain
from gateway.tools.layout import NO_LAYOUT
from gateway.tools.pending_action import Grant, PendingAction, StandingOffer
from gateway.wording import clock_time, date_and_time, duration, listing, say

_LONGEST_FIXED: Final = 80
"""The most characters of a value repeated beside its question."""


def standing_label(offer: StandingOffer, language: str) -> str:
    """Return the label of the button that confirms and gives the permission."""
    return say("button_standing", language, duration=duration(offer.seconds, language))


def offered(
    action: PendingAction, offer: StandingOffer, letters: Callable[[str], str], *, by_button: bool = False
) -> str:
    """Return the text of the permission offered in a prompt: the covered calls, and the button or the code."""
    language, (yes, _) = action.language, safe_words(action.language)
    if by_button:
        button = standing_label(offer, language)
        covers = covered(action, language, letters)
        return say("standing_pressed", language, letters, button=button, count=offer.uses, covered=covers)
    values = {
        "duration": duration(offer.seconds, language),
        "count": offer.uses,
        "covered": covered(action, language, letters),
        "yes_word": letters(yes),
        "code": offer.code,
    }
    return say("standing_offer", language, letters, **values)


def described(giver: PendingAction, now: datetime, language: str, letters: Callable[[str], str] = str) -> str:
    """Return the sentence about the permission of an action, with the remaining uses and the end."""
    grant, offer = giver.grant, giver.standing
    if grant is None or offer is None:
        raise ValueError(f"action {giver.pending_action_id} gave no permission")
    values = {
        "time": end_of_permission(grant, now, language),
        "count": offer.uses - len(grant.used),
        "covered": covered(giver, language, letters),
    }
    return say("standing_given", language, letters, **values)


def covered(giver: PendingAction, language: str, letters: Callable[[str], str] = str) -> str:
    """Return the coverage of an action's permission, as Markdown: the tool, the fixed and the varying arguments.

    A long value is cut: the question shows the whole value.
    """
    offer = giver.standing
    if offer is None:
        return ""
    parts = []
    layout = giver.layout or NO_LAYOUT
    if fixed := fixed_arguments(giver, offer):
        values = {name: layout.value(name, value, language, bare=True) for name, value in fixed.items()}
        named = [f"{plain(layout.name(name, language))} {plain(_cut(value))}" for name, value in values.items()]
        parts.append(say("standing_same", language, letters, arguments=listing(named, language)))
    for name, bound in offer.most:
        most = layout.value(name, bound, language) if name in layout.currencies else bound
        label = plain(layout.name(name, language))
        parts.append(say("standing_most", language, letters, argument=label, bound=plain(most)))
    if offer.free:
        free = listing((plain(layout.name(name, language)) for name in offer.free), language)
        parts.append(say("standing_free", language, letters, arguments=free))
    if offer.compared:
        parts.append(say("standing_shown", language, letters))
    tool = plain(giver.kind.replace("_", " "))
    return f"{tool} ({'; '.join(parts)})" if parts else tool


def fixed_arguments(action: PendingAction, offer: StandingOffer) -> dict[str, Json]:
    """Return the arguments fixed by a permission, with their values."""
    return {name: value for name, value in action.args.items() if name not in offer.varying}


def end_of_permission(grant: Grant, now: datetime, language: str) -> str:
    """Return the end time of a permission, with the day unless today."""
    written = clock_time if grant.until.date() == now.date() else date_and_time
    return written(grant.until, language)


def _cut(value: str) -> str:
    """Return a value, cut if too long for a list.

    The quotation mark and the isolate of a cut value are closed.
    """
    if len(value) <= _LONGEST_FIXED:
        return value
    value = f"{value[:_LONGEST_FIXED]}…"
    for opens, closes in (("“", "”"), ("\N{FIRST STRONG ISOLATE}", "\N{POP DIRECTIONAL ISOLATE}")):
        value += closes * (value.count(opens) > value.count(closes))
    return value
