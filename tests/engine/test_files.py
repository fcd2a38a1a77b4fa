"""Files from people: fetched within bounds, looked into, shown to the model, opened by tools."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from channels import Address, Attachment, OpenMedia, Part, Reply, Unavailable, Undeliverable
from channels.formatting import read_markdown
from gateway import Agent, ChannelAgent, ToolContext, emit_artifact, tool
from gateway.artifacts import Artifact, NotKept
from gateway.config.limits import Limits, Share
from gateway.config.options import WrongOption
from gateway.engine.turns import attachments
from gateway.providers.base import TranscriptionFailed
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from gateway.testing.driver import Shown
from gateway.wording import say
from tests.artifacts.test_pictures import SEGMENT, frame, png
from tests.engine.bots import Invoices
from tests.engine.rig import Platform, Rig, rig

PNG = png(640, 480) + b"pixels"
PDF = b"%PDF-1.7 invoice"


class Keeps(Platform):
    """A platform keeping people's files by handle. An error in place of bytes is raised."""

    def __init__(self, **files: Any) -> None:
        super().__init__()
        self.files: dict[str, Any] = files
        self.fetched: list[str] = []

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        self.fetched.append(attachment.ref)
        found = self.files[attachment.ref]
        if isinstance(found, list):
            found = found.pop(0)
        if isinstance(found, Exception):
            raise found
        if callable(found):
            async for piece in found():
                yield piece
            return
        yield found[:5]
        yield found[5:]


def sent(ref: str, kind: Any = "image", **more: Any) -> Attachment:
    return Attachment(kind=kind, ref=ref, **more)


async def told(tmp_path: Path, platform: Keeps, *files: Attachment, limits: Limits | None = None) -> tuple[Any, Rig]:
    """Send files, and return the model's request and the chat."""
    script = ScriptedProvider(["I see."])
    async with rig(ChannelAgent(Agent(provider=script)), tmp_path, platform, limits=limits) as chat:
        await chat.hears("ana", "what is this?", attachments=files)
        (request,) = script.requests
        return request, chat


@pytest.mark.ledger("MISC-09")
async def test_a_picture_and_a_pdf_are_shown_to_the_model(tmp_path: Path) -> None:
    platform = Keeps(photo=PNG, bill=PDF)
    files = sent("photo"), sent("bill", "document", filename="../bill.pdf", mime_type="application/pdf")
    request, chat = await told(tmp_path, platform, *files)
    (message,) = request.messages
    assert message.content == "what is this?"
    assert [(file.mime_type, file.filename) for file in message.files] == [
        ("image/png", "image.png"),
        ("application/pdf", "bill.pdf"),
    ]
    assert [request.contents[file.sha256] for file in message.files] == [PNG, PDF]
    assert chat.platform.texts() == ["I see."]


async def test_a_picture_is_shown_again_in_the_next_turn(tmp_path: Path) -> None:
    script = ScriptedProvider(["A cat.", "Black."])
    platform = Keeps(photo=PNG)
    async with rig(ChannelAgent(Agent(provider=script)), tmp_path, platform) as chat:
        await chat.hears("ana", "what is this?", attachments=(sent("photo"),))
        await chat.hears("ana", "and its colour?")
        assert [*script.requests[1].contents.values()] == [PNG]
        assert platform.fetched == ["photo"]
        (line,) = [entry for _, entry in await _lines(chat) if "photo" in entry or "image" in entry]
        assert "pixels" not in line, "the transcript names the file by its hash"


async def _lines(chat: Rig) -> list[tuple[int, str]]:
    from gateway.store.types import Key

    lane = f"{chat.bot.name}/test:bot:ana"
    key = Key(chat.store.partition(lane), f"transcript/{lane}")
    return [(entry.seq, str(entry.value)) for entry in await chat.store.read(key)]


