"""Files: the ones that only forgotten lines and records name are deleted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from channels import Json
from gateway.artifacts import ArtifactStore
from gateway.forgetting.scope import Extent
from gateway.forgetting.shared import lines_of, names_in, without
from gateway.store.base import Store
from gateway.store.codec import dead_to_text, encode
from gateway.stored import keys

__all__ = ["drop_files"]

_HASH: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_NOTE: Final = re.compile(rf"{keys.FILES}([0-9a-f]{{64}})/(.+)", re.DOTALL)
"""The name of `keys.kept_file`."""
_MOST: Final = 10_000


async def drop_files(store: Store, artifacts: ArtifactStore, scope: Extent) -> int:
    """Delete the files that no line or record names but the forgotten ones. Return their number.

    It comes before the lines and records are removed: if it is killed, a repeat finds the same files.
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
        (going if letter.conversation in scope.own else staying).update(_HASH.findall(dead_to_text(letter)))


def _hashes(value: Json) -> Iterator[str]:
    yield from _HASH.findall(encode(value))
