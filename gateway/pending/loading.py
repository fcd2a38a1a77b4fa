"""Reading what is sealed: the index of a conversation, and the records it names.

An action whose record was edited, copied, put back or deleted without the key ends here at once and is told; it stops
no other action. Records of releases before the sealed form count only while `first_form` says so, and are written anew
with the next change.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from channels import Capabilities, Json
from gateway.pending.actions import ConversationActions, Drift
from gateway.pending.index import Entry, Index
from gateway.pending.seal import Keyring, is_sealed
from gateway.pending.settling import end_tampered
from gateway.store.base import Key, Record, Snapshot, Store
from gateway.store.form import NewerForm
from gateway.tools.pending_action import PendingAction

__all__ = ["Counters", "Find", "ReadIndex", "conversation_of", "load_actions", "read_index", "stored_action"]

_COUNTERS = 2_000
_LIVE = frozenset({"pending", "approved", "running"})

Find: TypeAlias = Callable[[Index], Iterable[str]]
"""Return which actions to read beside the live ones, once the index is known."""

_Verdict: TypeAlias = Literal["held", "tampered", "unknown"]


class Counters:
    """The newest index of each conversation that this process has read: one of a lower counter is an old copy put back.

    It also saves reading the same index again and again.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[Json, Index]] = OrderedDict()

    def get(self, conversation: str, stored: Json) -> Index | None:
        """Return the index that was read of exactly this stored value, if it was the last one."""
        known = self._known.get(conversation)
        return known[1] if known is not None and known[0] == stored else None

    def is_old(self, conversation: str, counter: int) -> bool:
        known = self._known.get(conversation)
        return known is not None and counter < known[1].counter

    def note(self, conversation: str, stored: Json, index: Index) -> None:
        self._known[conversation] = stored, index
        self._known.move_to_end(conversation)
        if len(self._known) > _COUNTERS:
            self._known.popitem(last=False)


@dataclass(frozen=True, slots=True)
class ReadIndex:
    """An index as it was read."""

    index: Index
    version: int
    kind: Literal["sealed", "first form", "broken"]


def read_index(
    keyring: Keyring, counters: Counters, conversation: str, record: Record, *, first_form: bool
) -> ReadIndex:
    """Read the index of a conversation. Raises NewerForm for one that a newer release wrote.

    A broken index still names its actions, as far as it can be read: they end.
    """
    value = record.value
    if value is None:
        return ReadIndex(Index(), record.version, "sealed")
    if not is_sealed(value):
        return ReadIndex(_salvaged(value), record.version, "first form" if first_form else "broken")
    if (known := counters.get(conversation, value)) is not None:
        return ReadIndex(known, record.version, "sealed")
    sealed = keyring.open(f"open/{conversation}", value)
    if sealed is None:
        return ReadIndex(_salvaged(value["body"]), record.version, "broken")
    try:
        index = Index.from_text(sealed.text)
    except ValueError as error:
        raise NewerForm from error
    if counters.is_old(conversation, index.counter):
        return ReadIndex(index, record.version, "broken")
    counters.note(conversation, value, index)
    return ReadIndex(index, record.version, "sealed")


async def load_actions(
    store: Store,
    conversation: str,
    *,
    keyring: Keyring,
    counters: Counters,
    drift: Drift,
    also: Iterable[str] = (),
    find: Find = lambda index: (),
    capabilities: Capabilities | None = None,
    seen: Snapshot | None = None,
    first_form: bool = False,
) -> ConversationActions:
    """Read the conversation's index, its live actions, the actions of `also` and of `find`, and those asked in one
    message with any of them.

    `seen` has the index when it was read already. `first_form`: records of a release before the sealed form count.
    Raises NewerForm when a newer release wrote the index.
    """
    partition = store.partition(conversation)
    index_key = Key(partition, f"open/{conversation}")
    snapshot = seen or await store.get([index_key])
    while True:
        read = read_index(keyring, counters, conversation, snapshot[index_key], first_form=first_form)
        index = read.index
        whole = index.entries if read.kind != "sealed" else index.live
        names = frozenset({*(entry.action_id for entry in whole), *also, *find(index)})
        names |= index.beside(names)
        keys = {name: Key(partition, f"action/{name}") for name in sorted(names)}
        if keys or (seen is not None and read.kind == "broken"):
            snapshot = await store.get([index_key, *keys.values()])
        if snapshot[index_key].version == read.version:
            break  # else the records are of another moment than the index
    records = {name: snapshot[key] for name, key in keys.items()}
    judged: dict[str, tuple[PendingAction | None, _Verdict]] = {}
    newer: dict[str, int] = {}
    for name, record in records.items():
        try:
            found, verdict = _judged(keyring, name, record.value, index.get(name), read, first_form)
        except NewerForm as error:
            newer[name] = error.needs
        else:
            if found is None or found.conversation == conversation:
                judged[name] = found, verdict
    held = {name: found for name, (found, verdict) in judged.items() if found is not None and verdict == "held"}
    actions = ConversationActions(
        conversation=conversation,
        partition=partition,
        index=_trusted(read, held),
        index_version=read.version,
        actions=held,
        versions={name: record.version for name, record in records.items()},
        newer=newer,
        rewrites=read.kind != "sealed",
        keyring=keyring,
        now=snapshot.now,
        drift=drift,
        capabilities=capabilities,
    )
    for name, (found, verdict) in judged.items():
        if verdict == "tampered":
            _end(actions, found, index.get(name), trusted=read.kind != "broken")
    return actions


