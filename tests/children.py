"""Child processes with everything imported: importing the gateway takes longer than most of these tests."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
import warnings
from collections.abc import Mapping
from multiprocessing import forkserver
from pathlib import Path

from tests.properties import register

__all__ = ["become", "begin", "children", "prepare", "run_file"]

children = multiprocessing.get_context("forkserver")
children.set_forkserver_preload(["tests.parent"])


def begin() -> None:
    """Start the parent of all children, unless running. The parent imports for some seconds in the background."""
    forkserver.ensure_running()


def prepare() -> None:
    """Wait until the parent of all children is ready."""
    child = children.Process(target=int)
    child.start()
    child.join()


def become(directory: str | Path, env: Mapping[str, str], streams: Mapping[int, int]) -> None:
    """Make this child a process of that directory and environment. `streams`: a descriptor for each number."""
    for number, descriptor in streams.items():
        os.dup2(descriptor, number)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(env)


def run_file(name: str, directory: Path, said: Path, env: Mapping[str, str], *arguments: str) -> None:
    """Run a file like `python -W error`, or a file of tests like pytest. The output goes to `said`."""
    with said.open("w") as stream:
        become(directory, env, dict.fromkeys((1, 2), stream.fileno()))
    sys.path.insert(0, str(directory))
    if name.startswith("test_"):
        import pytest

        register()
        told = ["-W", "error", "-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "no:xdist"]
        sys.exit(pytest.main([*told, "-q", "-o", "asyncio_default_fixture_loop_scope=function", name]))
    sys.argv = [name, *arguments]
    warnings.simplefilter("error")
    runpy.run_path(name, run_name="__main__")
