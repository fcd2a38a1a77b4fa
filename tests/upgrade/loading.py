"""The fixtures: what a process of another release left in its store when it was killed, put into a fresh one."""

from __future__ import annotations

import json
import lzma
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from redis import Redis

from channels import Json

__all__ = ["PREFIX", "Asked", "Manifest", "load_redis", "load_sqlite", "pack", "unpack"]

PREFIX = "askfirst"
"""The keys of a Redis fixture begin with it."""
_RESTORE = {"string": "set", "list": "rpush", "set": "sadd"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An action of a fixture, as it stood when its process was killed."""

    invoice: str
    """The plot that it belongs to, and its number there: ``SOLO-7``."""
    id: str
    code: str
    kind: str
    args: Mapping[str, Json]
    person: str
    """The requester, as written."""
    state: str
    tokens: tuple[tuple[str, str], ...]
    """(confirm, cancel) of each showing, oldest first; those of a prompt that was not sent yet are among them."""
    chat: int = 0
    user: int = 0
    """On Telegram: the chat where it was asked, and the requester."""
    app: tuple[str, str | None] | None = None
    """From `ask_channel`: the user and the conversation."""

    @property
    def plot(self) -> str:
        return self.invoice.partition("-")[0]

    @property
    def number(self) -> int:
        return int(self.invoice.partition("-")[2])

    @property
    def effect(self) -> tuple[str, Mapping[str, Json]]:
        return self.kind, self.args


class Manifest:
    """What the tests know of a fixture."""

    def __init__(self, stored: Any) -> None:
        self.written_at = datetime.fromisoformat(stored["written_at"])
        self.counts: Mapping[str, int] = stored["counts"]
        """What waited in the store."""
        self.numbers: list[int] = stored["numbers"]
        """Ids that no Telegram message and no update has had."""
        self.people: list[tuple[int, str, str]] = [tuple(each) for each in stored["people"]]
        self.groups: list[tuple[int, str]] = [tuple(each) for each in stored["groups"]]
        self.messages: list[tuple[int, int, dict[str, str]]] = [tuple(each) for each in stored["messages"]]
        """Chat, message id, and the buttons: label -> token."""
        self.said: Mapping[str, list[tuple[int, str]]] = stored["said"]
        """Kind -> chat and text of what was written, or is to be."""
        self.in_checkpoints: list[str] = stored["in_checkpoints"]
        """Invoices that were asked about in turns that died before their end: there is no action of them yet."""
        self.actions = {each["invoice"]: _asked(each) for each in stored["actions"]}

    def of(self, *plots: str) -> list[Asked]:
        return [action for action in self.actions.values() if action.plot in plots]


def _asked(stored: dict[str, Any]) -> Asked:
    app = tuple(stored.pop("app")) if "app" in stored else None
    tokens = tuple((confirm, cancel) for confirm, cancel in stored.pop("tokens"))
    return Asked(**stored, app=app, tokens=tokens)


def pack(path: Path, fixture: dict[str, Json]) -> int:
    """Write a fixture; its size in bytes."""
    text = json.dumps(fixture, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    return path.stat().st_size


def unpack(path: Path) -> dict[str, Any]:
    """A fixture: its manifest, the secret, and what the store held."""
    fixture: dict[str, Any] = json.loads(lzma.decompress(path.read_bytes()))
    return fixture


def load_sqlite(fixture: dict[str, Any], directory: Path) -> Manifest:
    """Make ``askfirst.db`` and its secret in a directory."""
    with closing(sqlite3.connect(directory / "askfirst.db")) as db:
        db.executescript(fixture["held"])
    (directory / "askfirst.db.secret").write_text(fixture["secret"])
    return Manifest(fixture["manifest"])


def load_redis(fixture: dict[str, Any], url: str, prefix: str) -> Manifest:
    """Make the keys, under another prefix."""
    with Redis.from_url(url) as redis, redis.pipeline(transaction=False) as pipe:
        for name, kind, lives, value in fixture["held"]:
            key = prefix + name.removeprefix(PREFIX)
            if kind in ("hash", "zset"):
                pipe.execute_command(*_pairs(kind, key, value))
            else:
                pipe.execute_command(_RESTORE[kind], key, *(value if isinstance(value, list) else [value]))
            if lives is not None:
                pipe.pexpire(key, lives)
        pipe.execute()
    return Manifest(fixture["manifest"])


def _pairs(kind: str, key: str, value: Any) -> list[Any]:
    if kind == "hash":
        return ["hset", key, *(word for pair in value.items() for word in pair)]
    return ["zadd", key, *(word for member, score in value for word in (score, member))]
