"""Conversations shared with others: the forgotten person's part is removed, and the rest stays.

Each conversation is cleaned in one commit. In a group, the turns of the person are removed: the messages, the calls of
tools and the bot's answers. A removed line keeps the number, with a text in place of the content. So no call of a tool
is left without the result, and a reader of the log continues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from channels import Json
from gateway.pending.changes import KEPT_SECONDS
from gateway.pending.index import Index, IndexEntry
from gateway.pending.lines import read_entries, seal_line
from gateway.pending.seal import Keyring
from gateway.pending.sealed_records import open_value, seal_value
from gateway.privacy.scope import Extent
from gateway.store.base import Store
from gateway.store.errors import Conflict
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key, LogEntry
from gateway.stored import keys
from gateway.stored.people import PeopleOf
from gateway.tools.pending_action import PendingAction

T = TypeVar("T")

_ATTEMPTS: Final = 5
_PAGE: Final = 500
_MOST: Final = 10_000
_REMOVED: Final = "(removed)"
_EDITED: Final = "The person edited an earlier message:"
"""The beginning of the note of an edit. The note names no person."""


async def clean(store: Store, keyring: Keyring, scope: Extent, conversation: str) -> Counter[str]:
    """Remove the person and these actions from a conversation. Return the counts of each kind.

    Raises Conflict if the conversation keeps changing.
    """
    attempt = 0
    while True:
        attempt += 1
        transaction = Transaction(partition=store.partition(conversation))
        gone = await _lines(store, keyring, scope, conversation, transaction)
        for waiting in await store.mailbox(conversation, _MOST):
            if scope.is_by_person(waiting.body) or scope.tells(waiting.body):
                transaction.consume.append((conversation, waiting.seq))
            elif _is_decided(scope, waiting.body):
                body = {name: value for name, value in waiting.body.items() if name not in ("by", "remark", "mac")}
                changed = keyring.stamped("event", conversation, body | {"by": None, "remark": None})
                transaction.replace.append((conversation, waiting.seq, changed))
        parts = [part.part_id for part in await store.outbox(conversation) if scope.tells(part.body)]
        timers = [
            timer.timer_id
            for timer in await store.timers(conversation)
            if scope.is_by_person(timer.incoming.body) or scope.tells(timer.incoming.body)
        ]
        transaction.sent, transaction.cancel = parts, timers
        gone.update({"events": len(transaction.consume), "parts": len(parts), "timers": len(timers)})
        await _notes(store, keyring, scope, conversation, transaction)
        await _decisions(store, keyring, scope, conversation, transaction)
        try:
            await store.commit(transaction)
        except Conflict:
            if attempt == _ATTEMPTS:
                raise
        else:
            return gone


async def no_longer_there(store: Store, scope: Extent, group: str) -> None:
    """Remove the person from the people of a group. Call this last: no other record links the person to the group."""
    key = keys.key(store, group, keys.people)
    record = (await store.get([key]))[key]
    there = PeopleOf.from_json(record.value)
    if scope.person in there.people:
        others = {name: at for name, at in there.people.items() if name != scope.person}
        put = Put(replace(there, people=others).to_json(), KEPT_SECONDS)
        expect = {key.name: record.version}
        await store.commit(Transaction(partition=key.partition, puts={key.name: put}, expect=expect))


async def lines_of(store: Store, log: Key) -> list[LogEntry]:
    """Return all lines of a log."""
    found: list[LogEntry] = []
    while page := await store.read(log, after=found[-1].seq if found else 0, first=_PAGE):
        found += page
    return found


def names_in(scope: Extent, lines: Iterable[LogEntry]) -> frozenset[str]:
    """Return the person's names as a speaker in these lines of a transcript, and in the actions."""
    said = {
        entry.value.get("speaker")
        for entry in lines
        if isinstance(entry.value, dict) and scope.person is not None and entry.value.get("person") == scope.person
    }
    said |= {each.requester_handle for each in scope.actions.values() if each.requester == scope.person}
    said |= {each.requester_name for each in scope.actions.values() if each.requester == scope.person}
    for each in scope.decided.values():
        said |= {vote.name for vote in each.votes if vote.person == scope.person}
        said |= {each.decided_name} if each.decided_by == scope.person else set()
    return frozenset(name for name in said if isinstance(name, str) and name)


