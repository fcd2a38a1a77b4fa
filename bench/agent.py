"""Cost of a turn of the agent as a library: an instant model, one tool call, then text.

python -m bench.agent [--rounds 9] [--turns 3000] [--long 2000] [--beside PATH]

`--beside` measures the gateway of another checkout too, in turn with this one's.
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

_CONTENDER = ROOT / "bench" / "contenders" / "agent.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--turns", type=int, default=3000)
    parser.add_argument("--long", type=int, default=2000, help="turns of the long conversation")
    parser.add_argument("--beside", type=Path, help="another checkout")
    chosen = parser.parse_args()
    roots = {"": ROOT} | ({} if chosen.beside is None else {", beside": chosen.beside.resolve()})
    print(f"{chosen.rounds} rounds of {chosen.turns} turns; {machine()}\n")
    print(alone(roots, chosen.rounds, chosen.turns), "\n")
    print(growth(roots, min(chosen.rounds, 5), chosen.long))


def alone(roots: dict[str, Path], rounds: int, turns: int) -> str:
    """Return a table of the CPU of a run, with a bare loop around the same model and tool for comparison."""
    contenders: dict[str, Callable[[], list[float]]] = {"a bare loop": partial(_measured, ROOT, "loop", turns)}
    contenders |= {f"Agent.run{mark}": partial(_measured, root, "run", turns) for mark, root in roots.items()}
    found = {name: [one[0] for one in results] for name, results in interleaved(contenders, rounds).items()}
    base = found["Agent.run"]
    lines = [
        [name, spread(costs, 1), spread([ours / cost for ours, cost in zip(base, costs, strict=True)])]
        for name, costs in found.items()
    ]
    return table(["", "CPU µs a turn", "Agent.run to it"], lines)


def growth(roots: dict[str, Path], rounds: int, turns: int) -> str:
    """Return a table of the CPU of the last turns of a long conversation, with the 20th turn for comparison."""
    contenders = {
        f"turn {turns} to the 20th{mark}": partial(_measured, at, "long", turns) for mark, at in roots.items()
    }
    found = interleaved(contenders, rounds)
    lines = [
        [name, spread([early for early, _ in costs], 0), spread([late / early for early, late in costs])]
        for name, costs in found.items()
    ]
    return table(["ask_channel in memory", "the 20th, CPU µs", "ratio"], lines)


def _measured(root: Path, contender: str, turns: int) -> list[float]:
    command = [sys.executable, str(_CONTENDER), contender, str(turns)]
    variables = {**os.environ, "PYTHONPATH": str(root)}
    said = subprocess.run(command, capture_output=True, check=True, text=True, env=variables, cwd=root).stdout
    return [float(number) for number in said.split()]


if __name__ == "__main__":
    main()
