"""The chats of the people of the web chat.

A chat is a conversation. The record of a person names the ids alone. Title and time are read from the chat's own lines,
so a forgotten or expired chat is in no list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from channels import Address, Json, Person
from channels.formatting import read_markdown, to_plain
from gateway.store.base import Store
from gateway.store.errors import Conflict
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key, LogEntry
from gateway.stored import keys

MOST_CHATS: Final = 50
"""The most chats in a person's list: the last ones that were begun, beside the first."""
_KEPT_SECONDS: Final = 365 * 86_400.0
_TITLE_CHARACTERS: Final = 80
_READ_CHARACTERS: Final = 1_000
_AT_ONCE: Final = 10
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedChat:
    """A chat in the list of a person."""

    chat: str | None
    """The id. None: the first chat of the person."""
    title: str
    at: datetime
    """The time of the newest line."""


async def chats_of(store: Store, person: str) -> list[str]:
    """Return the ids of the chats of a person beside the first, in the order of their beginning.

    Raises StoreUnavailable.
    """
    key = _key(store, person)
    return _read((await store.get([key]))[key].value)[1]


class ChatLists:
    """The chats in a store. `conversation_of`: returns the conversation of an address."""

    def __init__(self, store: Store, conversation_of: Callable[[Address], str]) -> None:
        self._store, self._conversation_of = store, conversation_of

    async def note(self, address: Address) -> None:
        """Add a chat to the list of its person. Raises StoreUnavailable."""
        chat = address.thread
        if chat is None:
            return
        key, today = _key(self._store, _person(address)), (await self._store.now()).date().isoformat()
        for _ in range(_ATTEMPTS):
            record = (await self._store.get([key]))[key]
            day, chats = _read(record.value)
            if chat in chats and day == today:
                return
            if chat not in chats:
                chats.append(chat)
            put = Put({"day": today, "chats": [*chats[-MOST_CHATS:]]}, ttl_seconds=_KEPT_SECONDS)
            write = Transaction(partition=key.partition, expect={key.name: record.version}, puts={key.name: put})
            try:
                await self._store.commit(write)
                return
            except Conflict:  # another chat of the person begins at the same time
                continue

    async def listed(self, first: Address) -> list[ListedChat]:
        """Return the chats of a person, the newest first. `first`: the address of the person's first chat.

        Raises StoreUnavailable.
        """
        chats = await chats_of(self._store, _person(first))
        gate = asyncio.Semaphore(_AT_ONCE)

        async def found(chat: str | None) -> ListedChat | None:
            async with gate:
                return await self._chat(replace(first, thread=chat))

        all_found = await asyncio.gather(*(found(chat) for chat in (None, *chats)))
        return sorted((each for each in all_found if each is not None), key=lambda each: each.at, reverse=True)

    async def _chat(self, address: Address) -> ListedChat | None:
        """Return a chat. None without lines: the chat was forgotten, has expired, or waits for its first turn."""
        log = keys.key(self._store, self._conversation_of(address), keys.visible_log)
        begins = await self._store.read(log, first=1)
        if not begins:
            return None
        [newest] = await self._store.read(log, last=1) or begins
        return ListedChat(chat=address.thread, title=_title(begins[0]), at=newest.stamp)


def _person(address: Address) -> str:
    return str(Person(channel=address.channel, account=address.account, user_id=address.place))


def _key(store: Store, person: str) -> Key:
    # The person is in the name, so that forgetting the person removes the list.
    return Key(store.partition(person), keys.chats(person))


def _title(entry: LogEntry) -> str:
    """Return the first words of a chat, else the name of its first file."""
    line: Mapping[str, Json] = entry.value if isinstance(entry.value, dict) else {}
    text = str(line.get("text") or "")[:_READ_CHARACTERS]
    if line.get("from") == "bot":
        text = to_plain(read_markdown(text))
    words = next((words for row in text.splitlines() if (words := row.strip())), "")
    if not words:
        match line.get("files") or line.get("media"):
            case [{"filename": str(name)}, *_]:
                words = name
    return words if len(words) <= _TITLE_CHARACTERS else f"{words[: _TITLE_CHARACTERS - 1]}…"


def _read(stored: Json) -> tuple[str, list[str]]:
    """Return the day of the last write, and the ids in the order of their beginning."""
    match stored:
        case {"day": str(day), "chats": list(chats)}:
            return day, [each for each in chats if isinstance(each, str)]
    return "", []