def without(scope: Extent, conversation: str, entry: Json, names: frozenset[str], remarks: frozenset[str]) -> Json:
    """Return a line of a log without the words of the person and of these actions, or the same line without any."""
    if not isinstance(entry, dict):
        return entry
    by = entry.get("person")
    if by is not None and by == scope.person:
        return {"role": "event", "content": _REMOVED}
    if entry.get("role") == "event":
        is_group = conversation in scope.groups
        lines = str(entry.get("content", "")).split("\n")
        kept = [line for line in lines if not _is_of(scope, line, names if is_group else frozenset(), is_group)]
        text = _replaced("\n".join(kept), remarks)
        return entry if text == entry.get("content") else {**entry, "content": text or _REMOVED}
    if entry.get("from") == "bot":
        if scope.tells(entry):
            return {**entry, "text": _REMOVED, "small": 0, "buttons": [], "media": [], "asks": []}
        text = _replaced(str(entry.get("text", "")), remarks | (names if remarks else frozenset()))
        return entry if text == entry.get("text", "") else {**entry, "text": text}
    return entry


def _is_decided(scope: Extent, body: Mapping[str, Json]) -> bool:
    """Return True for the news of another's action, decided by the person."""
    action = scope.decided.get(str(body.get("action_id")))
    return action is not None and action.decided_by == scope.person and body.get("by") is not None


def _is_of(scope: Extent, line: str, names: frozenset[str], is_group: bool) -> bool:
    """Return True for a line of a note about these actions, or possibly written by the person."""
    return scope.tells(line) or line.startswith(tuple(f"{name}: " for name in names) + ((_EDITED,) if is_group else ()))


def _replaced(text: str, words: frozenset[str]) -> str:
    for each in sorted(words, key=len, reverse=True):
        text = text.replace(each, _REMOVED)
    return text


async def _lines(
    store: Store, keyring: Keyring, scope: Extent, conversation: str, transaction: Transaction
) -> Counter[str]:
    """Rewrite the lines of both logs. Return the number of rewritten lines.

    Genuine lines of the transcript are sealed again with the same place. Other lines get no seal.
    """
    gone: Counter[str] = Counter()
    decided = [each for each in scope.decided.values() if each.conversation == conversation]
    remarks = frozenset(each.remark for each in decided if each.remark and each.decided_by == scope.person)
    names: frozenset[str] = frozenset()
    for name in (keys.transcript, keys.visible_log):
        log = keys.key(store, conversation, name)
        lines = await lines_of(store, log)
        genuine = read_entries(keyring, conversation, lines if name is keys.transcript else ())
        bare = {entry.seq: entry.value for entry in genuine.entries}
        names = names or names_in(scope, lines)
        for entry in lines:
            value = bare.get(entry.seq, entry.value)
            kept = without(scope, conversation, value, names, remarks)
            if kept != value:
                place = genuine.places.get(entry.seq)
                stored = kept if place is None else seal_line(keyring, conversation, kept, place)
                transaction.rewrite.append((log.name, entry.seq, stored))
                gone["lines"] += 1
    return gone


async def _notes(store: Store, keyring: Keyring, scope: Extent, conversation: str, transaction: Transaction) -> None:
    """Remove the lines of these actions, and edits in a group, from the folded notes."""
    key = keys.key(store, conversation, keys.folded_notes)
    record = (await store.get([key]))[key]
    match open_value(keyring, key.name, record.value):
        case {"lines": list(lines)}:
            is_group = conversation in scope.groups
            kept: list[Json] = [line for line in lines if not _is_of(scope, str(line), frozenset(), is_group)]
            if kept != lines:
                transaction.expect[key.name] = record.version
                transaction.puts[key.name] = Put(seal_value(keyring, key.name, {"lines": kept}), keeps_end=True)


