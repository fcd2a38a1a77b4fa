"""``askfirst`` as a fork of a process that has everything imported: see `tests.children`."""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from gateway import wording
from gateway.cli import main
from gateway.engine.context import EngineContext

wording.prepare()  # so that no child has to


def run(
    pipes: tuple[Connection, Connection],
    arguments: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    lease_seconds: float | None,
) -> None:
    """What the process does: the command, in this directory and environment; its streams go into the pipes.

    `lease_seconds`: of every lease it takes; None: as long as they are.
    """
    gc.freeze()  # what was there before the fork is not looked through again
    for stream, pipe in zip((sys.stdout, sys.stderr), pipes, strict=True):
        os.dup2(pipe.fileno(), stream.fileno())
    for pipe in pipes:
        pipe.close()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path.insert(0, str(cwd))
    if lease_seconds is not None:
        EngineContext.__init__ = functools.partialmethod(EngineContext.__init__, lease_seconds=lease_seconds)  # type: ignore[assignment]
    main(arguments, prog_name="askfirst")
