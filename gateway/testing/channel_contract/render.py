"""Tests of `render`: the platform accepts all parts of a reply, with every word of the reply."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, count

from hypothesis import given
from hypothesis import strategies as st

from channels import Button, Channel, Media, Reply
from gateway.pending.tokens import make_token
from gateway.testing.channel_contract.case import Arrived, ChannelCase
from gateway.testing.channel_contract.helpers import Chat, Contract, any_input, as_stored, media_of, without_io

# "%" stands for a numbered word: w0w, w1w, and so on.
_PIECES = (
    *("%", "**%**", "*%*", "~~%~~", "`%`", "[%](https://a.example/b?c=1&d=2)", "**% *%* %**", "***%*** %"),
    *(
        "\n\n# %\n\n",
        "\n> %\n",
        "\n- %\n",
        "\n1. %\n",
        "\n\n```py\n% < %\n```\n\n",
        "\n\n| % | % |\n|---|---|\n| % | % |\n\n",
    ),
    *(
        "🧾%",
        "<b>%</b>",
        "&amp; %",
        "@here %",
        "<!channel> %",
        "👩\u200d👧 %",
        "e\u0301%",
        "\\",
        "**",
        "`",
        "[",
        "_",
        "<",
        "&",
    ),
    *("x" * 500, "🧾" * 300, "é" * 300, "\n\n"),
)
_LONGEST_MARKDOWN = 20_000
"""Characters: more than a channel reads as Markdown, and few enough for a report of Hypothesis."""
_MARKS = (
    *(
        "*",
        "**",
        "***",
        "_",
        "~~",
        "`",
        "``",
        "```",
        "```\n",
        "[",
        "![",
        "](",
        "]",
        ")",
        "(",
        "<",
        ">",
        "\\",
        "&amp;",
        "&",
    ),
    *("](https://a.example)", "](javascript:x)", "](<!channel>)", "<b>", "> ", "- ", "1. ", "# ", "|", "\n|-|-|\n"),
    *("\n", "\n\n", " ", "\t", "a", "word ", "🧾", "é", "\u200d", "\u0301", "@here", "<@U1>", "https://a.example/b_c"),
)
_WORD = re.compile(r"w(\d+)w")
_LABELS = ("Confirm", "Cancel", "Sí, borrar 🧾", "l" * 300, "🧾" * 120)
_TYPES = ("image/png", "audio/mpeg", "video/mp4", "application/pdf", "text/plain", "application/x-odd")


def _numbered(pieces: list[str], times: int) -> str:
    numbers, lengths = count(), accumulate(len(piece) + 1 for piece in pieces * times)
    kept = [piece for piece, length in zip(pieces * times, lengths, strict=True) if length < _LONGEST_MARKDOWN]
    return re.sub("%", lambda _: f"w{next(numbers)}w", " ".join(kept))


_TEXTS = st.builds(
    _numbered, st.lists(st.sampled_from(_PIECES), min_size=6, max_size=40), st.sampled_from([1, 4, 12, 30])
)
"""Markdown of every kind and length, with numbered words."""
_BUTTONS = st.just(()) | st.lists(
    st.builds(
        Button,
        label=st.sampled_from(_LABELS),
        token=st.just("07" + "t" * 22),
        style=st.sampled_from(["confirm", "cancel", "plain"]),
    ),
    max_size=10,
).map(tuple)
_FILES = st.lists(
    st.builds(
        Media,
        sha256=st.just("0" * 64),
        mime_type=st.sampled_from(_TYPES),
        filename=st.sampled_from(["a.pdf", "Rechnung ü 1.pdf", "🧾" * 60, "x" * 200]),
        size=st.sampled_from([1, 5_000_001, 10_000_001, 50_000_001, 2_000_000_000]),
    ),
    max_size=3,
).map(tuple)


class RenderContract(Contract):
    @any_input
    @given(text=_TEXTS | st.text(max_size=50) | st.just("half a character: \ud800"), buttons=_BUTTONS, media=_FILES)
    async def test_rendering_is_pure_and_whole(
        self, case: ChannelCase, channel: Channel, text: str, buttons: tuple[Button, ...], media: tuple[Media, ...]
    ) -> None:
        """The parts can be stored. The last part has the buttons, and the receipt of this part counts as the
        showing."""
        buttons = buttons[: channel.capabilities.buttons or None]
        reply = Reply(text=f"{text}\n\nAnswer?" if buttons else text, buttons=buttons, media=media)
        parts = list(channel.render(case.address, reply))
        with without_io("render"):
            again = list(channel.render(case.address, reply))
        assert again == parts
        assert [as_stored(part) for part in parts] == parts, "not the same after it was stored"
        assert [part.media for part in parts if part.media] == list(media)
        tokens = [[button.token for button in part.buttons] for part in parts]
        assert not any(tokens[:-1]), "a question comes last"
        assert tokens[-1:] == [[button.token for button in buttons]] or not (buttons or any(tokens))

    async def test_empty_reply_renders_to_no_part(self, case: ChannelCase, channel: Channel) -> None:
        assert list(channel.render(case.address, Reply())) == []

    @any_input
    @given(text=_TEXTS, buttons=_BUTTONS)
    async def test_every_word_arrives_in_order(
        self, chat: Chat, channel: Channel, text: str, buttons: tuple[Button, ...]
    ) -> None:
        """The platform accepts every part. Every word arrives in order, and so do the buttons."""
        buttons = buttons[: channel.capabilities.buttons or None]
        arrived = await _arrivals_of(chat, Reply(text=f"{text}\n\nAnswer?" if buttons else text, buttons=buttons))
        words = [int(number) for message in arrived for number in _WORD.findall(message.text)]
        assert words == list(range(len(_WORD.findall(text))))
        if buttons:
            assert "Answer?" in arrived[-1].text
            _check_buttons(channel, arrived, buttons)

    @any_input
    @given(marks=st.lists(st.sampled_from(_MARKS), min_size=1, max_size=60), times=st.sampled_from([1, 1, 20]))
    async def test_platform_accepts_any_markup(self, chat: Chat, marks: list[str], times: int) -> None:
        """Unclosed or overlapping markup, with invalid URLs."""
        arrived = await _arrivals_of(chat, Reply(text="".join(marks * times)))
        assert all(message.text for message in arrived)

    async def test_exact_text_arrives_unchanged(self, chat: Chat) -> None:
        """No letter of a value is replaced by a cheaper letter, and no letter is read as markup."""
        for value in ("INV\u201342", "INV\u201142", "it\u2019s", "1\u2026 2", "a_b", "1\u00d72", "\u0441\u043e"):
            shown = "\n".join(
                message.text for message in await _arrivals_of(chat, Reply(text=f"Pay {value}?", exact=True))
            )
            assert f"Pay {value}?" in shown

    async def test_long_text_is_split_without_loss(self, chat: Chat, channel: Channel) -> None:
        longest = channel.capabilities.max_text
        for character in ("x", "é", "🧾", "x 🧾\n", "&", "e\u0301\u0302"):
            for length in (longest - 1, longest, longest + 1, 2 * longest + 1):
                text = (character * length)[:length].strip()
                arrived = await _arrivals_of(chat, Reply(text=text))
                first = character[0]
                assert sum(message.text.count(first) for message in arrived) == text.count(first), (
                    f"{first!r} × {length}"
                )
                assert all(message.text.strip() for message in arrived)

    async def test_the_most_buttons_arrive_with_their_labels_cut(self, chat: Chat, channel: Channel) -> None:
        most = min(channel.capabilities.buttons, 100)
        shown = tuple(Button(label=f"{number} {'label ' * 60}", token=make_token("07")) for number in range(most or 2))
        _check_buttons(channel, await _arrivals_of(chat, Reply(text="Which one?", buttons=shown)), shown)

    async def test_question_arrives_after_its_text_and_files(
        self, case: ChannelCase, chat: Chat, channel: Channel
    ) -> None:
        """The answer follows the question, and the last receipt is the receipt of the message to edit."""
        media = await media_of(chat.files, b"%PDF-1.7", "a.pdf", "application/pdf")
        shown = (Button(label="Confirm", token=make_token("07"), style="confirm"),)
        text = "word " * (channel.capabilities.max_text // 4) + "\n\nDelete INV-42?"
        before = len(chat.arrived())
        receipts = await chat.say(Reply(text=text, buttons=shown, media=(media,)))
        arrived = chat.arrived()[before:]
        assert "Delete INV-42?" in arrived[-1].text
        assert receipts[-1].message_id == arrived[-1].message_id
        _check_buttons(channel, arrived, shown)

    async def test_an_edit_shows_in_place_and_takes_the_buttons_away(self, chat: Chat, channel: Channel) -> None:
        if not channel.capabilities.edit:
            return
        shown = (Button(label="Confirm", token=make_token("07"), style="confirm"),)
        asked = (await chat.say(Reply(text="Delete it?", buttons=shown)))[-1]
        before = chat.arrived()
        for text in ("Confirmed by **Ana** 🧾", "Confirmed by **Ana** 🧾"):
            await chat.say(Reply(text=text, edits=asked.message_id))
            after = chat.arrived()
            assert [message.message_id for message in after] == [message.message_id for message in before]
            assert "Ana" in after[-1].text
            assert "Delete" not in after[-1].text
            assert after[-1].buttons == ()


async def _arrivals_of(chat: Chat, reply: Reply) -> list[Arrived]:
    """Send a reply, and return the arriving messages."""
    before = len(chat.arrived())
    await chat.say(reply)
    return chat.arrived()[before:]


def _check_buttons(channel: Channel, arrived: Sequence[Arrived], shown: Sequence[Button]) -> None:
    """Check that only the last message shows these buttons, if the channel has buttons."""
    expected = [button.token for button in shown] if channel.capabilities.buttons else []
    assert [token for _, token in arrived[-1].buttons] == expected
    assert [message.buttons for message in arrived[:-1]] == [()] * (len(arrived) - 1)
    for (label, _), button in zip(arrived[-1].buttons, shown, strict=False):
        assert 0 < len(label) <= channel.capabilities.button_label
        assert button.label.startswith(label.rstrip("…").rstrip()[:10])