def _judged(
    keyring: Keyring, name: str, value: Json, entry: Entry | None, read: ReadIndex, first_form: bool
) -> tuple[PendingAction | None, _Verdict]:
    """Return a record as far as it can be read, and whether it is the one that may be decided, launched or told of.

    Raises NewerForm.
    """
    action, seal = _opened(keyring, name, value, first_form)
    if read.kind == "broken":
        is_last = False
    elif entry is None:  # an old settled one is not named any more; a live one always is, but in the first form
        is_last = action is not None and (action.settled or read.kind == "first form")
    else:
        is_last = action is not None and entry.seal == seal
    if is_last:
        return action, "held"
    live = entry is not None and entry.state in _LIVE
    if entry is None or read.kind == "broken":
        live = live or (action is not None and not action.settled)
    return action, "tampered" if live else "unknown"


def stored_action(keyring: Keyring, key: Key, record: Record, *, first_form: bool) -> PendingAction | None:
    """Return the action of a record whose own seal holds, else None. Raises NewerForm.

    Only the index of its conversation tells whether the record is the last one.
    """
    return _opened(keyring, key.name.removeprefix("action/"), record.value, first_form)[0]


def conversation_of(stored: Json) -> str | None:
    """Return the conversation that a record names. The record may be forged: it is judged with that conversation."""
    if is_sealed(stored):
        try:
            stored = json.loads(str(stored["body"]))
        except ValueError:
            return None
    named = stored.get("conversation") if isinstance(stored, dict) else None
    return named if isinstance(named, str) else None


def _opened(keyring: Keyring, name: str, value: Json, first_form: bool) -> tuple[PendingAction | None, str]:
    """Return the record and its seal; None for one whose own seal does not hold. Raises NewerForm."""
    if isinstance(value, dict) and first_form and not is_sealed(value) and keyring.holds_in_first_form(value):
        return PendingAction.from_json(value), ""
    sealed = keyring.open(f"action/{name}", value)
    if sealed is None:
        return None, "none"
    try:
        return PendingAction.from_text(sealed.text), sealed.seal
    except ValueError as error:
        raise NewerForm from error


def _trusted(read: ReadIndex, held: Mapping[str, PendingAction]) -> Index:
    """Return the index to go on with.

    A broken one keeps its counter and address alone. One of the first form is made anew from the records that hold.
    """
    if read.kind == "sealed":
        return read.index
    if read.kind == "broken":
        return Index(counter=read.index.counter, address=read.index.address)
    index = Index(acted=read.index.acted)
    for action in sorted(held.values(), key=lambda action: action.finished_at or action.requested_at):
        index = index.changed(action, action.finished_at or action.decided_at or action.requested_at)
        if (entry := read.index.get(action.pending_action_id)) is not None:
            found = replace(entry, state=action.state, language=action.language)
            index = index.placed(found)
    return index


def _end(actions: ConversationActions, found: PendingAction | None, entry: Entry | None, *, trusted: bool) -> None:
    """End an action of which only the index, or only its own record, can still be believed."""
    state = entry.state if entry is not None and trusted else found.state if found is not None else "pending"
    if found is None and entry is not None:
        found = _stub(entry, actions)
    if found is not None:
        end_tampered(actions, found, was_running=state == "running")


def _stub(entry: Entry, actions: ConversationActions) -> PendingAction:
    """Return what stands for a record that is none any more: enough to end it and to name it by its code."""
    return PendingAction(
        pending_action_id=entry.action_id,
        kind="",
        preview=entry.code,
        code=entry.code,
        requester=entry.requester,
        approvers=entry.approvers,
        conversation=actions.conversation,
        address=actions.index.address,
        language=entry.language,
        requested_at=entry.at,
        fence=entry.fence,
    )


def _salvaged(stored: Json) -> Index:
    """Return an index as far as it can be read."""
    try:
        return Index.from_text(stored) if isinstance(stored, str) else Index.from_first_form(stored)
    except ValueError:
        return Index()