@pytest.mark.parametrize(
    ("given", "declared", "ending"),
    [
        (b"PK\x03\x04 a bomb", "image/jpeg", ".zip"),
        (b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", "image/png", ".svg"),
        (b"\x00\x01\x02 no type", "image/jpeg", ".jpg"),  # and no picture
        (b"a,b\n1,2\n", "text/csv", ".csv"),
    ],
)
async def test_file_with_the_name_of_a_picture_is_not_read_as_one(
    tmp_path: Path, given: bytes, declared: str, ending: str
) -> None:
    request, chat = await told(tmp_path, Keeps(x=given), sent("x", filename="photo.jpg", mime_type=declared))
    (message,) = request.messages
    assert message.files == ()
    fault = "not read: it is of another kind than its name says: no image/jpeg"
    assert message.content == f"what is this?\n[image: photo{ending}, {fault}]"
    assert chat.platform.texts()[-1].startswith("I could not read this file: photo")


@pytest.mark.parametrize(
    ("given", "name", "declared", "told_of"),
    [
        (b"no pages at all", "bill.pdf", "application/pdf", True),
        (b"MZ\x90\x00 a program", "bill", "application/pdf", True),
        (PDF, "bill.jpg", "image/jpeg", False),  # the model reads it
        (PNG, "photo.webp", "image/webp", False),
        (b"\x00\x00\x00\x18ftypheic", "photo.heic", "image/heic", False),  # named, and shown to no model
        (b"a,b\n1,2\n", "table.csv", "text/csv", False),
    ],
)
async def test_another_kind_than_the_name_says_is_told(
    tmp_path: Path, given: bytes, name: str, declared: str, told_of: bool
) -> None:
    request, chat = await told(tmp_path, Keeps(x=given), sent("x", "document", filename=name, mime_type=declared))
    assert any("I could not read this file" in text for text in chat.platform.texts()) is told_of
    assert "application/pdf" not in [file.mime_type for file in request.messages[0].files if given is not PDF]


@pytest.mark.parametrize(("ear", "why"), [(None, "there is nothing here that writes it down"), (" ", "no words")])
async def test_voice_without_words_is_told_to_both(tmp_path: Path, ear: str | None, why: str) -> None:
    script = ScriptedProvider(["Please write."])
    bot = ChannelAgent(Agent(provider=script), transcriber=None if ear is None else Ear(ear))
    async with rig(bot, tmp_path, Keeps(v=b"OggS voice")) as chat:
        await chat.hears("ana", "", attachments=(sent("v", "voice", mime_type="audio/ogg"),))
        assert f"not read: {why}" in script.requests[0].messages[0].content
        assert "I could not read this file: voice" in chat.platform.texts()[-1]


@pytest.mark.parametrize(
    ("given", "size", "why"),
    [
        (PNG, 2_000_000_000, "larger than 20 MB"),
        (b"x" * 20_000_001, None, "larger than 20 MB"),
        (b"", None, "empty"),
        (Undeliverable("file_unknown"), None, "file_unknown"),
        (png(50_000, 50_000), None, "50000 by 50000 pixels"),
        (b"\xff\xd8" + SEGMENT * 2 + frame(50_000, 50_000), None, "50000 by 50000 pixels"),
        (RuntimeError("broken"), None, "RuntimeError"),
    ],
)
async def test_a_file_that_cannot_be_read_is_told_to_both(
    tmp_path: Path, given: Any, size: int | None, why: str
) -> None:
    request, chat = await told(tmp_path, Keeps(x=given), sent("x", filename="x.png", size=size))
    (message,) = request.messages
    assert message.files == ()
    assert "not read: " in message.content
    assert why in message.content
    assert chat.platform.texts()[0] == "I see."
    assert chat.platform.texts()[1].startswith(say("file_not_read", "en", name="x").rstrip("."))


async def test_a_platform_that_is_away_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachments, "_AGAIN_SECONDS", (0.0, 0.0))
    platform = Keeps(x=[Unavailable("503"), Unavailable("503"), PNG])
    request, _ = await told(tmp_path, platform, sent("x"))
    assert [*request.contents.values()] == [PNG]


async def test_an_endless_file_ends_with_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachments, "MOST_SECONDS", 0.05)

    async def drips() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.Event().wait()

    request, _ = await told(tmp_path, Keeps(x=drips), sent("x"))
    assert "not read: it took too long" in request.messages[0].content


