"""The wheel as on a package index: README.md without dead links, and the classifiers."""

from __future__ import annotations

import email
import re
import subprocess
import sys
import zipfile
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]*)\)")


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Message:
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def described(metadata: Message) -> str:
    text = metadata.get_payload(decode=True)
    assert isinstance(text, bytes)
    return text.decode()


def test_no_link_of_the_long_description_is_dead_on_an_index(metadata: Message) -> None:
    shown, written = described(metadata), (ROOT / "README.md").read_text(encoding="utf-8")
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert any(not target.startswith("https://") for _, _, target in LINK.findall(written))
    links = LINK.findall(shown)
    assert links == [link for link in LINK.findall(written) if link[2].startswith("https://")]
    assert links and not any(picture for picture, _, _ in links)


def test_all_else_of_the_readme_is_in_the_long_description(metadata: Message) -> None:
    written = (ROOT / "README.md").read_text(encoding="utf-8")
    without = LINK.sub(lambda link: "" if link[1] else link[0] if link[3].startswith("https") else link[2], written)
    assert described(metadata).split() == without.split()


@pytest.mark.ledger("PYG-47")
def test_metadata_has_author_classifiers_and_keywords(metadata: Message) -> None:
    assert metadata["Author"] == "Askfirst contributors"
    classifiers = metadata.get_all("Classifier", [])
    assert {"Typing :: Typed", "Framework :: AsyncIO", "Framework :: aiohttp"} <= set(classifiers)
    assert "Programming Language :: Python :: 3.11" in classifiers
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Keywords"].split(",")
