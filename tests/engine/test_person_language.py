"""The gateway speaks to a person in the language they write when their platform names none, and reads them in it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.engine.turns import language as detection
from gateway.engine.turns.language import detect_language, prepare_detection
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, rig

LONG = "Bom dia, gostaria de apagar uma fatura antiga do mês passado, por favor"


@pytest.fixture(scope="module", autouse=True)
def _detection() -> None:
    prepare_detection()


@pytest.fixture
def without_the_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = list(detection._loaded)
    monkeypatch.setitem(sys.modules, "eld", None)
    detection._loaded.clear()
    prepare_detection()
    yield
    detection._loaded[:] = before


async def asked(chat: Rig, *said: str) -> str:
    for text in said:
        await chat.handles("ana", text)
    (action,) = await chat.actions()
    return action.language


async def test_question_is_in_the_language_the_person_wrote_before(chat: Rig) -> None:
    assert await asked(chat, LONG, "delete INV-1") == "pt"
    assert any("Confirmar" in button.label for _, part in chat.platform.sent for button in part.buttons)


@pytest.mark.parametrize(
    ("reply", "deleted"),
    [
        ("pode apagar", ["INV-1"]),
        pytest.param("go ahead", ["INV-1"], id="English counts beside it"),
        pytest.param("oui, supprime-la", [], id="another language costs a question more and is no yes"),
    ],
)
async def test_a_reply_is_read_in_the_language_of_the_question(
    chat: Rig, invoices: Invoices, reply: str, deleted: list[str]
) -> None:
    """The reply itself is too short to say what it is, and the platform names nothing."""
    await asked(chat, LONG, "delete INV-1")
    await chat.advance(5)
    await chat.handles("ana", reply)
    assert invoices.deleted == deleted


async def test_short_message_alone_names_no_language(chat: Rig) -> None:
    assert await asked(chat, "delete INV-1") == "en"


async def test_language_of_the_bot_beats_a_detected_one(tmp_path: Path, invoices: Invoices) -> None:
    async with rig(invoices.bot(language="fr"), tmp_path) as chat:
        assert await asked(chat, LONG, "delete INV-1") == "fr"


def test_newest_text_of_clear_language_decides() -> None:
    assert detect_language(["ok", "please delete the oldest invoice of last month", LONG]) == "en"
    assert detect_language([LONG, "please delete the oldest invoice of last month"]) == "pt"
    assert detect_language(["sim", "INV-1 INV-2 INV-3 INV-4 INV-5 INV-6"]) is None


@pytest.mark.usefixtures("without_the_library")
def test_without_the_library_no_language_is_found() -> None:
    assert detect_language([LONG]) is None
