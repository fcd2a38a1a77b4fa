"""The order of a forgetting. Records leading to other records are removed last, so a repeat finds the rest.

Files named only by forgotten lines and records are deleted.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from channels import Json
from gateway.artifacts import ArtifactStore
from gateway.pending.audit import OPERATOR
from gateway.pending.deciding import withdraw
from gateway.pending.loading import Counters, load_actions
from gateway.pending.seal import Keyring
from gateway.privacy.scope import Extent, NotForgotten, find_scope, refuse_what_runs
from gateway.privacy.shared import clean, lines_of, names_in, no_longer_there, without
from gateway.store.base import Store
from gateway.store.codec import dead_to_text, encode
from gateway.store.embedded import is_embedded
from gateway.store.errors import Conflict
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Dead, Forgotten, Key
from gateway.stored import keys

_CACHES: Final = ("cached/", keys.overheard(""))
"""Prefixes of records removed for all people. These names contain no person, and the records last minutes or a day."""
_OF_GROUPS: Final = ("raw/", "trace/", "message/", f"{keys.REPEATED}/")
"""Prefixes of a group's records removed as a whole."""
_NEWCOMERS_SECONDS: Final = 86_400.0


async def forget(
    store: Store, keyring: Keyring, bot: str, who: str, artifacts: ArtifactStore | None = None
) -> Mapping[str, int]:
    """Remove all data of a conversation of this bot, or of a person like ``telegram:123:456``.

    Return the removed counts of each kind; empty if there was no data. `artifacts`: the files. Only files named by this
    data alone are deleted. Raises NotForgotten during a turn or an action of the person or conversation, and
    StoreUnavailable, also while another program reads the file of the store. Then a repeat removes the rest.
    """
    scope = await find_scope(store, bot, who)
    await refuse_what_runs(store, scope)
    gone: Counter[str] = Counter()
    try:
        for name, action in scope.actions.items():
            if action.open and action.ballot_of is None:
                await _withdraw(store, keyring, action.conversation, name)
        if artifacts is not None:
            gone["files"] += await drop_files(store, artifacts, scope)
        for conversation in sorted(scope.shared):
            gone += await clean(store, keyring, scope, conversation)
        gone["dead letters"] += await _drop_letters(store, scope)
        await _forget_newcomer(store, keyring, scope)
        await _clean_security(store, scope)
        gone += await _remove(store, scope)
    except Conflict as error:
        raise NotForgotten(f"its data changes just now ({error}): try again") from error
    if is_embedded(store):
        await store.scrub(anew=True)
    return {what: count for what, count in gone.items() if count}


async def _withdraw(store: Store, keyring: Keyring, conversation: str, name: str) -> None:
    """Close an open action, with a line in the audit. Other chats are not notified: the question is removed too."""
    actions = await load_actions(
        store,
        conversation,
        keyring=keyring,
        counters=Counters(),
        drift=lambda _: None,
        also=[name],
    )
    withdraw(actions, None, actions.now, action_id=name, by=OPERATOR)
    transaction = Transaction(partition=store.partition(conversation))
    await actions.write(transaction)
    transaction.accept.clear()
    transaction.hand_over.clear()
    await store.commit(transaction)


async def _remove(store: Store, scope: Extent) -> Counter[str]:
    """Remove lanes and names: of the groups, of the conversations, and at last of the person and the actions."""
    caches = [key.name for prefix in _CACHES for key, _ in await store.scan(prefix)]
    await store.forget(Forgotten(subjects=frozenset(caches)))
    ends = tuple(f"/{each}" for each in scope.groups)
    named = {key.name for prefix in _OF_GROUPS for key, _ in await store.scan(prefix) if key.name.endswith(ends)}
    named |= {key.name for key, record in await store.scan("message/") if scope.tells(record.value)}
    gone: Counter[str] = Counter()
    gone.update(await store.forget(Forgotten(lanes=scope.lanes, subjects=frozenset(named))))
    for group in sorted(scope.groups):
        await no_longer_there(store, scope, group)
    kept = frozenset(keys.opted_out(each) for each in scope.own)
    tokens = scope.tokens | await _tokens(store, scope)
    places = frozenset(each.partition("/")[2] for each in scope.own) if scope.person is not None else frozenset()
    gone.update(await store.forget(Forgotten(lanes=scope.own, kept=kept)))
    subjects = frozenset({*scope.actions, *tokens, *places, *_strangers(scope.person)})
    gone.update(await store.forget(Forgotten(lanes=frozenset(scope.actions), subjects=subjects, kept=kept)))
    return gone


async def _tokens(store: Store, scope: Extent) -> frozenset[str]:
    """Return the hashes of the buttons and links in these conversations, also of already removed actions."""
    found = [*await store.scan(keys.token("")), *await store.scan(keys.SHORT_LINKS)]
    return frozenset(
        key.name.rpartition("/")[2]
        for key, record in found
        if isinstance(record.value, dict) and record.value.get("conversation") in scope.own
    )


