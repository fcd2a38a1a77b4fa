"""A second question beside a waiting one."""

from __future__ import annotations

import pytest

from gateway.tools import ToolContext
from gateway.tools.stash import PendingActionExistsError, stash_pending, stashing


@pytest.mark.ledger("ERR-04")
def test_second_stash_in_a_call_fails_and_keeps_the_first() -> None:
    with stashing(ToolContext(person="telegram:1:2")) as stashes:
        first = stash_pending(kind="delete_note", preview="Delete the note?")
        with pytest.raises(
            RuntimeError, match="'delete_note' was stashed in this call already: one question"
        ) as raised:
            stash_pending(kind="delete_all", preview="Delete all notes?")
    assert type(raised.value) is PendingActionExistsError
    assert [stash.action for stash in stashes] == [first]
