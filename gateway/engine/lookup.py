"""Finding the action that a caller of `decide` means.

The store as a whole is only searched for candidates. Each candidate is read with its own conversation, and a record
that cannot be read hides no other.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.channel_agent import NotAllowed
from gateway.engine.context import EngineContext
from gateway.pending.index import IndexEntry
from gateway.pending.loading import conversation_of
from gateway.pending.tokens import token_sha256
from gateway.pending.transitions import may_refuse
from gateway.store.form import NewerForm
from gateway.tools.pending_action import PendingAction

__all__ = ["find_by_code", "find_by_id", "find_by_token"]


async def find_by_id(context: EngineContext, action_id: str, conversation: str | None = None) -> PendingAction | None:
    """Return the action of this id, in this conversation or anywhere."""
    if conversation is not None:
        return await _action(context, conversation, action_id)
    for key, record in await context.store.scan(f"action/{action_id}"):
        where = conversation_of(record.value)
        if key.name == f"action/{action_id}" and where is not None:
            return await _action(context, where, action_id)
    return None


async def find_by_token(context: EngineContext, token: str, conversation: str | None = None) -> PendingAction | None:
    """Return the action that the button of this token was shown for."""
    name = f"token/{token_sha256(token)}"
    for key, record in await context.store.scan(name):
        match record.value:
            case {"conversation": str(where), "action_id": str(action_id)} if key.name == name:
                return await _action(context, where, action_id) if conversation in (None, where) else None
    return None


async def find_by_code(
    context: EngineContext, person: str, code: str, conversation: str | None = None
) -> PendingAction | None:
    """Return the open action of this code that this person may answer, else the one of those that ended last.

    Raises NotAllowed when more than one is open: codes are unique within a conversation only.
    """
    found: list[tuple[IndexEntry, PendingAction]] = []
    for where, entries in (await _indexes(context, conversation)).items():
        for entry in entries:
            if entry.code == code and person in (entry.requester, *entry.approvers):
                action = await _action(context, where, entry.action_id)
                if action is not None and action.code == code and may_refuse(action, person):
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
    """Return what was asked, by conversation: in this one, or in all whose index can be read."""
    store, found = context.store, dict[str, Sequence[IndexEntry]]()
    if conversation is not None:
        key = context.key(conversation, "open")
        records = [(key, (await store.get([key]))[key])]
    else:
        records = await store.scan("open/")
    for key, record in records:
        try:
            where = key.name.removeprefix("open/")
            found[where] = context.read_index(where, record).index.entries
        except NewerForm:
            continue
    return found


async def _action(context: EngineContext, conversation: str, action_id: str) -> PendingAction | None:
    """Return the action as its conversation has it; None where a newer release has to read it."""
    try:
        return (await context.actions(conversation, action_id)).get(action_id)
    except NewerForm:
        return None
