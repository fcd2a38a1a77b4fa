"""`ASKFIRST_LIMITS`, as written by operators."""

from __future__ import annotations

import pytest

from channels import MissingSetting
from gateway.config.limits import Limits, Share
from gateway.config.settings import Settings


def test_limits_not_named_keep_their_defaults() -> None:
    limits = Limits.parse("messages=30/-/900")
    assert limits.messages == Share(30, None, 900)
    assert limits.turns == Limits.usual().turns
    assert Limits.parse("") == Limits.usual()


def test_limits_read_back_as_they_are_written() -> None:
    assert Limits.parse(str(Limits.usual())) == Limits.usual()


@pytest.mark.parametrize(
    "text", ["messages", "messages=1", "messages=1/2", "messages=0/1/2", "turn=1/2/3", "messages=1/2/x", "turns=1/2/-"]
)
def test_a_wrong_value_is_named_with_the_mend(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"write some of|turns needs"):
        Limits.parse(text)
    monkeypatch.setenv("ASKFIRST_LIMITS", text)
    with pytest.raises(MissingSetting, match=r"ASKFIRST_LIMITS.*for example"):
        Settings()


def test_limits_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASKFIRST_LIMITS", "strangers=1/1/20")
    assert Settings().limits.strangers == Share(1, 1, 20)
