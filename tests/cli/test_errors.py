"""What is wrong in a command is said in a sentence, with what may have been meant."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from gateway.cli import main


@pytest.mark.parametrize(("written", "meant"), [("serv", "serve"), ("previw", "preview"), ("verson", "version")])
def test_a_command_that_is_not_there_names_the_one_that_is(written: str, meant: str) -> None:
    result = CliRunner().invoke(main, [written])
    assert (result.exit_code, "Did you mean" in result.output, f"'{meant}'" in result.output) == (2, True, True)


@pytest.mark.ledger("CLI-01")
def test_every_command_is_listed_and_can_be_called() -> None:
    listed = main.list_commands(main.make_context("askfirst", ["version"]))
    assert listed == sorted(listed) and len(listed) == 19
    assert {"serve", "chat", "doctor", "webhooks", "conversations", "pending", "replay"} <= set(listed)
    for name in listed:
        assert CliRunner().invoke(main, [name, "--help"]).exit_code == 0
