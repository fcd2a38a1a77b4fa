"""examples/nightly.py: a job decides by its rule without a terminal, and by a key in one."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.loading import EXAMPLES

COMMAND = [sys.executable, "-W", "error", str(EXAMPLES / "nightly.py")]


@pytest.mark.parametrize(
    ("report", "outcome"),
    [("R-2019", "Report R-2019 is deleted."), ("R-2020", "Not done: Delete report R\\-2020 for good")],
)
def test_under_cron_the_rule_decides(report: str, outcome: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, f"delete report {report}"], stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.stdout.strip(), done.stderr) == (outcome, "")


@pytest.mark.parametrize(("key", "outcome"), [("y", "is deleted."), ("n", "Not done")])
def test_in_a_terminal_a_person_decides(key: str, outcome: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, f"{key}\n".encode())  # a terminal keeps what is typed ahead
    try:
        command = [*COMMAND, "delete report R-2020"]
        done = subprocess.run(command, stdin=theirs, capture_output=True, text=True, cwd=tmp_path)
    finally:
        os.close(ours)
        os.close(theirs)
    question, _, said = done.stdout.partition(" [y/N] ")
    assert question == "Delete report R-2020 for good? {'report': 'R-2020'}"
    assert outcome in said


def test_what_needs_no_yes_is_printed(tmp_path: Path) -> None:
    done = subprocess.run(COMMAND, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=tmp_path)
    assert "2019" in done.stdout and "[y/N]" not in done.stdout