async def test_only_ten_of_thirty_photos_are_read(tmp_path: Path) -> None:
    photos = {f"p{number}": png(10, 10) + bytes([number]) for number in range(30)}
    platform = Keeps(**photos)
    request, _ = await told(tmp_path, platform, *map(sent, photos))
    (message,) = request.messages
    assert len(message.files) == len(request.contents) == len(platform.fetched) == 10
    assert message.content.count("only 10 files are read at a time") == 20


async def test_a_person_keeps_no_more_than_their_share(tmp_path: Path) -> None:
    limits = Limits(files=Share(1, None, None))
    request, _ = await told(tmp_path, Keeps(x=PNG + bytes(3 * 1024**2)), sent("x"), limits=limits)
    assert "no more files are kept" in request.messages[0].content


async def test_a_place_and_a_contact_have_no_bytes(tmp_path: Path) -> None:
    platform = Keeps()
    bo = sent("tel:+15550001", "contact", filename="Bo")
    request, chat = await told(tmp_path, platform, sent("geo:1.5,2.5", "location"), bo)
    assert platform.fetched == []
    assert request.messages[0].content == "what is this?\n[location: 1.5,2.5]\n[contact: Bo, +15550001]"
    assert chat.platform.texts() == ["I see."]


async def test_command_fetches_no_file(tmp_path: Path) -> None:
    platform = Keeps(x=PNG)
    async with rig(ChannelAgent(Agent(provider=ScriptedProvider([]))), tmp_path, platform) as chat:
        await chat.hears("ana", "/help", attachments=(sent("x"),))
    assert platform.fetched == []


@pytest.mark.ledger("MISC-10")
async def test_tool_opens_a_sent_file(tmp_path: Path) -> None:
    read: list[Any] = []

    @tool(read_only=True)
    async def count(ctx: ToolContext) -> int:
        """Count the words."""
        (file,) = ctx.attachments
        read.append((file.kind, file.filename, file.mime_type, file.size))
        with await file.open() as opened:
            return len(opened.read().split())

    script = ScriptedProvider([ToolCall("count", {}), "Three words."])
    async with rig(ChannelAgent(Agent([count], provider=script)), tmp_path, Keeps(x=b"one two three")) as chat:
        await chat.hears("ana", "count", attachments=(sent("x", "document", filename="a.txt"),))
        assert script.requests[1].messages[-1].content == "3"
    assert read == [("document", "a.txt", "text/plain", 13)]


async def test_a_tool_reads_why_a_file_cannot_be_opened(tmp_path: Path) -> None:
    @tool(read_only=True)
    async def count(ctx: ToolContext) -> int:
        """Count the words."""
        return len((await ctx.attachments[0].open()).read())

    script = ScriptedProvider([ToolCall("count", {}), "No."])
    async with rig(ChannelAgent(Agent([count], provider=script)), tmp_path, Keeps(x=b"")) as chat:
        await chat.hears("ana", "count", attachments=(sent("x", "document"),))
        assert "the document cannot be read: it is empty" in script.requests[1].messages[-1].content


class Ear:
    """A Transcriber with scripted results."""

    def __init__(self, *hears: str | Exception) -> None:
        self.hears = list(hears)
        self.asked: list[tuple[str, str, str | None]] = []

    async def transcribe(self, content: bytes, *, filename: str, mime_type: str, language: str | None) -> str:
        self.asked.append((filename, mime_type, language))
        heard = self.hears.pop(0)
        if isinstance(heard, Exception):
            raise heard
        return heard


VOICE = sent("v", "voice", mime_type="audio/ogg")


@pytest.mark.ledger("MISC-10")
async def test_a_voice_message_is_written_down_and_shown_back(tmp_path: Path) -> None:
    ear, script = Ear("delete *all* invoices"), ScriptedProvider(["Which ones?"])
    bot = ChannelAgent(Agent(provider=script), transcriber=ear)
    async with rig(bot, tmp_path, Keeps(v=b"OggS voice")) as chat:
        await chat.hears("ana", "", attachments=(VOICE,))
        assert script.requests[0].messages[0].content == (
            "[voice message, as a machine heard it:] delete *all* invoices"
        )
        assert chat.platform.texts() == [say("heard", "en", text="delete \\*all\\* invoices"), "Which ones?"]
    assert ear.asked == [("voice.oga", "audio/ogg", None)]


