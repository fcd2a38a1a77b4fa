"""An author's own sentences: each is checked when the bot is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway import Agent, ChannelAgent, Gateway, Settings
from gateway.config.options import WrongOption
from gateway.wording import LANGUAGES, say, speaking

BARE = "has a placeholder with ! or :, and a placeholder is a name alone"
BRACE = "has a { or } without a partner: write {{ or }} to show a brace"
CODED = "has {preview} in code or in a link, where a value is not shown as given"
FORMS = "is no form of a number in this language: there are one, few, many, other"
UNKNOWN = "has the unknown placeholder {0}: did you mean {1}?, and lacks {1}"
WRONG: list[tuple[Any, dict[str, str]]] = [
    ({"dee": {}}, {"wording.dee": "is no language: did you mean de?"}),
    ({"pt-BR": {}}, {"wording.pt-BR": "is no language: did you mean pt?"}),
    ({"tlh": {}}, {"wording.tlh": f"is no language: there are {', '.join(LANGUAGES)}"}),
    ({"de": "Moin"}, {"wording.de": "should be a table of sentences, not a value of type str"}),
    ({"de": {"greting": "Moin"}}, {"wording.de.greting": "is no sentence: did you mean greeting?"}),
    ({"de": {"zzz": "Moin"}}, {"wording.de.zzz": "is no sentence: docs/wording.md lists them"}),
    ({"de": {"greeting": 5}}, {"wording.de.greeting": "should be a text, not a value of type int"}),
    ({"de": {"greeting": {"other": "x"}}}, {"wording.de.greeting": "should be a text, not a table"}),
    ({"en": {"greeting": " \n"}}, {"wording.en.greeting": "is empty"}),
    ({"en": {"done": "Done."}}, {"wording.en.done": "lacks {preview}"}),
    (
        {"en": {"prompt_words": "{yes_wrod} {code} or {no_word} {code} {0}"}},
        {
            "wording.en.prompt_words": "has the unknown placeholder {yes_wrod}: did you mean {yes_word}?, and has the "
            "unknown placeholder {0}: the sentence has {yes_word}, {code}, {no_word}, and lacks {yes_word}"
        },
    ),
    ({"en": {"you": "{you}"}}, {"wording.en.you": "has the unknown placeholder {you}: the sentence has none"}),
    (
        {"en": {"done": "} {preview}"}},
        {"wording.en.done": BRACE},
    ),
    (
        {"en": {"done": "{preview!r}", "failed": "{preview:>9}", "unknown": "{preview.x}"}},
        {
            "wording.en.done": BARE,
            "wording.en.failed": BARE,
            "wording.en.unknown": UNKNOWN.format("{preview.x}", "{preview}"),
        },
    ),
    ({"en": {"greeting": "**Hi"}}, {"wording.en.greeting": "has the mark ** without a partner"}),
    ({"en": {"greeting": "`Hi"}}, {"wording.en.greeting": "has the mark ` without a partner"}),
    ({"en": {"greeting": "Hi\u202e"}}, {"wording.en.greeting": "has the invisible U+202E"}),
    (
        {"en": {"done": "`{preview}`"}},
        {"wording.en.done": CODED},
    ),
    (
        {"en": {"done": "[x]({preview})"}},
        {"wording.en.done": CODED},
    ),
    ({"en": {"pressed_ok": "*Ok*"}}, {"wording.en.pressed_ok": "is shown without Markdown: leave the marks out"}),
    ({"en": {"pressed_ok": "a\nb"}}, {"wording.en.pressed_ok": "should be a single line"}),
    ({"en": {"already_done": "n" * 201}}, {"wording.en.already_done": "should have at most 200 characters, not 201"}),
    ({"en": {"button_cancel": "confirm"}}, {"wording.en.button_cancel": "is the label of button_confirm too"}),
    ({"en": {"button_confirm": "n" * 41}}, {"wording.en.button_confirm": "should have at most 40 characters, not 41"}),
    (
        {"pl": {"still_open_many": {"one": "{count}", "two": "{count}", "few": "{cout}", "many": 3}}},
        {
            "wording.pl.still_open_many": "needs the form other",
            "wording.pl.still_open_many.two": FORMS,
            "wording.pl.still_open_many.few": UNKNOWN.format("{cout}", "{count}"),
            "wording.pl.still_open_many.many": "should be a text, not a value of type int",
        },
    ),
]


def test_one_error_lists_all_that_is_wrong_with_own_sentences() -> None:
    for given, expected in WRONG:
        with pytest.raises(WrongOption) as raised:
            ChannelAgent(Agent(), wording=given)
        assert raised.value.issues == expected
    with pytest.raises(WrongOption) as raised:
        ChannelAgent(Agent(), language="?", wording={"de": {"greting": "x", "done": "y"}, "xx": {}})
    assert list(raised.value.issues) == ["language", "wording.de.greting", "wording.de.done", "wording.xx"]


def test_own_sentences_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "wording.toml"
    file.write_text('[de]\ngreeting = "Moin {{x}}!"\n\n[pl]\nstill_open_many = "Otwarte: {count}"\n', encoding="utf-8")
    for given in (file, str(file)):
        bot = ChannelAgent(Agent(), tone="familiar", wording=given)
        with speaking(bot.wording):
            assert say("greeting", "de-DE") == "Moin {x}!" and say("greeting", "en").startswith("Hello!")
            assert say("whoami", "de", person="Ana") == "Hier bist du Ana."
            assert [say("still_open_many", "pl", count=n) for n in (1, 3)] == ["Otwarte: 1", "Otwarte: 3"]
        assert say("greeting", "de").startswith("Guten Tag!")
    issues = {"missing.toml": "cannot be read from", "wrong.toml": "is no TOML file", "latin.toml": "is no TOML file"}
    (tmp_path / "wrong.toml").write_text("greeting", encoding="utf-8")
    (tmp_path / "latin.toml").write_bytes(b'[de]\ngreeting = "Gr\xfc\xdfe"')
    for name, issue in issues.items():
        with pytest.raises(WrongOption, match=issue):
            ChannelAgent(Agent(), wording=tmp_path / name)


def test_changing_the_given_table_changes_no_sentence() -> None:
    given = {"en": {"greeting": "Hi!"}}
    bot = ChannelAgent(Agent(), wording=given)
    given["en"]["greeting"] = "{broken"
    with speaking(bot.wording):
        assert say("greeting", "en") == "Hi!"


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("Reply {yes_word} {code} or STOP {no_word} {code}", "STOP"),
        ("{yes_word} {code}, {no_word} {code}, **Quit** or “end”", "Quit and end"),
        ("YES {code} {yes_word} {no_word}", "YES"),
        ("To go on {yes_word} {code}; to stop or cancel in the end, {no_word} {code}. NONSTOP", None),
    ],
)
def test_words_of_carriers_are_refused_where_sms_is_on(tmp_path: Path, sentence: str, words: str | None) -> None:
    bot = ChannelAgent(
        Agent(), wording={"en": {"prompt_words": sentence, "greeting": "STOP ends it.", "button_do": "STOP"}}
    )
    account = {"twilio_account_sid": f"AC{'0' * 32}", "twilio_auth_token": "x" * 32, "public_url": "https://a.example"}

    def gateway_with(**sender: str) -> Gateway:
        return Gateway(bot, Settings(store=f"sqlite:///{tmp_path}/x.db", allow="*", **account, **sender))

    gateway_with(twilio_whatsapp_from="+15550001111")
    if words is None:
        gateway_with(twilio_sms_from="+15550001111")
        return
    with pytest.raises(WrongOption) as raised:
        gateway_with(twilio_sms_from="+15550001111")
    assert list(raised.value.issues) == ["wording.en.prompt_words"]
    assert raised.value.issues["wording.en.prompt_words"].startswith(f"says {words}: carriers act on it")


@pytest.mark.parametrize(
    ("sentence", "text", "words"),
    [
        ("prompt_code", "**{no_word} {code}** to confirm or **{yes_word} {code}** to cancel.", "in another order"),
        ("prompt_code", "~~{yes_word} {code}~~ or {no_word}.", "strikes words through"),
        ("prompt_window", "- amount: 5\n\n{duration}", "a single line"),
        ("prompt_window", "\u3164{duration}\u2028.", r"U\+2028, U\+3164"),
        ("button_confirm", "No", "reads as a no"),
        ("button_confirm", "Cancel it", "reads as a no"),
        ("button_cancel", "Yes", "reads as a yes"),
        ("button_change", "Cancel", "is the label of button_cancel too"),
        ("button_change", "confirm", "is the label of button_confirm too"),
        ("button_cancel_all", "Confirm\u200d  all", "is the label of button_confirm_all too"),
    ],
)
def test_sentence_that_says_the_contrary_is_refused(sentence: str, text: str, words: str) -> None:
    with pytest.raises(WrongOption, match=words):
        ChannelAgent(Agent([]), wording={"en": {sentence: text}})
