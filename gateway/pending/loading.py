"""Reading sealed records: the index of a conversation, and its actions.

An action with a record edited, copied, restored or deleted without the key ends here at once, and the person is
notified. The other actions are not affected.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias

from channels import Capabilities, Json
from gateway.pending.actions import ConversationActions, Drift, Fits
from gateway.pending.audit import Pseudonyms
from gateway.pending.index import Index, IndexEntry
from gateway.pending.seal import Keyring, is_sealed
from gateway.pending.settling import end_tampered
from gateway.store.base import Store
from gateway.store.types import Key, Record, Snapshot
from gateway.stored import keys
from gateway.tools.pending_action import Ballot, PendingAction

_COUNTERS = 2_000
_LIVE = frozenset({"pending", "approved", "running"})

Find: TypeAlias = Callable[[Index], Iterable[str]]
"""Return the ids of the actions to read in addition to the live actions, given the index."""

_Verdict: TypeAlias = Literal["held", "tampered", "unknown"]


class Counters:
    """The last index of each conversation read by this process, for the last 2,000 conversations.

    An index with a lower counter is an old copy put back into the store. An unchanged index is not decoded again.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[Json, Index]] = OrderedDict()

    def get(self, conversation: str, stored: Json) -> Index | None:
        """Return the decoded index of this stored value if the value equals the last read, else None."""
        known = self._known.get(conversation)
        return known[1] if known is not None and known[0] == stored else None

    def is_old(self, conversation: str, counter: int) -> bool:
        """Return True if an index with a higher counter was read before."""
        known = self._known.get(conversation)
        return known is not None and counter < known[1].counter

    def note(self, conversation: str, stored: Json, index: Index) -> None:
        """Remember the stored value and the decoded index."""
        self._known[conversation] = stored, index
        self._known.move_to_end(conversation)
        if len(self._known) > _COUNTERS:
            self._known.popitem(last=False)


@dataclass(frozen=True, slots=True)
class ReadIndex:
    """The index of a conversation, as read from the store."""

    index: Index
    version: int
    """The version of the index record, expected by the next write."""
    kind: Literal["sealed", "broken"]
    stored: Json = None


_EMPTY: Final = Index()


def read_index(keyring: Keyring, counters: Counters, conversation: str, record: Record) -> ReadIndex:
    """Return the index of a conversation.

    A broken index still names its actions, as far as decoding succeeds, so that these actions can be ended.
    """
    value = record.value
    if value is None:
        return ReadIndex(_EMPTY, record.version, "sealed")
    if not is_sealed(value):
        return ReadIndex(_EMPTY, record.version, "broken")
    if (known := counters.get(conversation, value)) is not None:
        return ReadIndex(known, record.version, "sealed", value)
    sealed = keyring.open(keys.index(conversation), value)
    try:
        index = Index.from_text(str(value["body"]))
    except ValueError:
        return ReadIndex(_EMPTY, record.version, "broken")
    if sealed is None or counters.is_old(conversation, index.counter):
        return ReadIndex(index, record.version, "broken")
    counters.note(conversation, value, index)
    return ReadIndex(index, record.version, "sealed", value)


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
    fits: Fits = lambda address, reply: True,
    seen: Snapshot | None = None,
) -> ConversationActions:
    """Read the index and the needed actions of a conversation.

    These are the live actions, the givers of standing permissions, the actions of `also` and `find`, and all actions
    asked in the same message as any of these. `seen` holds the index if already read.
    """
    read, records, now = await _read_together(
        store, conversation, keyring=keyring, counters=counters, also=also, find=find, seen=seen
    )
    judged: dict[str, tuple[PendingAction | None, _Verdict]] = {}
    for name, record in records.items():
        found, verdict = _judged(keyring, name, record.value, read.index.get(name), read)
        if found is None or found.conversation == conversation:
            judged[name] = found, verdict
    held = {name: found for name, (found, verdict) in judged.items() if found is not None and verdict == "held"}
    index = read.index if read.kind == "sealed" else Index(counter=read.index.counter, address=read.index.address)
    actions = ConversationActions(
        conversation=conversation,
        partition=store.partition(conversation),
        index=index,
        index_version=read.version,
        actions=held,
        versions={name: record.version for name, record in records.items()},
        rewrites=read.kind != "sealed",
        keyring=keyring,
        pseudonyms=Pseudonyms(store),
        now=now,
        drift=drift,
        capabilities=capabilities,
        fits=fits,
    )
    if keyring.rotates:
        stored = [(keys.action(name), records[name].value) for name in held if read.index.seal_of(name) is not None]
        opened = [keyring.open(*each) for each in [*stored, (keys.index(conversation), read.stored)]]
        actions.changes.old_seals = any(sealed is not None and sealed.is_old for sealed in opened)
    for name, (found, verdict) in judged.items():
        if verdict == "tampered":
            _end(actions, found, read.index.get(name), trusted=read.kind != "broken")
    return actions


