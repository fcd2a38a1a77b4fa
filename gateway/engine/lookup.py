"""Lookup of the action that a caller of `decide` names.

The scan of the store only finds candidates. Each candidate is read with its own conversation, and a record that cannot
be read hides no other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from gateway.channel_agent import NotAllowed
from gateway.engine.context import EngineContext
from gateway.pending.index import IndexEntry
from gateway.pending.loading import conversation_of
from gateway.pending.tokens import token_sha256
from gateway.pending.transitions import may_refuse
from gateway.store.form import NewerForm
from gateway.stored import keys
from gateway.tools.pending_action import PendingAction

__all__ = ["find_by_code", "find_by_id", "find_by_token"]


async def find_by_id(context: EngineContext, action_id: str, conversation: str | None = None) -> PendingAction | None:
    """Return the action of this id, in this conversation or in any."""
    if conversation is not None:
        return await _action(context, conversation, action_id)
    name = keys.action(action_id)
    for key, record in await context.store.scan(name):
        where = conversation_of(record.value)
        if key.name == name and where is not None:
            return await _action(context, where, action_id)
    return None


async def find_by_token(context: EngineContext, token: str, conversation: str | None = None) -> PendingAction | None:
    """Return the action that the button of this token was shown for."""
    name = keys.token(token_sha256(token))
    for key, record in await context.store.scan(name):
        match record.value:
            case {"conversation": str(where), "action_id": str(action_id)} if key.name == name:
                return await _action(context, where, action_id) if conversation in (None, where) else None
    return None


async def find_by_code(
    context: EngineContext, person: str, code: str, conversation: str | None = None
) -> PendingAction | None:
    """Return the open action of this code that this person may answer, else the one that ended last.

    Raises NotAllowed when more than one is open: codes are unique within a conversation only.
    """
    found: list[tuple[IndexEntry, PendingAction]] = []
    for where, entries in (await _indexes(context, conversation)).items():
        for entry in entries:
            if entry.code == code and person in (entry.requester, *entry.approvers):
                action = await _action(context, where, entry.action_id)
                if action is None or (action.ballot_of is not None and conversation is None):
                    continue  # the action itself is found where it was asked
                if action.code == code and may_refuse(action, person):
                    found.append((entry, action))
    waiting = [action for _, action in found if action.open]
    if len(waiting) > 1:
        raise NotAllowed(
            f"{len(waiting)} open actions of {person} have the code {code}: say which with conversation= or action_id="
        )
    if waiting:
        return waiting[0]
    return max(found, key=lambda each: each[0].at)[1] if found else None


async def _indexes(context: EngineContext, conversation: str | None) -> dict[str, Sequence[IndexEntry]]:
    """Return the entries of the indexes by conversation: of this one, or of all that can be read."""
    found: dict[str, Sequence[IndexEntry]] = {}
    if conversation is not None:
        with contextlib.suppress(NewerForm):
            found[conversation] = (await context.load_index(conversation)).index.entries
        return found
    prefix = keys.index("")
    for key, record in await context.store.scan(prefix):
        where = key.name.removeprefix(prefix)
        with contextlib.suppress(NewerForm):
            found[where] = context.read_index(where, record).index.entries
    return found


async def _action(context: EngineContext, conversation: str, action_id: str) -> PendingAction | None:
    """Return the action as its conversation has it, or None if only a newer release can read it."""
    try:
        return (await context.actions(conversation, action_id)).get(action_id)
    except NewerForm:
        return None