# ── decisions ──


async def _decisions(
    store: Store, keyring: Keyring, scope: Extent, conversation: str, transaction: Transaction
) -> None:
    """Remove the person from the records of others' actions, and remove the person and these actions from the index."""
    seals: dict[str, str] = {}
    for name, action in scope.decided.items():
        if action.conversation == conversation:
            key = Key(transaction.partition, keys.action(name))
            record = (await store.get([key]))[key]
            sealed = keyring.seal(key.name, _undecided(scope, action).to_text())
            seals[name] = str(sealed["seal"])
            transaction.puts[key.name] = Put(sealed, KEPT_SECONDS)
            transaction.expect[key.name] = record.version
    key = keys.key(store, conversation, keys.index)
    record = (await store.get([key]))[key]
    sealed_index = keyring.open(key.name, record.value)
    if sealed_index is None:
        return
    index = Index.from_text(sealed_index.text)
    cleaned = _without_person(scope, index)
    if seals or cleaned != index:
        put = keyring.seal(key.name, cleaned.written(seals, await store.now()).to_text())
        transaction.puts[key.name] = Put(put, None if cleaned.live else KEPT_SECONDS)
        transaction.expect[key.name] = record.version


def _without_person(scope: Extent, index: Index) -> Index:
    gone = frozenset(scope.actions)

    def others(entries: tuple[IndexEntry, ...]) -> tuple[IndexEntry, ...]:
        return tuple(
            replace(
                each,
                approvers=_others(each.approvers, scope),
                ballots=tuple(ballot for ballot in each.ballots if ballot[0] != scope.person),
            )
            for each in entries
            if each.action_id not in gone
        )

    return replace(
        index,
        open=others(index.open),
        going=others(index.going),
        lately=others(index.lately),
        acted=_without_key(index.acted, scope),
        stopped=_without_key(index.stopped, scope),
        reminded=_without_key(index.reminded, scope),
        refusals=tuple(each for each in index.refusals if each.requester != scope.person),
        changing={who: what for who, what in _without_key(index.changing, scope).items() if what not in gone},
        permissions=tuple(
            each for each in index.permissions if each.person != scope.person and each.action_id not in gone
        ),
        said=tuple(replace(each, shows=each.shows - gone, tells=each.tells - gone) for each in index.said),
        plans=tuple(
            replace(
                each,
                ends=tuple(end for end in each.ends if end.action_id not in gone),
                rest=tuple(action_id for action_id in each.rest if action_id not in gone),
            )
            for each in index.plans
        ),
    )


def _undecided(scope: Extent, action: PendingAction) -> PendingAction:
    """Return a settled action of another person without the forgotten person."""
    by_person = action.decided_by == scope.person
    ballot_of = action.ballot_of
    return replace(
        action,
        approvers=_others(action.approvers, scope),
        standins=_others(action.standins, scope),
        votes=tuple(vote for vote in action.votes if vote.person != scope.person),
        ballots=tuple(ballot for ballot in action.ballots if ballot.person != scope.person),
        ballot_of=replace(ballot_of, people=_others(ballot_of.people, scope)) if ballot_of is not None else None,
        decided_by=None if by_person else action.decided_by,
        decided_name=None if by_person else action.decided_name,
        remark=None if by_person else action.remark,
    )


def _others(people: tuple[str, ...], scope: Extent) -> tuple[str, ...]:
    return tuple(each for each in people if each != scope.person)


def _without_key(people: Mapping[str, T], scope: Extent) -> Mapping[str, T]:
    return {who: value for who, value in people.items() if who != scope.person}
