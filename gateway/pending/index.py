"""The index of a conversation: which actions are open there, which were lately, and how to find them.

It only finds them. What an action is, and whether it may still happen, says its own sealed record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from channels import Json
from gateway.store.form import check_form
from gateway.tools.action import PendingAction

__all__ = ["LATELY", "Entry", "Index"]

LATELY = timedelta(minutes=10)
"""How long a settled action still takes a bare yes or no for itself."""
_KEPT = 20
"""Settled entries kept to answer a late code or reply; their records live longer than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """How one action can be found."""

    action_id: str
    code: str
    requester: str
    approvers: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    """Message ids of its prompts."""
    at: datetime
    """When it was asked, or settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """What is open in one conversation, in the order it was asked; what was decided lately, newest last."""

    open: tuple[Entry, ...] = ()
    lately: tuple[Entry, ...] = ()
    pressed: Mapping[str, datetime] = field(default_factory=dict)
    """Person -> when they last pressed a button or sent a code here: a bare word from before or after it is not its
    answer."""

    def to_json(self) -> Json:
        stored: Json = _adapter().dump_python(self, mode="json", exclude_defaults=True)
        return stored

    @classmethod
    def from_json(cls, stored: Json) -> Index:
        """Raises NewerForm."""
        check_form(stored)
        return cls() if stored is None else _adapter().validate_python(stored)

    @property
    def entries(self) -> tuple[Entry, ...]:
        return (*self.open, *reversed(self.lately))

    def by_code(self, code: str) -> Entry | None:
        """The open one of this code, else the one that was settled last."""
        return next((entry for entry in self.entries if entry.code == code), None)

    def by_prompt(self, message_id: str) -> tuple[Entry, ...]:
        """What was asked in this message of ours."""
        return tuple(entry for entry in self.entries if message_id in entry.prompts)

    def asked(self, action: PendingAction) -> Index:
        return replace(self, open=(*self.open, _entry(action, action.requested_at)))

    def changed(self, action: PendingAction, at: datetime) -> Index:
        """After any change of the record: it moves to `lately` as soon as it is decided.

        How it is found stays as it was asked, and no showing is forgotten: a record that somebody has changed must not
        leave its neighbour alone in a prompt, where a yes would seem to mean that one.
        """
        known = next((entry for entry in self.entries if entry.action_id == action.pending_action_id), None)
        if known is None:
            found = _entry(action, at)
        else:
            prompts = tuple(dict.fromkeys((*known.prompts, *action.prompts)))
            found = replace(known, prompts=prompts, at=known.at if action.open else at)
        if action.open:
            entries = [found if entry.action_id == action.pending_action_id else entry for entry in self.open]
            return replace(self, open=tuple(entries))
        lately = [entry for entry in self.lately if entry.action_id != action.pending_action_id]
        if known is not None or action.settled:
            lately.append(found)
        return replace(
            self,
            open=tuple(entry for entry in self.open if entry.action_id != action.pending_action_id),
            lately=tuple(lately[-_KEPT:]),
        )

    def moved(self) -> Index:
        """The conversation is in another place now, where no message has the id it had."""
        return replace(self, open=tuple(map(_unshown, self.open)), lately=tuple(map(_unshown, self.lately)))

    def press(self, person: str, at: datetime) -> Index:
        others = sorted(((who, when) for who, when in self.pressed.items() if who != person), key=lambda item: item[1])
        return replace(self, pressed={**dict(others[-_KEPT:]), person: at})


def _unshown(entry: Entry) -> Entry:
    return replace(entry, prompts=())


def _entry(action: PendingAction, at: datetime) -> Entry:
    return Entry(
        action_id=action.pending_action_id,
        code=action.code,
        requester=action.requester,
        approvers=action.approvers,
        prompts=action.prompts,
        at=at,
    )


@cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(Index)
