"""Whether what a container keeps outlives it."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["goes_with_container"]

_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))
"""Files that Docker and Podman put into every container."""
_ANONYMOUS = re.compile(r"/volumes/[0-9a-f]{64}/_data$")
"""Where Docker and Podman keep a volume that nobody named: a new container gets another one."""


def goes_with_container(directory: Path, mounts: str | None = None) -> bool:
    """Whether a directory is a container's own, or on a volume without a name, so that a new container starts without.

    `mounts` is ``/proc/self/mountinfo`` (proc_pid_mountinfo(5)); without it this process is asked, which need not be in
    a container at all.
    """
    if mounts is None:
        if not any(mark.exists() for mark in _MARKS):
            return False
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    found = [line.split(" ")[3:5] for line in mounts.splitlines()]
    holding = [(Path(point), root) for root, point in found if directory.is_relative_to(point)]
    point, root = max(holding, key=lambda mount: len(mount[0].parts), default=(Path("/"), "/"))
    return point == Path("/") or _ANONYMOUS.search(root) is not None