async def _read_together(
    store: Store,
    conversation: str,
    *,
    keyring: Keyring,
    counters: Counters,
    also: Iterable[str],
    find: Find,
    seen: Snapshot | None,
) -> tuple[ReadIndex, dict[str, Record], datetime]:
    """Return the index, the records of the actions to read by action id, and the time of this consistent state."""
    partition = store.partition(conversation)
    index_key = Key(partition, keys.index(conversation))
    snapshot = seen or await store.get([index_key])
    while True:
        read = read_index(keyring, counters, conversation, snapshot[index_key])
        listed = read.index.entries if read.kind != "sealed" else read.index.live
        gave = (each.action_id for each in read.index.permissions)
        names = frozenset({*(entry.action_id for entry in listed), *gave, *also, *find(read.index)})
        names |= read.index.beside(names)
        action_keys = {name: Key(partition, keys.action(name)) for name in sorted(names)}
        if action_keys or (seen is not None and read.kind == "broken"):
            snapshot = await store.get([index_key, *action_keys.values()])
        if snapshot[index_key].version == read.version:
            return read, {name: snapshot[key] for name, key in action_keys.items()}, snapshot.now
        # else the index has changed since: the records are of another moment


def _judged(
    keyring: Keyring, name: str, value: Json, entry: IndexEntry | None, read: ReadIndex
) -> tuple[PendingAction | None, _Verdict]:
    """Return the action, as far as decoding succeeds, and the verdict on the record.

    ``held``: the record of the last write. Its action may be decided, launched and reported. ``tampered``: the record
    takes the place of a live action. ``unknown``: any other record; ignored.
    """
    action, seal = _opened(keyring, name, value)
    if read.kind == "broken":
        is_last = False
    elif entry is None:  # the index drops old settled actions; it lists every live one
        is_last = action is not None and action.settled and read.index.seal_of(name) in (None, seal)
    else:
        is_last = action is not None and entry.seal == seal
    if is_last:
        return action, "held"
    live = entry is not None and entry.state in _LIVE
    if entry is None or read.kind == "broken":
        live = live or (action is not None and not action.settled)
    return action, "tampered" if live else "unknown"


def stored_action(keyring: Keyring, key: Key, record: Record) -> PendingAction | None:
    """Return the action of a record if the record's own seal holds, else None.

    Whether the record is the last write is not checked: this needs the index of the conversation.
    """
    return _opened(keyring, key.name.removeprefix(keys.action("")), record.value)[0]


def conversation_of(stored: Json) -> str | None:
    """Return the conversation named in a record, or None. The record may be forged: the seal is not checked here."""
    if is_sealed(stored):
        try:
            stored = json.loads(str(stored["body"]))
        except ValueError:
            return None
    named = stored.get("conversation") if isinstance(stored, dict) else None
    return named if isinstance(named, str) else None


def _opened(keyring: Keyring, name: str, value: Json) -> tuple[PendingAction | None, str]:
    """Return the action and its seal; None for an unreadable record or a record without a valid seal of its own."""
    sealed = keyring.open(keys.action(name), value)
    if sealed is None:
        return None, "none"
    try:
        return PendingAction.from_text(sealed.text), sealed.seal
    except ValueError:
        return None, "none"


def _end(actions: ConversationActions, found: PendingAction | None, entry: IndexEntry | None, *, trusted: bool) -> None:
    """End an action changed without the key. With `trusted`, the index gives the state of the action."""
    state = entry.state if entry is not None and trusted else found.state if found is not None else "pending"
    if found is None and entry is not None:
        found = _stub(entry, actions)
    if found is not None:
        end_tampered(actions, found, was_running=state == "running")


def _stub(entry: IndexEntry, actions: ConversationActions) -> PendingAction:
    """Return a stand-in for an unreadable record: enough to end the action and to name the action by its code."""
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
        ballots=tuple(Ballot(person=person, conversation=where) for person, where in entry.ballots),
        salt=entry.salt,
    )
