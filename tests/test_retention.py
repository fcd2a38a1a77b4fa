"""`ASKFIRST_RETENTION`, as written by operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from channels import MissingSetting
from gateway.config.limits import Retention
from gateway.config.settings import Settings

PRIVACY = Path(__file__).parents[1] / "docs" / "privacy.md"


def test_kinds_not_named_keep_their_default() -> None:
    assert Retention.parse("audit=3650, transcript=30") == Retention(audit=3650, transcript=30)
    assert Retention.parse("") == Retention()


def test_retention_reads_back_as_it_is_written() -> None:
    assert Retention.parse(str(Retention(security=1))) == Retention(security=1)


@pytest.mark.parametrize(
    "text", ["transcript", "transcript=0", "transcript=-1", "words=3", "audit=1.5", "audit=1,audit=2", "audit=100000"]
)
def test_a_wrong_retention_is_named_with_the_mend(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="write some of"):
        Retention.parse(text)
    monkeypatch.setenv("ASKFIRST_RETENTION", text)
    with pytest.raises(MissingSetting, match=r"ASKFIRST_RETENTION.*for example transcript="):
        Settings()


def test_retention_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASKFIRST_RETENTION", "dead_letters=7")
    assert Settings().retention == Retention(dead_letters=7)


def test_every_default_is_written_in_the_page_on_privacy() -> None:
    page = PRIVACY.read_text()
    for entry in str(Retention()).split(","):
        kind, _, days = entry.partition("=")
        assert f"| `{kind}` | {days} days |" in page
    assert f"`ASKFIRST_TRACES_TTL_SECONDS` | {Settings().traces_ttl_seconds / 86400:.0f} days |" in page
