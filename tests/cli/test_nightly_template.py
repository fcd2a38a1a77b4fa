"""`askfirst init --template nightly`: a job decides by a rule without a terminal, and by a key in one."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import init
from tests.children import children, run_file

NIGHTLY = Path(init.__file__).parent / "templates" / "nightly.py.txt"


def run(arguments: list[str], directory: Path, said: Path, terminal: Any) -> None:
    """Run the job with these arguments, in a child. `terminal`: the standard input; None: no input."""
    if terminal is not None:
        os.dup2(terminal.detach(), 0)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process lives
    run_file(str(NIGHTLY), directory, said, dict(os.environ), *arguments)


def said_by(arguments: list[str], directory: Path, terminal: int | None = None) -> str:
    said = directory / "said.txt"
    job = (arguments, directory, said, None if terminal is None else DupFd(terminal))
    child = children.Process(target=run, args=job)
    child.start()
    child.join()
    assert child.exitcode == 0, said.read_text()
    child.close()
    return said.read_text()


def test_under_cron_the_rule_decides(tmp_path: Path) -> None:
    """Run like cron: in a separate interpreter."""
    command = [sys.executable, "-W", "error", str(NIGHTLY), "delete report R-2019"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout.strip(), done.stderr) == ("Report R-2019 is deleted.", "")


def test_under_cron_the_rule_keeps_a_large_report(tmp_path: Path) -> None:
    assert said_by(["delete report R-2020"], tmp_path).strip() == "Not done: Delete report “R-2020” for good"


@pytest.mark.parametrize(("key", "outcome"), [("y", "is deleted."), ("n", "Not done")])
def test_in_a_terminal_a_person_decides(key: str, outcome: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, f"{key}\n".encode())  # a terminal keeps keys typed ahead
    try:
        question, _, said = said_by(["delete report R-2020"], tmp_path, theirs).partition(" [y/N] ")
    finally:
        os.close(ours)
        os.close(theirs)
    assert question == "Delete report “R-2020” for good? {'report': 'R-2020'}"
    assert outcome in said


def test_a_result_that_needs_no_yes_is_printed(tmp_path: Path) -> None:
    said = said_by([], tmp_path)
    assert "2019" in said and "[y/N]" not in said
