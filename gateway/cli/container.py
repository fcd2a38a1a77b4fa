"""Check whether a directory is lost when its container is replaced."""

from __future__ import annotations

import re
from pathlib import Path

_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))
"""Marker files in every Docker and Podman container."""
_ANONYMOUS = re.compile(r"/volumes/[0-9a-f]{64}/_data$")
"""Mount root of an anonymous volume in Docker and Podman. A new container gets a new one."""


def goes_with_container(directory: Path, mounts: str | None = None) -> bool:
    """Return True if the directory is in the container's own file system or on an anonymous volume.

    `mounts`: text of ``/proc/self/mountinfo`` (proc_pid_mountinfo(5)). By default it is read from this process; outside
    a container the result is False.
    """
    if mounts is None:
        if not any(mark.exists() for mark in _MARKS):
            return False
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    found = [line.split(" ")[3:5] for line in mounts.splitlines()]
    holding = [(Path(point), root) for root, point in found if directory.is_relative_to(point)]
    point, root = max(holding, key=lambda mount: len(mount[0].parts), default=(Path("/"), "/"))
    return point == Path("/") or _ANONYMOUS.search(root) is not None
