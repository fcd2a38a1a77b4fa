"""The secret of an embedded store, kept beside the file for every process opening the file."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path

from channels import MissingSetting
from gateway.config.settings import Settings
from gateway.store.base import Store
from gateway.store.errors import StoreRefused
from gateway.store.private import keep_private
from gateway.store.sqlite import SqliteStore

log = logging.getLogger("askfirst.store")

_LEAST_BYTES = 32
_FEWEST_DIFFERENT = 8
"""43 random base64 characters have fewer different characters with a probability below 10^-30."""


def secret_of(store: Store) -> Sequence[bytes]:
    """Return the secret of an embedded store. Other stores have no place for a secret: return none.

    Raises StoreRefused.
    """
    if not isinstance(store, SqliteStore):
        return ()
    return (new_secret() if store.path is None else kept_secret(store.path),)


def keys_of(settings: Settings, store: Store) -> Sequence[bytes]:
    """Return the sealing keys of a store: from the settings, else the secret beside the file.

    Raises MissingSetting if there is neither, and StoreRefused if the secret is unreadable, damaged or guessable.
    """
    keys = settings.keys or secret_of(store)
    if not keys:
        raise MissingSetting(
            "ASKFIRST_SECRET", f"{type(store).__name__} outlives this process: set it, so that open questions hold"
        )
    return keys


def new_secret() -> bytes:
    """Return a random secret, for a store without a file."""
    return secrets.token_bytes(_LEAST_BYTES)


def kept_secret(database: Path) -> bytes:
    """Return the secret beside a database file. A missing secret is made, readable by the owner alone.

    Raises StoreRefused.
    """
    path = database.with_name(f"{database.name}.secret")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            if database.exists() and database.stat().st_size:
                log.warning(
                    "%s is missing: a new secret is made. What was signed with the old one (open asks, people who were "
                    "let in, links, chat sessions) holds no longer; if you have a backup of it, stop and put it back",
                    path,
                )
            _write_once(path, secrets.token_urlsafe(_LEAST_BYTES))
        keep_private(path)
        secret = path.read_bytes().strip()
    except OSError as error:
        raise StoreRefused(
            f"{path} cannot be read or made: {error.strerror}. Give this user a directory it may write to."
        ) from error
    if len(secret) < _LEAST_BYTES:
        raise StoreRefused(
            f"{path} is damaged. Restore it from a backup, or delete it: a new one is made, "
            "and what was signed with the old one (open asks, links, chat sessions) holds no longer."
        )
    if len(set(secret)) < _FEWEST_DIFFERENT:
        raise StoreRefused(
            f"{path} can be guessed: it has too few different characters. Delete it, so that a random one is made; "
            "what was signed with it (open asks, links, chat sessions) holds no longer."
        )
    return secret


def _write_once(path: Path, text: str) -> None:
    """Write the file whole or not at all. A file written meanwhile by another process is kept."""
    with tempfile.NamedTemporaryFile("w", prefix=f".{path.name}.", dir=path.parent) as file:  # made for its owner alone
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(file.name, path)
