"""Rounds: every contender in turn, repeatedly. Other load on the machine then disturbs all contenders alike."""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

__all__ = ["ROOT", "Served", "interleaved", "machine", "served", "spread", "table"]

ROOT = Path(__file__).resolve().parent.parent
SERVER_CORE, LOAD_CORE = 0, 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Served:
    """A contender in a separate process, pinned to a core."""

    pid: int
    log: Path

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the process so far, with all threads and the kernel's work for the process."""
        return time.clock_gettime((~self.pid << 3) | 2)  # clock_getcpuclockid(3), spelled out


@contextlib.contextmanager
def served(module: str, *arguments: str, environment: Mapping[str, str], log: Path) -> Iterator[Served]:
    """Run ``python -m module arguments`` on the servers' core, with the output in `log`. The process is killed at the
    end.

    A contender with conflicting libraries has a separate virtual environment, named like the contender.
    """
    own = ROOT / ".bench" / module.rpartition(".")[2].partition("_")[0] / "bin" / "python"
    command = [str(own) if own.exists() else sys.executable, "-m", module, *arguments]
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environment}
    with (
        log.open("ab") as said,
        subprocess.Popen(command, cwd=log.parent, env=variables, stdout=said, stderr=said) as process,
    ):
        try:
            os.sched_setaffinity(process.pid, {SERVER_CORE % (os.cpu_count() or 1)})
            yield Served(process.pid, log)
        finally:
            process.send_signal(signal.SIGKILL)


def interleaved(contenders: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Return each contender's result of each round. The order is reversed from round to round."""
    os.sched_setaffinity(0, {LOAD_CORE % (os.cpu_count() or 1)})
    found: dict[str, list[T]] = {name: [] for name in contenders}
    for number in range(rounds):
        names = list(contenders)
        for name in names if number % 2 == 0 else reversed(names):
            gc.collect()
            found[name].append(contenders[name]())
            print(f"round {number + 1} of {rounds}: {name}", file=sys.stderr)
    return found


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Return ``median (least - most)``."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} - {max(values):.{digits}f})"


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *lines])


def machine() -> str:
    """Return a description of the machine behind the figures."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    system = f"{platform.system()} {platform.release().partition('-')[0]}"
    return f"{os.cpu_count()} cores ({model}), {system}, Python {platform.python_version()}"
