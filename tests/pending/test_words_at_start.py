"""The words of a language cost next to no time before the first message, and little at the first."""

from __future__ import annotations

import gc
import subprocess
import sys
import time

import pytest

from channels import Person
from gateway import Agent, ChannelAgent
from gateway.pending import words
from gateway.pending.words import languages, words_of
from gateway.testing import ChatDriver, ScriptedProvider, driver

_OPENED = """
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import gateway.app
print([name for name in opened if "pending/words" in name and not name.endswith((".py", ".pyc"))])
"""


def test_no_file_of_words_is_read_at_import() -> None:
    done = subprocess.run([sys.executable, "-c", _OPENED], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


async def test_first_message_of_a_language_costs_twice_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """In CPU, and over all languages: the machine may be busy."""
    monkeypatch.setattr(words, "_words", {"en": words_of("en")})
    spoken = iter([lang for lang in languages() if lang != "en" for _ in range(2)])
    monkeypatch.setattr(
        driver, "_person", lambda name: Person(channel="test", account="bot", user_id=name, language=next(spoken))
    )
    spent = [0.0, 0.0]
    async with ChatDriver(ChannelAgent(Agent([]), language=None), provider=ScriptedProvider(["ok"] * 100)) as chat:
        gc.disable()
        try:
            for number in range(2 * len(languages()) - 2):
                before = time.process_time()
                await chat.says(f"person {number}", "0 1")
                spent[number % 2] += time.process_time() - before
        finally:
            gc.enable()
    print(spent)
    assert spent[0] <= 2 * spent[1]


def test_table_is_the_same_however_it_is_read(lang: str) -> None:
    pieces = words_of(lang).pieces
    texts = list(pieces)
    assert len(texts) == len(pieces) == len(set(texts))
    assert all(text in pieces and pieces.get(text) is pieces[text] for text in texts[:200])
    assert pieces.get("zzz no text") is None and "zzz no text" not in pieces
    with pytest.raises(KeyError):
        pieces["zzz no text"]