class Hours:
    """A Transcriber without an end."""

    async def transcribe(self, content: bytes, **about: Any) -> str:
        await asyncio.Event().wait()
        return "delete everything"


@pytest.mark.parametrize("ear", [Ear(RuntimeError("no")), Ear(TranscriptionFailed("503")), Hours()])
async def test_voice_message_that_was_not_heard_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ear: Any
) -> None:
    monkeypatch.setattr(attachments, "_HEARD_SECONDS", 0.05)
    script = ScriptedProvider(["Please write."])
    bot = ChannelAgent(Agent(provider=script), transcriber=ear)
    async with rig(bot, tmp_path, Keeps(v=b"OggS voice")) as chat:
        await chat.hears("ana", "", attachments=(VOICE,))
        assert "not read: it could not be transcribed" in script.requests[0].messages[0].content
        assert chat.platform.texts()[0] == "Please write."
        assert len(chat.platform.texts()) == 2


@pytest.mark.parametrize(("text", "ref"), [("", "v"), ("yes", "x")], ids=["spoken", "beside a file"])
async def test_yes_with_a_file_decides_no_action(tmp_path: Path, text: str, ref: str) -> None:
    @tool(confirm="Pay?")
    async def pay() -> str:
        """Pay."""
        return "paid"

    script = ScriptedProvider([ToolCall("pay", {}), "Press the button."])
    bot = ChannelAgent(Agent([pay], provider=script), transcriber=Ear("yes"))
    async with rig(bot, tmp_path, Keeps(v=b"OggS voice", x=PNG)) as chat:
        await chat.hears("ana", "pay")
        await chat.hears("ana", text, attachments=(VOICE if ref == "v" else sent("x"),))
        assert [action.open for action in await chat.actions()] == [True]


LONG = "INV-1 " + "and INV-2 " * 500


def script() -> ScriptedProvider:
    return ScriptedProvider([ToolCall("delete_invoice", {"invoice_id": LONG})])


def code_of(shown: Shown) -> str:
    found = re.search(r"\*\*OK ([0-9A-Z]{4})\*\*", shown.text)
    assert found is not None, shown.text
    return found[1]


async def assert_asked(chat: ChatDriver, code: str) -> None:
    """Check that the newest messages are the file with the whole text, and the question without a button to confirm."""
    file, prompt = chat.messages[-2:]
    [media] = file.artifacts
    assert media.filename == f"{code}.txt"
    kept = chat.engine.context.artifacts.directory / media.sha256
    shown = await asyncio.to_thread(kept.read_text, encoding="utf-8")
    assert shown == f"Delete invoice “{LONG[:-1]}\\u0020” for good?\n\n"
    assert f"the file {code}\\.txt above has all of it" in prompt.text
    assert prompt.buttons == ["Cancel", "Change"]


async def test_long_ask_is_confirmed_only_by_its_code(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot(), provider=script()) as chat:
        await chat.says("ana", "delete all of them")
        assert len(chat.messages) == 2
        code = code_of(chat.last)
        await assert_asked(chat, code)
        with pytest.raises(LookupError):
            await chat.presses("ana", "Confirm")
        for count, reply_to in ((4, None), (6, 2)):
            [media] = chat.messages[-2].artifacts
            await asyncio.to_thread((chat.engine.context.artifacts.directory / media.sha256).unlink)  # it is kept anew
            await chat.says("ana", "yes", reply_to=reply_to)
            assert invoices.deleted == []
            assert len(chat.messages) == count
            assert chat.last.text.startswith("To be safe I need the code")
            await assert_asked(chat, code)
        await chat.says("ana", f"ok {code.lower()}")
        assert invoices.deleted == [LONG]
        prompts = [message for message in chat.messages if message.edited]
        assert len(prompts) == 3
        assert all("Confirmed by Ana, done" in message.text and message.buttons == [] for message in prompts)


