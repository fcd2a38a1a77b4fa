"""An answer of too many messages comes as its beginning and a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from channels import Address, OpenMedia, Part, Reply
from gateway import Agent, ChannelAgent
from gateway.limits import Limits, Share
from gateway.options import WrongOption
from gateway.testing import ScriptedProvider
from gateway.wording import say
from tests.engine.rig import Platform, Rig, rig

LONG = "# Report\n\nThe first paragraph, with **bold** words.\n\n" + "\n\n".join(f"Paragraph {n}." for n in range(60))


class Splits(Platform):
    """A platform whose messages have at most `max_text` characters."""

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        most = self.capabilities.max_text
        cuts = [reply.text[at : at + most] for at in range(0, len(reply.text), most)]
        parts = [part for cut in cuts for part in super(Splits, self).render(address, Reply(text=cut))]
        files = super().render(address, Reply(media=reply.media)) if reply.media else ()
        return [*parts, *files]


async def answered(chat: Rig) -> list[Part]:
    await chat.hears("ana", "report")
    return [part for _, part in chat.platform.sent]


def bot(**options: Any) -> ChannelAgent:
    return ChannelAgent(Agent(provider=ScriptedProvider([LONG])), **options)


async def test_the_whole_is_in_a_file(tmp_path: Path) -> None:
    async with rig(bot(), tmp_path, Splits(max_text=80)) as chat:
        *texts, file = await answered(chat)
        said = "".join(str(part.arguments["text"]) for part in texts)
        assert said.startswith("# Report\n\nThe first paragraph, with **bold** words.")
        assert said.endswith(f" …\n\n{say('answer_in_file', 'en')}")
        assert len(said) < 1100
        assert isinstance(file.media, OpenMedia)
        assert (file.media.filename, file.media.mime_type) == ("answer.md", "text/markdown")
        assert file.media.path.read_text("utf-8") == LONG


@pytest.mark.parametrize(
    ("options", "capabilities"), [({"max_parts": 100}, {}), ({}, {"max_text": 4000}), ({}, {"text_files": False})]
)
async def test_an_answer_that_fits_comes_in_messages(
    tmp_path: Path, options: dict[str, Any], capabilities: dict[str, Any]
) -> None:
    async with rig(bot(**options), tmp_path, Splits(**{"max_text": 80, **capabilities})) as chat:
        parts = await answered(chat)
        assert "".join(str(part.arguments["text"]) for part in parts) == LONG


async def test_a_file_that_cannot_be_kept_comes_in_messages(tmp_path: Path) -> None:
    limits = Limits(files=Share(1, None, None))
    long = "word " * 300_000
    chatty = ChannelAgent(Agent(provider=ScriptedProvider([long])))
    async with rig(chatty, tmp_path, Splits(max_text=100_000), limits=limits) as chat:
        parts = await answered(chat)
        assert "".join(str(part.arguments["text"]) for part in parts) == long


def test_a_wrong_number_is_refused() -> None:
    with pytest.raises(WrongOption, match="max_parts"):
        bot(max_parts=0)
