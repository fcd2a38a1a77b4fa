"""``askfirst`` as a fork of a process with everything imported: see `tests.children`."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path

from gateway import wording
from gateway.cli import Commands, main
from gateway.engine.context import EngineContext
from gateway.engine.turns.language import prepare_detection
from gateway.pending.words import prepare
from tests.children import become

# Files read and modules imported by starting commands are loaded before the fork, once for all children.
wording.prepare()
prepare("en", "es", "pt")
prepare_detection()
assert isinstance(main, Commands)
for name in {*main._modules.values()}:
    import_module(name)


def run(
    pipes: tuple[Connection, Connection],
    stdin: Connection | None,
    arguments: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    lease_seconds: float | None,
    constants: Mapping[str, float],
    inside: int | None,
) -> None:
    """Run the command in this directory and environment. The pipes are the streams; without `stdin` the input is empty.

    `lease_seconds`: for every lease; None: the default. `constants`: new values by module and name.
    `inside`: a process with the user and mount namespaces to enter.
    """
    if inside is not None:
        enter(inside)
    become(cwd, env, {number: pipe.fileno() for number, pipe in enumerate((stdin, *pipes)) if pipe is not None})
    if stdin is not None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - read until the process ends
        stdin.close()
    for pipe in {*pipes}:
        pipe.close()
    sys.path.insert(0, str(cwd))
    if lease_seconds is not None:
        EngineContext.__init__ = functools.partialmethod(EngineContext.__init__, lease_seconds=lease_seconds)  # type: ignore[assignment]
    for name, value in constants.items():
        module, _, constant = name.rpartition(".")
        setattr(sys.modules[module], constant, value)
    sys.orig_argv = [sys.executable, "-m", "gateway", *arguments]  # for a restart
    main(arguments, prog_name="askfirst")


def enter(process: int) -> None:
    """Enter the user and mount namespaces of a process, as ``nsenter --preserve-credentials`` does."""
    system = ctypes.CDLL(None, use_errno=True)
    with Path(f"/proc/{process}/ns/user").open() as user, Path(f"/proc/{process}/ns/mnt").open() as mount:
        for namespace in (user, mount):
            if system.setns(namespace.fileno(), 0):
                raise OSError(ctypes.get_errno(), f"a namespace of the process {process} cannot be entered")