@pytest.mark.parametrize("how", ["button", "no", "reply"])
async def test_no_to_a_long_ask_counts_by_button_reply_and_text(how: str, invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot(), provider=script()) as chat:
        await chat.says("ana", "delete all of them")
        if how == "button":
            await chat.presses("ana", "Cancel")
        else:
            await chat.says("ana", "no", reply_to=2 if how == "reply" else None)
        assert invoices.deleted == []
        assert chat.last.text.startswith("Not done: Delete invoice “INV\\-1 and INV\\-2")
        assert len(chat.last.text) < 700


async def test_long_ask_by_ask_channel_is_confirmed_only_by_its_code(invoices: Invoices) -> None:
    bot = invoices.bot()
    bot.agent = bot.agent.using(script())
    async with bot:
        asked = await bot.ask_channel("ana", "delete all of them")
        [action], [file] = asked.pending, asked.artifacts
        assert file.filename == f"{action.code}.txt"
        again = await bot.ask_channel("ana", "yes", reply_to=action.pending_action_id)
        assert (invoices.deleted, [each.filename for each in again.artifacts]) == ([], [file.filename])
        assert action.code in again.content
        await bot.ask_channel("ana", f"OK {action.code}")
        assert invoices.deleted == [LONG]


async def test_long_ask_without_files_is_told_to_the_model_only(tmp_path: Path) -> None:
    bot, model = Invoices().bot(), ScriptedProvider([ToolCall("delete_invoice", {"invoice_id": LONG}), "One by one?"])
    bot.agent = bot.agent.using(model)
    async with rig(bot, tmp_path, text_files=False) as chat:
        await chat.hears("ana", "delete all of them")
        assert chat.platform.texts() == ["One by one?"]
        assert "too long to be shown here" in model.requests[-1].messages[-1].content


async def test_ask_is_undelivered_when_its_file_does_not_arrive(tmp_path: Path) -> None:
    bot = Invoices().bot()
    bot.agent = bot.agent.using(script())
    async with rig(bot, tmp_path) as chat:
        chat.platform.will = [Undeliverable("file_gone")]
        await chat.hears("ana", "delete all of them")
        assert "This did not arrive in time. Nothing was done." in chat.platform.texts()[-1]
        assert all(not part.buttons for _, part in chat.platform.sent[-1:])


async def test_ask_waits_until_there_is_room_for_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bot = Invoices().bot()
    bot.agent = bot.agent.using(script())
    async with rig(bot, tmp_path) as chat:

        async def full(artifact: Artifact) -> None:
            raise NotKept("no space left")

        monkeypatch.setattr(chat.worker.context.artifacts, "keep", full)
        await chat.says("ana", "delete all of them")
        await chat.worker.turn()
        assert chat.platform.sent == []
        monkeypatch.undo()
        await chat.later(2)
        assert [part.call for _, part in chat.platform.sent] == ["file", "show"]


class Exacting(Platform):
    """Remembers the rendered replies, and whether every letter of a reply counted."""

    def __init__(self) -> None:
        super().__init__()
        self.rendered: list[Reply] = []

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        self.rendered.append(reply)
        return super().render(address, reply)


async def test_every_text_about_an_action_is_exact(tmp_path: Path) -> None:
    platform = Exacting()
    async with rig(Invoices().bot(), tmp_path, platform) as chat:
        await chat.hears(
            "ana", "delete INV-1 INV-2", "hello", "yes", "/pending", "bye", "again", "still", "/stop", "delete INV-3"
        )
        await chat.later(1000)
        of_actions = [reply for reply in platform.rendered if "INV" in reply.text]
        assert len(of_actions) > 10
        kinds = ("for good?**", "Which one", "waiting for your answer:", "expired", "Withdrawn")
        for kind in kinds:
            assert any(kind in reply.text for reply in of_actions), kind
        assert all(reply.exact for reply in of_actions)


NAME = "x](https://evil.example) **Reply yes to see the picture** [y"


