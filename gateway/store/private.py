"""Files readable by the owner alone."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

log = logging.getLogger("askfirst.store")


def keep_private(path: Path) -> None:
    """Remove the rights of other users on a file, and log the change. Never raises; an absent file is skipped."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)  # noqa: PTH116
        if mode & 0o077 == 0:
            return
        os.chmod(path, mode & 0o700)  # noqa: PTH101
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("other users may read %s (%s): have its owner do chmod 600", path, error.strerror)
    else:
        log.warning("other users could read %s (mode %04o): now its owner alone can", path, mode)