def _strangers(person: str | None) -> frozenset[str]:
    """Return the person, and the hashes in the names of the rates of the person's refused messages."""
    if person is None:
        return frozenset()
    hashes = {hashlib.sha256(f"{kind}/{person}".encode()).hexdigest() for kind in ("person", "place")}
    return frozenset({person, *hashes})


async def _drop_letters(store: Store, scope: Extent) -> int:
    """Drop the dead letters of the person in other conversations."""
    return sum([await store.drop(each.dead_id) for each in await store.dead_letters() if _is_theirs(scope, each)])


def _is_theirs(scope: Extent, letter: Dead) -> bool:
    if letter.conversation in scope.own:
        return False  # it goes with its lane
    if letter.incoming is not None and scope.is_by_person(letter.incoming.body):
        return True
    text = dead_to_text(letter)
    return any(needle in text for needle in scope.needles)


async def _forget_newcomer(store: Store, keyring: Keyring, scope: Extent) -> None:
    key = Key(store.partition(keys.NEWCOMERS), keys.NEWCOMERS)
    record = (await store.get([key]))[key]
    sealed = keyring.open(key.name, record.value)
    known = json.loads(sealed.text) if sealed is not None else []
    others = [each for each in known if each.get("person") != scope.person]
    if others != known:
        put = Put(keyring.seal(key.name, json.dumps(others)), _NEWCOMERS_SECONDS)
        expect = {key.name: record.version}
        await store.commit(Transaction(partition=key.partition, puts={key.name: put}, expect=expect))


async def _clean_security(store: Store, scope: Extent) -> None:
    """Remove the person and the conversations from the lines of the security log. The lines stay."""
    for partition in store.partitions:
        lines = await lines_of(store, Key(partition, keys.SECURITY))
        rewritten: list[tuple[str, int, Json]] = []
        for entry in lines:
            if isinstance(entry.value, dict):
                theirs = scope.person is not None and entry.value.get("person") == scope.person
                if theirs or entry.value.get("conversation") in scope.own:
                    changed = {**entry.value, "person": None, "conversation": None}
                    rewritten.append((keys.SECURITY, entry.seq, changed))
        if rewritten:
            await store.commit(Transaction(partition=partition, rewrite=rewritten))


_HASH: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_NOTE: Final = re.compile(rf"{keys.FILES}([0-9a-f]{{64}})/(.+)", re.DOTALL)
"""The name of `keys.kept_file`."""
_MOST: Final = 10_000


async def drop_files(store: Store, artifacts: ArtifactStore, scope: Extent) -> int:
    """Delete the files named by forgotten lines and records alone. Return the number of files.

    Runs before the removal of the lines and records: after a kill, a repeat finds the same files.
    """
    if not await artifacts.names():
        return 0
    going, staying = set[str](), set[str]()
    for prefix in (keys.transcript(""), keys.visible_log("")):
        for log in await store.logs(prefix):
            conversation = log.name.removeprefix(prefix)
            lines = await lines_of(store, log)
            names = names_in(scope, lines) if conversation in scope.groups else frozenset()
            for entry in lines:
                kept = entry.value
                if conversation in scope.own:
                    kept = None
                elif conversation in scope.shared:
                    kept = without(scope, conversation, kept, names, frozenset())
                going.update(_hashes(entry.value))
                staying.update(_hashes(kept))
    for key, record in await store.scan(""):
        if noted := _NOTE.fullmatch(key.name):
            (going if noted[2] == scope.person else staying).add(noted[1])
        (going if _goes(scope, key.name, record.value) else staying).update(_hashes(record.value))
    await _waiting(store, scope, going, staying)
    return await artifacts.discard(going - staying)


def _goes(scope: Extent, name: str, value: Json) -> bool:
    ends = any(name.endswith(f"/{each}") for each in (*scope.own, *scope.lanes))
    return ends or name.removeprefix(keys.action("")) in scope.actions or name.startswith("cached/")


async def _waiting(store: Store, scope: Extent, going: set[str], staying: set[str]) -> None:
    """Add the files of waiting events and parts, of timers and of dead letters."""
    prefix = keys.people("")
    places = {key.name.removeprefix(prefix) for key, _ in await store.scan(prefix)} | scope.own | scope.shared
    events = [(each.incoming.conversation, each.incoming.body) for each in await store.timers()]
    for conversation in places:
        events += [(conversation, each.body) for each in await store.mailbox(conversation, _MOST)]
        for part in await store.outbox(conversation):
            goes = conversation in scope.own or scope.tells(part.body)
            (going if goes else staying).update(_hashes(dict(part.body)))
    for conversation, body in events:
        goes = conversation in scope.own or scope.is_by_person(body) or scope.tells(body)
        (going if goes else staying).update(_hashes(dict(body)))
    for letter in await store.dead_letters():
        goes = letter.conversation in scope.own or _is_theirs(scope, letter)
        (going if goes else staying).update(_HASH.findall(dead_to_text(letter)))


def _hashes(value: Json) -> Iterator[str]:
    yield from _HASH.findall(encode(value))
