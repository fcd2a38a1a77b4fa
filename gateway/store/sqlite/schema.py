"""The file of an embedded store: the lock, the tables, and the checks at the opening."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from gateway.store.errors import StoreInUse, StoreRefused, StoreUnavailable
from gateway.store.form import FORM, other_form
from gateway.store.private import keep_private
from gateway.store.sqlite.files import KEPT_BYTES, warn_of_network

_APPLICATION_ID = 0x41534B46  # "ASKF", in the header of every file of ours

_TABLE = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)
_TABLES = """
CREATE TABLE clock (
    high_water INTEGER NOT NULL        -- the latest moment any row knows of
);
INSERT INTO clock VALUES (0);

CREATE TABLE seen (                    -- ids of accepted events
    event_id TEXT PRIMARY KEY,
    until INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX seen_until ON seen (until);

CREATE TABLE event (                   -- the mailboxes, and through `pointed` the decision lane
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation TEXT NOT NULL,
    kind TEXT NOT NULL,                -- of the lane: turn or memory
    stamp INTEGER NOT NULL,
    body TEXT NOT NULL,
    pointed INTEGER NOT NULL,
    wakes INTEGER NOT NULL,
    collects INTEGER NOT NULL DEFAULT 0,
    about TEXT,                        -- of a note: a later one of the same replaces it
    tries INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX event_conversation ON event (conversation);
CREATE INDEX event_about ON event (conversation, about) WHERE about IS NOT NULL;
CREATE INDEX event_pointed ON event (pointed) WHERE pointed = 1;

CREATE TABLE mail (                    -- how many events wait, without notes
    waiting INTEGER NOT NULL
);
INSERT INTO mail VALUES (0);
CREATE TRIGGER event_in AFTER INSERT ON event WHEN NEW.wakes OR NEW.pointed
BEGIN UPDATE mail SET waiting = waiting + 1; END;
CREATE TRIGGER event_out AFTER DELETE ON event WHEN OLD.wakes OR OLD.pointed
BEGIN UPDATE mail SET waiting = waiting - 1; END;
CREATE TRIGGER event_unpointed AFTER UPDATE OF pointed ON event WHEN OLD.pointed AND NOT (NEW.wakes OR NEW.pointed)
BEGIN UPDATE mail SET waiting = waiting - 1; END;

CREATE TABLE part (                    -- the outboxes
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    part_id TEXT NOT NULL UNIQUE,
    conversation TEXT NOT NULL,
    stamp INTEGER NOT NULL,
    body TEXT NOT NULL,
    pool TEXT NOT NULL DEFAULT '',
    tries INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX part_conversation ON part (conversation);

CREATE TABLE launch (                  -- actions to be executed
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    action_id TEXT NOT NULL
);
CREATE INDEX launch_action ON launch (action_id);

CREATE TABLE lane (                    -- what can be leased, and what has to be remembered between leases
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    lane TEXT NOT NULL,
    pool TEXT NOT NULL DEFAULT '',     -- out: that of its parts
    ready_at INTEGER,                  -- NULL: no work; else since when (or from when on) it may be leased
    rests INTEGER NOT NULL DEFAULT 0,  -- only notes wait: ready once they are old
    due INTEGER NOT NULL DEFAULT 0,    -- not before, also for work that comes later
    tries INTEGER NOT NULL DEFAULT 0,
    died INTEGER NOT NULL DEFAULT 0,   -- the lease before was never finished
    worker TEXT,                       -- NULL: not held
    fence INTEGER,
    until REAL,                        -- on the machine's monotonic clock: means nothing to another process
    upto INTEGER,                      -- the last seq that was handed out (out: the first)
    UNIQUE (kind, lane)
);
CREATE INDEX lane_free ON lane (kind, ready_at) WHERE worker IS NULL;
CREATE INDEX lane_pool ON lane (kind, pool, ready_at) WHERE worker IS NULL;
CREATE INDEX lane_held ON lane (kind, until) WHERE worker IS NOT NULL;

CREATE TABLE step (                    -- checkpoints of turns
    seq INTEGER PRIMARY KEY,
    conversation TEXT NOT NULL,
    value TEXT NOT NULL
);
CREATE INDEX step_conversation ON step (conversation);

CREATE TABLE signal (                  -- for the holder of a turn
    seq INTEGER PRIMARY KEY,
    conversation TEXT NOT NULL,
    value TEXT NOT NULL
);
CREATE INDEX signal_conversation ON signal (conversation);

CREATE TABLE record (
    name TEXT PRIMARY KEY,
    value TEXT,                        -- NULL: deleted, kept a while for its version
    version INTEGER NOT NULL,
    expires INTEGER
) WITHOUT ROWID;
CREATE INDEX record_expires ON record (expires) WHERE expires IS NOT NULL;

CREATE TABLE log (
    log TEXT NOT NULL,
    seq INTEGER NOT NULL,
    stamp INTEGER NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (log, seq)
) WITHOUT ROWID;

CREATE TABLE emptied (                 -- logs that a cut has left without lines
    upto INTEGER NOT NULL              -- the greatest number of a line in any of them
);
INSERT INTO emptied VALUES (0);

CREATE TABLE spent (                   -- counts that are only added to
    name TEXT PRIMARY KEY,
    amounts TEXT NOT NULL,             -- a JSON object of integers
    ends INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX spent_ends ON spent (ends);

CREATE TABLE timer (
    timer_id TEXT PRIMARY KEY,
    due INTEGER NOT NULL,
    incoming TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX timer_due ON timer (due);

CREATE TABLE cell (                    -- GCRA: the theoretical arrival time of the next unit
    name TEXT PRIMARY KEY,
    arrival INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX cell_arrival ON cell (arrival);

CREATE TABLE dead (
    seq INTEGER PRIMARY KEY,
    dead_id TEXT NOT NULL UNIQUE,
    conversation TEXT NOT NULL,
    reason TEXT NOT NULL,
    stamp INTEGER NOT NULL,
    held TEXT NOT NULL
);
"""

_MENDS = {
    "FULL": "the disk is full: make room",
    "BUSY": "another program holds the file",
    "IOERR": "the disk does not take or give it: see whether it is full, read-only or broken",
    "READONLY": "this user may not write to it",
    "CANTOPEN": "this user may not write to its directory",
}


def lock(path: Path) -> FileLock:
    """Make this process the owner of the file. Raises StoreInUse if another process is.

    Raises StoreRefused without write access. The lock is the operating system's, and ends with the process. On a
    network file system the lock may not hold, and a warning is logged.
    """
    side = Path(f"{path}.lock")
    held = FileLock(side, timeout=0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        warn_of_network(path)
        held.acquire()
    except Timeout:
        owner = side.read_text().strip() or "unknown"
        raise StoreInUse(
            f"{path} is in use by process {owner}; an embedded store belongs to one process. "
            "Stop that one first, or name another file in ASKFIRST_STORE."
        ) from None
    except OSError as error:
        raise StoreRefused(
            f"{side} cannot be written: {error.strerror}. Give this user a directory it may write to."
        ) from error
    with suppress(OSError):  # the id is only for the error text; a full disk is reported by the first write
        side.write_text(f"{os.getpid()}\n")
    return held


def connect(path: Path | None) -> sqlite3.Connection:
    """Open the database (None: in memory), and create the tables of a new database.

    Raises StoreRefused, and then the file is unchanged.
    """
    if path is None:
        return _prepared(sqlite3.connect(":memory:", isolation_level=None, cached_statements=256))
    logged = _size(f"{path}-wal") > 0
    if logged and not _size(path):  # SQLite would remove the log and start an empty database
        raise StoreRefused(f"{path} was removed, and {path}-wal, which belongs to it, was not: {_way_back(path)}.")
    if logged:
        # Closing a connection that may write moves the log into the file, even the log of another file.
        with closing(_opened(path, read_only=True)) as db, _refusing(path):
            _check(db, path)
    db = _opened(path)
    try:
        with _refusing(path):
            if not logged:
                _check(db, path)
            return _prepared(db)
    except StoreRefused:
        db.close()
        raise


def _opened(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # only this user may read people's messages
        for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
            keep_private(file)
        name = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
        return sqlite3.connect(name, uri=True, timeout=0.25, isolation_level=None, cached_statements=256)
    except (OSError, sqlite3.OperationalError) as error:
        raise StoreRefused(f"{path} cannot be opened: {error}. Check that this user may read and write it.") from error


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        what = mend(error.sqlite_errorname)
        refused = StoreInUse if error.sqlite_errorname.startswith("SQLITE_BUSY") else StoreRefused
        raise refused(
            f"{path} cannot be used ({error.sqlite_errorname}: {error}). It was left as it is: "
            f"{what or f'{_way_back(path)}, or name another file in ASKFIRST_STORE'}."
        ) from error


def _size(file: Path | str) -> int:
    try:
        return os.stat(file).st_size  # noqa: PTH116
    except OSError:  # opening the file reports it
        return 0


def _way_back(path: Path) -> str:
    """Return advice for an unusable file. SQLite takes any log beside a file for the file's own."""
    if not _size(f"{path}-wal"):
        return "restore it from a backup (docs/deploy.md)"
    return (
        f"if it was restored, remove {path}-wal and {path}-shm, which are of the file before; "
        "else restore it from a backup, and remove them then (docs/deploy.md)"
    )


def mend(errorname: str) -> str | None:
    """Return advice for an error not caused by the file, or None."""
    for kind, what in _MENDS.items():
        if errorname.startswith(f"SQLITE_{kind}"):
            return what
    return None


def check_form(db: sqlite3.Connection) -> None:
    """Raise StoreUnavailable if another program has changed the form of the open file."""
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    if version != FORM:
        raise StoreUnavailable(f"the store cannot be used: it {other_form(version)}")


def _check(db: sqlite3.Connection, path: Path) -> None:
    """Raise StoreRefused for a damaged file, or a file of another program or form."""
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    application: int = db.execute("PRAGMA application_id").fetchone()[0]
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if tables and application != _APPLICATION_ID:
        raise StoreRefused(f"{path} is a database of another program. Name another file in ASKFIRST_STORE.")
    if (tables or version) and version != FORM:
        raise StoreRefused(f"{path} {other_form(version)}")
    if version and (lost := sorted({*_TABLE.findall(_TABLES)} - tables)):
        raise StoreRefused(f"{path} is damaged (no table {lost[0]}). It was left as it is: {_way_back(path)}.")
    damage: str = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if damage != "ok":
        raise StoreRefused(f"{path} is damaged ({damage}). It was left as it is: {_way_back(path)}.")


def _prepared(db: sqlite3.Connection) -> sqlite3.Connection:
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute(f"PRAGMA journal_size_limit = {KEPT_BYTES}")
    db.execute("PRAGMA secure_delete = ON")  # what was removed is overwritten
    db.execute("PRAGMA temp_store = MEMORY")  # needs no other directory with free space
    if not db.execute("PRAGMA user_version").fetchone()[0]:
        db.executescript(
            f"BEGIN IMMEDIATE; {_TABLES};"
            f"PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {FORM}; COMMIT"
        )
    return db