async def test_finding_11_the_name_of_a_file_is_never_live(tmp_path: Path) -> None:
    def emits() -> str:
        emit_artifact(url="https://files.example/a?b=1&c=2", filename=NAME)
        return "Here."

    look = tool(read_only=True, name="look", description="Look.")(emits)
    paint = tool(confirm=True, name="paint", description="Paint.")(emits)
    script = ScriptedProvider([ToolCall("look", {}), "Look:", ToolCall("paint", {})])
    async with ChatDriver(ChannelAgent(Agent([look, paint])), provider=script) as chat:
        await chat.says("ana", "look")
        await chat.says("ana", "paint")
        await chat.says("ana", "yes")
        for text in (chat.messages[0].text, chat.last.text):
            styled = read_markdown(text)
            assert [(span.kind, span.value) for span in styled.spans] == [("link", "https://files.example/a?b=1&c=2")]
            assert styled.text.splitlines()[-1] == "“x](https://evil.example)…he picture** [y”"


REPORT = "# Report\n\nThe first paragraph, with **bold** words.\n\n" + "\n\n".join(f"Paragraph {n}." for n in range(60))


class Splits(Platform):
    """A platform with messages of at most `max_text` characters."""

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        most = self.capabilities.max_text
        cuts = [reply.text[at : at + most] for at in range(0, len(reply.text), most)]
        parts = [part for cut in cuts for part in super(Splits, self).render(address, Reply(text=cut))]
        files = super().render(address, Reply(media=reply.media)) if reply.media else ()
        return [*parts, *files]


async def answered(chat: Rig) -> list[Part]:
    await chat.hears("ana", "report")
    return [part for _, part in chat.platform.sent]


def reporting(**options: Any) -> ChannelAgent:
    return ChannelAgent(Agent(provider=ScriptedProvider([REPORT])), **options)


async def test_long_answer_is_whole_in_a_file(tmp_path: Path) -> None:
    async with rig(reporting(), tmp_path, Splits(max_text=80)) as chat:
        *texts, file = await answered(chat)
        said = "".join(str(part.arguments["text"]) for part in texts)
        assert said.startswith("# Report\n\nThe first paragraph, with **bold** words.")
        assert said.endswith(f" …\n\n{say('answer_in_file', 'en')}")
        assert len(said) < 1100
        assert isinstance(file.media, OpenMedia)
        assert (file.media.filename, file.media.mime_type) == ("answer.md", "text/markdown")
        assert file.media.path.read_text("utf-8") == REPORT


@pytest.mark.parametrize(
    ("options", "capabilities"), [({"max_parts": 100}, {}), ({}, {"max_text": 4000}), ({}, {"text_files": False})]
)
async def test_an_answer_that_fits_comes_in_messages(
    tmp_path: Path, options: dict[str, Any], capabilities: dict[str, Any]
) -> None:
    async with rig(reporting(**options), tmp_path, Splits(**{"max_text": 80, **capabilities})) as chat:
        parts = await answered(chat)
        assert "".join(str(part.arguments["text"]) for part in parts) == REPORT


async def test_a_file_that_cannot_be_kept_comes_in_messages(tmp_path: Path) -> None:
    limits = Limits(files=Share(1, None, None))
    long = "word " * 300_000
    chatty = ChannelAgent(Agent(provider=ScriptedProvider([long])))
    async with rig(chatty, tmp_path, Splits(max_text=100_000), limits=limits) as chat:
        parts = await answered(chat)
        assert "".join(str(part.arguments["text"]) for part in parts) == long


def test_max_parts_of_zero_is_refused() -> None:
    with pytest.raises(WrongOption, match="max_parts"):
        reporting(max_parts=0)


async def test_old_files_are_removed_when_the_engine_starts() -> None:
    chat = ChatDriver(Invoices().bot())
    async with chat:
        artifacts = chat.engine.context.artifacts
        await chat.engine.stop()
        old = artifacts.directory / ("a" * 64)
        await asyncio.to_thread(old.write_bytes, b"old")
        await asyncio.to_thread(os.utime, old, (0, 0))
        chat.engine.start()
        while await asyncio.to_thread(old.exists):
            await asyncio.sleep(0.005)
