"""The effect of an answer on the waiting action of a scope: pure rules over the records."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from gateway.pending import transitions
from gateway.pending.actions import ConversationActions
from gateway.pending.index import LATELY
from gateway.pending.seal import compute_digest
from gateway.pending.seed.outcome import DEFAULT_IGNORE_TTL_SECONDS, OutcomeStatus
from gateway.tools.pending_action import Detail, PendingAction, Reason, compute_args_digest

log = logging.getLogger("askfirst.pending")

_SHOWN = 40
"""The most characters of an unknown intent in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeAnswer:
    """An answer, with the expected properties of its action; None where the caller expects none."""

    person: str
    intent: Literal["confirm", "cancel", "ignore"]
    by_text: bool = False
    kind: str | None = None
    action_id: str | None = None
    args_digest: str | None = None
    ignore_seconds: float = DEFAULT_IGNORE_TTL_SECONDS


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of an answer once written; without a status, the executor of `action` is launched."""

    action: PendingAction
    status: OutcomeStatus | None = None
    detail: Literal["id_mismatch", "tampered"] | None = None


def intent_of(written: object) -> Literal["confirm", "cancel", "ignore"]:
    """Return the intent of a button. An unknown intent is logged and read as ``ignore``."""
    word = written.strip().lower() if isinstance(written, str) else written
    if word == "confirm":
        return "confirm"
    if word == "cancel":
        return "cancel"
    if word != "ignore":
        log.warning("the intent %.*r is none of confirm, cancel and ignore: ignored", _SHOWN, written)
    return "ignore"


def check_seconds(name: str, seconds: float) -> None:
    """Raise ValueError unless `seconds` is finite and 0 or more."""
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{name} must be 0 or a positive, finite number of seconds, not {seconds!r}")


def waiting(actions: ConversationActions) -> PendingAction | None:
    """Return the unexpired action waiting for an answer, or None."""
    return next((each for each in actions.open if not transitions.expired(each, actions.now)), None)


def end_expired(actions: ConversationActions) -> None:
    """Close the open action if expired."""
    for action in actions.open:
        if transitions.expired(action, actions.now):
            _close(actions, action, "expired")


def stash(actions: ConversationActions, action: PendingAction) -> PendingAction:
    """Open a new action, shown as of now, and return its record."""
    asked = replace(action, digest=compute_digest(action))
    actions.put(asked, "asked", action.requester, actions.now)
    shown = transitions.show(actions.by_id[action.pending_action_id], actions.now, None)
    actions.put(shown, "shown", None, actions.now)
    return actions.by_id[action.pending_action_id]


def tighten(actions: ConversationActions, seconds: float, action_id: str | None) -> PendingAction | None:
    """Leave at most this many seconds to the waiting action. None without a waiting action, or with another id."""
    action = waiting(actions)
    if action is None or action_id not in (None, action.pending_action_id):
        return None
    return _tighten(actions, action, seconds)


def drop(actions: ConversationActions, person: str) -> PendingAction | None:
    """Withdraw the open action, even if expired. None without an open action."""
    action = next(iter(actions.open), None)
    return _close(actions, action, "withdrawn", by=person) if action is not None else None


def judge(
    actions: ConversationActions, answer: ScopeAnswer, has_executor: Callable[[PendingAction], bool]
) -> Verdict | None:
    """Apply the answer to the records and return the verdict; None if no action takes an answer here."""
    action = waiting(actions)
    if action is None:
        return _late(actions, answer)
    if (pinned := _pinned(action, answer)) is not None:
        return pinned
    if answer.intent == "ignore":
        return Verdict(_tighten(actions, action, answer.ignore_seconds), "ignored")
    if answer.intent == "cancel":
        return Verdict(_close(actions, action, "refused", by=answer.person), "cancelled")
    if answer.args_digest not in (None, action.args_digest) or compute_args_digest(action.args) != action.args_digest:
        return Verdict(_close(actions, action, "drifted", by=answer.person, detail="changed"), "digest_mismatch")
    if not has_executor(action):
        return Verdict(_close(actions, action, "drifted", by=answer.person, detail="other_release"), "no_executor")
    decided = transitions.approve(action, answer.person, None, actions.now)
    actions.put(decided, "decided", answer.person, actions.now)
    decided = actions.by_id[action.pending_action_id]
    actions.put(transitions.launch(decided, action.fence + 1, actions.now), "launched", None, actions.now)
    return Verdict(actions.by_id[action.pending_action_id])


def _pinned(action: PendingAction, answer: ScopeAnswer) -> Verdict | None:
    """Return the verdict on an answer to another question; the action stays open. None for a matching answer."""
    if answer.kind not in (None, action.kind):
        return Verdict(action, "kind_mismatch")
    if answer.action_id not in (None, action.pending_action_id):
        return Verdict(action, "kind_mismatch", "id_mismatch")
    return None


def _late(actions: ConversationActions, answer: ScopeAnswer) -> Verdict | None:
    """Return the verdict on an answer to a recently settled action: expired, tampered or unknown; else None."""
    entry = next(iter(actions.index.settled), None)
    action = actions.get(entry.action_id) if entry is not None and entry.at >= actions.now - LATELY else None
    if action is None or (answer.by_text and answer.action_id not in (None, action.pending_action_id)):
        return None
    if action.state == "unknown":
        return Verdict(action, "unknown")
    if action.detail == "tampered":
        return Verdict(action, "digest_mismatch", "tampered")
    return Verdict(action, "expired") if action.reason == "expired" else None


def _tighten(actions: ConversationActions, action: PendingAction, seconds: float) -> PendingAction:
    tightened = transitions.tighten(action, actions.now, seconds)
    if tightened != action:
        actions.put(tightened, "tightened", None, actions.now)
    return actions.by_id[action.pending_action_id]


def _close(
    actions: ConversationActions,
    action: PendingAction,
    reason: Reason,
    *,
    by: str | None = None,
    detail: Detail | None = None,
) -> PendingAction:
    actions.put(transitions.close(action, reason, actions.now, detail=detail, by=by), reason, by, actions.now)
    return actions.by_id[action.pending_action_id]
