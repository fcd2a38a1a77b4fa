"""Cost of one call to a model: the vendor's library alone, and our provider around it.

python -m bench.model [--rounds 9] [--calls 100] [--beside PATH]

`--beside` measures the provider of another checkout too, in turn with this one's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.rounds import ROOT, interleaved, machine, spread, table

_CONTENDER = ROOT / "bench" / "contenders" / "model.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--beside", type=Path, help="another checkout")
    chosen = parser.parse_args()
    roots = {"ours": ROOT} | ({} if chosen.beside is None else {"ours, beside": chosen.beside.resolve()})
    print(f"{chosen.rounds} rounds of {chosen.calls} calls; {machine()}\n")
    command = [sys.executable, str(_CONTENDER), "serve"]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables) as server:
        assert server.stdout is not None and server.stdin is not None
        url = server.stdout.readline().strip()
        contenders: dict[str, Callable[[], float]] = {
            "the library": partial(_measured, ROOT, "library", url, chosen.calls)
        } | {name: partial(_measured, root, "ours", url, chosen.calls) for name, root in roots.items()}
        found = interleaved(contenders, chosen.rounds)
        server.stdin.close()
    base = found["ours"]
    lines = [
        [name, spread(costs, 0), spread([ours / cost for ours, cost in zip(base, costs, strict=True)])]
        for name, costs in found.items()
    ]
    print(table(["an answer of 105 chunks", "CPU µs", "ours to it"], lines))


def _measured(root: Path, contender: str, url: str, calls: int) -> float:
    command = [sys.executable, str(_CONTENDER), contender, url, str(calls)]
    variables = {**os.environ, "PYTHONPATH": str(root)}
    return float(subprocess.run(command, capture_output=True, check=True, text=True, env=variables, cwd=root).stdout)


if __name__ == "__main__":
    main()
