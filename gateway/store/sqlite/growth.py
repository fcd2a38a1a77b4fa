"""Growth of the write-ahead log of a database, while another program reads the database without end."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

__all__ = ["KEPT_BYTES", "Growth"]

log = logging.getLogger("askfirst.store")

_MIB: Final = 1024**2
KEPT_BYTES: Final = 16 * _MIB
"""The size of the log after a checkpoint. Without this limit, SQLite keeps its greatest size
(https://sqlite.org/pragma.html#pragma_journal_size_limit). It is usually 4 MiB, and more after a large commit."""
_MOST_BYTES: Final = 32 * _MIB


class Growth:
    """The write-ahead log of the database at `path` (None: in memory, without one).

    SQLite cannot move the part of it into the database that is newer than the oldest open read. So a reader that does
    not end lets it grow until the disk is full. A change is logged once.
    """

    def __init__(self, path: Path | None) -> None:
        self._log = None if path is None else Path(f"{path}-wal")
        self._grows = False

    def look(self) -> None:
        """Compare its size with the limit, and log a change. It raises no error."""
        if self._log is None:
            return
        try:
            size = os.stat(self._log).st_size  # noqa: PTH116
        except OSError:  # opening the file reports it
            return
        if (size > _MOST_BYTES) is self._grows:
            return
        self._grows = not self._grows
        if self._grows:
            log.warning(
                "%s has %d MiB and grows: another program reads %s without end (a sqlite3 shell in a transaction, a "
                "backup that hangs); end that one, or the disk fills up",
                self._log,
                size // _MIB,
                self._log.name.removesuffix("-wal"),
            )
        else:
            log.warning("%s is small again", self._log)
