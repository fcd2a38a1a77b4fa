"""The rules of scripts/house.py, each broken once in a small tree of packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import house

PLATFORMS = ("slack", "telegram", "twilio", "webchat")
LONG_FUNCTION = "def long() -> None:\n" + "    pass\n" * 60
NAME = "test_" + "a" * 56


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return the root of packages that keep every rule."""
    for package in ("gateway", "askfirst", "bench", "scripts", "tests", *(f"channels/{name}" for name in PLATFORMS)):
        (tmp_path / package).mkdir(parents=True)
    for name in PLATFORMS:
        (tmp_path / "channels" / name / "parse.py").write_text('"""Read a payload."""\n', encoding="utf-8")
    return tmp_path


def says(tree: Path) -> list[str]:
    return [f"{place.path}: {place.says}" for place in house.violations(tree)]


def test_a_tree_that_keeps_the_rules_has_no_violation(tree: Path) -> None:
    assert says(tree) == []


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("gateway/a.py", '"""Who waits is told."""\n', 'opens with "Who"'),
        ("gateway/a.py", '"""A."""\n\nNAME = 1\n"""So many of them."""\n', 'opens with "So many"'),
        ("channels/a.py", "class A:\n    pass\n\n\nclass A:\n    pass\n", "a second class is named A"),
        ("gateway/a.py", "pass\n" * 601, "601 lines"),
        ("gateway/a.py", LONG_FUNCTION, "long has 61 lines"),
        ("channels/slack/own.py", "pass\n", "no other platform has a file of this name"),
        ("tests/test_a.py", f"def {NAME}() -> None:\n    pass\n", "61"),
        ("bench/a.py", '"""Tell nobody what somebody does."""\n', "indefinite pronouns"),
    ],
)
def test_a_broken_rule_is_named_with_its_place(tree: Path, path: str, text: str, expected: str) -> None:
    (tree / path).write_text(text, encoding="utf-8")
    (found,) = [line for line in says(tree) if expected in line]
    assert found.startswith(path.split("/")[0])


def test_the_command_fails_when_a_rule_is_broken(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(house, "ROOT", tree)
    assert house.main([]) == 0
    (tree / "gateway" / "a.py").write_text('"""Of whom."""\n', encoding="utf-8")
    assert house.main([]) == 1
    assert "gateway/a.py:1:" in capsys.readouterr().out
    assert house.main(["--rates"]) == 0
    assert "gateway" in capsys.readouterr().out
