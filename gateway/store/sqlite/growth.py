"""Whether the write-ahead log of a database grows because somebody holds it open."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

__all__ = ["KEPT_BYTES", "Growth"]

log = logging.getLogger("askfirst.store")

_MIB: Final = 1024**2
KEPT_BYTES: Final = 16 * _MIB
"""What is left of the log once it was brought into the database: SQLite keeps the most it ever was, unless it is told
(https://sqlite.org/pragma.html#pragma_journal_size_limit). It is usually 4 MiB, and one large commit more."""
_MOST_BYTES: Final = 32 * _MIB


class Growth:
    """The log of the database at `path` (None: in memory, without one).

    SQLite brings no more of it into the database than the oldest open read needs not to see: a reader that does not end
    has it grow until the disk is full. Ours says once that it grows, and once that it does no more.
    """

    def __init__(self, path: Path | None) -> None:
        self._log = None if path is None else Path(f"{path}-wal")
        self._grows = False

    def look(self) -> None:
        """Compare its size with what it may be. It raises nothing."""
        if self._log is None:
            return
        try:
            size = os.stat(self._log).st_size  # noqa: PTH116
        except OSError:  # whoever opens it is told
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
