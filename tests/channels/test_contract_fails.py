"""For each channel with a defect, the contract test of the broken promise fails."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gateway.testing import ChannelContract
from tests.channels import defective  # noqa: F401 - its defects are noted when it is read
from tests.channels.defects import DEFECTS

ROOT = Path(__file__).parents[2]
OF_THE_WEB_SERVER = {"test_too_large_or_packed_body_is_refused_before_it_is_read"}
"""The gateway answers before the channel is asked, so no channel can break these. tests/web shows the failures."""


def test_every_promise_is_broken_by_some_channel() -> None:
    tests = {name for name in dir(ChannelContract) if name.startswith("test_")}
    assert tests - {test for test, _ in DEFECTS.values()} == OF_THE_WEB_SERVER


@pytest.mark.timeout(300)
@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.nightly)])
def test_the_contract_sees_each_defect(tmp_path: Path, every: int) -> None:
    defects = dict(list(DEFECTS.items())[::every])
    told = tmp_path / "told.xml"
    options = ["-q", "-p", "no:cacheprovider", "-p", "tests.channels.first_failure", f"--junitxml={told}"]
    chosen = [f"tests/channels/defective.py::Test{channel.__name__}::{test}" for channel, (test, _) in defects.items()]
    command = [sys.executable, "-m", "pytest", *options, *chosen]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stdout + run.stderr
    failures = {
        (case.attrib["classname"].rpartition(".Test")[2], case.attrib["name"]): case.findtext("failure", "")
        for case in ElementTree.parse(told).iter("testcase")
    }
    assert set(failures) == {(channel.__name__, test) for channel, (test, _) in defects.items()}
    unseen = {
        f"{test} on {channel.__name__}": failures[channel.__name__, test][-2000:]
        for channel, (test, error) in defects.items()
        if not re.search(rf"^E +(\w+\.)*({error})\b", failures[channel.__name__, test], re.MULTILINE)
    }
    assert unseen == {}, "not seen, or by another error than the defect's"
