"""Network file systems, on which SQLite's write-ahead log does not work (https://sqlite.org/wal.html)."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

__all__ = ["file_system", "warn_of_network"]

log = logging.getLogger("askfirst.store")

_PROC = Path("/proc/self")
_NETWORK: Final = frozenset(
    (
        *("9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "fhgfs", "gpfs", "ibrix", "k-afs", "lustre", "ncpfs"),
        *("nfs", "nfs4", "orangefs", "panfs", "prl_fs", "pvfs2", "smb2", "smb3", "smbfs", "snfs", "vboxsf", "vmhgfs"),
        *("ceph-fuse", "curlftpfs", "davfs", "gcsfuse", "glusterfs", "goofys", "juicefs", "rclone", "s3fs", "smbnetfs"),
        *("sshfs", "moosefs", "mfs"),
    )
)
"""Types of file systems whose files are on another machine, or on the host of a virtual machine."""


def warn_of_network(file: Path) -> None:
    """Log a warning if this file is, or would be made, on a network file system. Without /proc there is no warning.

    Blocking.
    """
    directory = next(path for path in file.absolute().parents if path.exists())
    try:
        here = os.open(directory, os.O_RDONLY)
        try:
            details = (_PROC / "fdinfo" / str(here)).read_text()
        finally:
            os.close(here)
        mounts = (_PROC / "mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    kind = file_system(details, mounts)
    if kind is not None and kind.removeprefix("fuse.") in _NETWORK:
        log.warning(
            "%s is on a network file system (%s): SQLite's log needs memory that one machine's processes share, and "
            "locks that hold, so what is stored there may be damaged. Name a file on a local disk, or a Redis, in "
            "ASKFIRST_STORE.",
            file,
            kind,
        )


def file_system(details: str, mounts: str) -> str | None:
    """Return the type of the file system of an open file, by its ``/proc/self/fdinfo`` and ``/proc/self/mountinfo``.

    None if it is unknown. The first file has the id of the mount, so hidden mounts and names with escapes do not
    matter. See proc_pid_fdinfo(5) and proc_pid_mountinfo(5).
    """
    found = [line.split()[1] for line in details.splitlines() if line.startswith("mnt_id:")]
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        if before.split(" ")[:1] == found:
            return after.split(" ")[0]
    return None
