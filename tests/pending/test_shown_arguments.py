"""Every argument can be read letter by letter from each platform's message, and runs exactly as shown."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import Address, Json, Reply
from channels.slack.render import render as render_slack
from channels.telegram.render import render as render_telegram
from channels.twilio import SmsChannel, WhatsAppChannel
from channels.twilio.render import render_whatsapp
from gateway.artifacts import media_of
from gateway.engine.parts import PartRenderer
from gateway.pending import deciding, prompting
from gateway.pending.actions import ConversationActions
from gateway.pending.prompt import ButtonTokens, attached, full_text, is_long, prompt, settled_note
from gateway.pending.propose import ProposalRefused
from gateway.pending.tokens import token_sha256
from gateway.pending.transitions import approve, finish, launch, show
from gateway.tools import Confirm
from gateway.tools.escape import LIKE_ASCII
from gateway.tools.layout import Layout
from gateway.tools.pending_action import PendingAction, Token
from tests.engine.rig import Platform
from tests.pending.platforms import SEEN, read_argument, read_rows
from tests.pending.records import ANA, GROUP, KEYRING, NOW, PRIVATE, Table, deletion, record

ON_EVERY_PLATFORM = pytest.mark.parametrize("platform", SEEN)

ODD = [
    *"\u200b\u202e\u2066\u2068\u2069\ufe0f\u3164\u2800\u034f\U000e0101\u180b",
    *"*_~`[](|<&#>-•\n\\\u00a0\"“”'’⏎\u2011–\u0430\u0410A\u0416ᴏéãש東…😀",
    *("\\n", "\\u", "  ", "ＡＢ", "INV-42", "e\u0301", "slack:T1:U7", "<@U7>", "https://x.yz/a_b", "1. ", ": "),
]
WORDS = st.lists(st.one_of(st.sampled_from(ODD), st.characters(exclude_categories=["Cs"])), max_size=6).map("".join)
VALUES: st.SearchStrategy[Any] = st.one_of(
    WORDS,
    st.sampled_from([1, 1.5, -3, True, None, "1", "true", "null", "x", ["a@b.c"], {"a": "1", "b": 1}]),
    st.lists(WORDS, max_size=2),
    st.dictionaries(WORDS, WORDS, max_size=1),
)
SENT = re.compile(r'Send ((?:[^"“]|"[^"]*"|“[^”]*”)*?) to (.*)\?')
"""The headline with two values. The words between stand outside of the quotes."""
ARGS = st.fixed_dictionaries({"it": VALUES, "to_whom": VALUES})


def reads(intent: Any) -> deciding.Reads:
    return lambda verb, asked: intent


def seen(platform: str, action: PendingAction) -> str:
    tokens = ButtonTokens(each=[] if platform in ("sms", "whatsapp") else [("yes", "no")])
    return SEEN[platform](prompt([action], tokens))


def of(args: dict[str, Json], template: str = "Send it?", **more: Any) -> PendingAction:
    layout = Layout(templates={"": template})
    return record(**{"args": args, "table": (), "layout": layout, "preview": layout.sentence(args, "en"), **more})


@ON_EVERY_PLATFORM
@given(args=ARGS)
def test_every_argument_can_be_read(platform: str, args: dict[str, Json]) -> None:
    rows = read_rows(seen(platform, of(args)))
    assert {name: read_argument(value) for name, value in rows} == args
    assert [type(read_argument(value)) for _, value in rows] == [type(value) for value in args.values()]


@ON_EVERY_PLATFORM
@given(args=ARGS)
def test_an_argument_of_the_template_can_be_read(platform: str, args: dict[str, Json]) -> None:
    text = seen(platform, of(args, "Send {it} to {to_whom}?"))
    assert read_rows(text) == []
    headline = text.translate({0x2068: None, 0x2069: None}).strip().split("\n")[0]
    found = SENT.fullmatch(headline)
    assert found is not None
    assert {"it": read_argument(found[1]), "to_whom": read_argument(found[2])} == args


@ON_EVERY_PLATFORM
@given(one=VALUES, other=VALUES)
def test_two_different_arguments_never_look_equal(platform: str, one: Json, other: Json) -> None:
    first, second = (seen(platform, of({"it": value}, "Send {it}?")) for value in (one, other))
    assert (first == second) == (repr(one) == repr(other))


@ON_EVERY_PLATFORM
@given(word=st.text(st.sampled_from(sorted(LIKE_ASCII)), min_size=1), behind=st.sampled_from(["", "-42", " INV-42"]))
def test_a_word_that_only_looks_latin_is_signed(platform: str, word: str, behind: str) -> None:
    [(_, value)] = read_rows(seen(platform, of({"it": word + behind})))
    assert value.count("\\") == len(word)
    assert read_argument(value) == word + behind


@ON_EVERY_PLATFORM
@given(args=ARGS, hidden=WORDS)
def test_no_table_and_no_preview_hides_an_argument(platform: str, args: dict[str, Json], hidden: str) -> None:
    shown_before = (("To", "Bob"), ("it", hidden), ("to_whom", "3"))
    text = seen(platform, of(args, table=shown_before, preview=hidden or "Send"))
    rows = read_rows(text)[len(shown_before) :]
    left_out = {name for name, value in (("it", hidden), ("to_whom", "3")) if name not in dict(rows)}
    assert {name: read_argument(value) for name, value in rows} == {n: v for n, v in args.items() if n not in left_out}
    for name in left_out:
        assert str(args[name]) == dict(shown_before)[name]


# ── findings, by number ──


@ON_EVERY_PLATFORM
def test_finding_8_all_that_runs_can_be_read(platform: str) -> None:
    ids: list[Json] = [f"INV-{number}" for number in range(60)]
    middle = f"{'a' * 170} and EVIL in the middle {'z' * 170}"
    rows = dict(read_rows(seen(platform, of({"ids": ids, "note": middle}))))
    assert read_argument(rows["ids"]) == ids
    assert read_argument(rows["note"]) == middle
    beside_a_table = seen(platform, of({"to": "EVIL-IBAN"}, table=(("Customer", "ACME"),)))
    assert read_rows(beside_a_table) == [("Customer", "ACME"), ("to", "EVIL-IBAN")]


@ON_EVERY_PLATFORM
def test_finding_8_invisible_characters_are_written_out(platform: str) -> None:
    plain = seen(platform, of({"it": "INV-42"}, "Delete {it}?"))
    for filler in "\u3164\u2800\uffa0\u034f\ufe00\ufe0f\U000e0101\u180b\u17b4\u200b ":
        text = seen(platform, of({"it": f"INV-42{filler}"}, "Delete {it}?"))
        assert text != plain and f"{ord(filler):04x}" in text, ascii(filler)


@ON_EVERY_PLATFORM
def test_finding_8_look_alike_values_are_told_apart(platform: str) -> None:
    alike = [
        "INV-42",
        "INV\u201142",
        "INV\u201342",
        "\u0406NV-42",
        "INV-４2",
        "\u0406\u039d\u0474-42",
        "ＩＮＶ-４２",
        "ɪɴᴠ-42",
        "\u13a5\ua4e0\u13d9-42",
        "*INV-42*",
        "_INV-42_",
        "`INV-42`",
        "INV-42 ",
    ]
    shown = [seen(platform, of({"it": value}, "Delete {it}?")) for value in alike]
    assert len(set(shown)) == len(alike)
    assert all("\\u" in text for text in shown[1:9])


@ON_EVERY_PLATFORM
def test_finding_8_a_value_does_not_speak_for_the_question(platform: str) -> None:
    text = seen(platform, of({"it": "X7? (dry run: nothing will be paid)"}, "Pay invoice {it}?"))
    headline = text.strip().splitlines()[0].replace('"', "“").replace("“?", "”?")
    assert headline == "Pay invoice “X7? (dry run: nothing will be paid)”?"


def test_finding_8_sms_folds_our_own_marks_and_never_a_value() -> None:
    text = seen("sms", of({"it": "a – b’s", "to": "Ana Silva"}, "Send {it} to {to}?"))
    assert 'Send "a – b’s" to "Ana Silva"?' in text
    rows = seen("sms", of({"it": "a – b’s", "to": "Ana Silva"}))
    assert '- it: "a – b’s"\n- to: "Ana Silva"\n' in rows


def test_finding_8_whatsapp_styles_no_value_away() -> None:
    [part] = render_whatsapp(prompt([of({"it": "*x* ~y~ _z_ a_b"}, "Send {it}?")], ButtonTokens()))
    assert str(part.arguments["body"]).startswith(
        "*Send “\\u002ax\\u002a \\u007ey\\u007e \\u005fz\\u005f a_b”?*\n\nReply *OK K7PA*"
    )


def done(action: PendingAction, name: str | None) -> PendingAction:
    return finish(launch(approve(show(action, NOW, "m"), str(ANA), name, NOW), 5, NOW), 5, "done", "", NOW)


@ON_EVERY_PLATFORM
def test_finding_11_a_display_name_is_not_in_the_gateways_voice(platform: str) -> None:
    name = "Bob, done 09:00 UTC. Confirmed by The Boss"
    text = SEEN[platform](Reply(text=settled_note(done(record(), name), NOW), exact=True))
    quoted = text.replace('"', "“", 1).replace('"', "”", 1)
    assert "Confirmed by “Bob, done 09:00 UTC. Con…med by The Boss”, done 12:00 UTC." in quoted
    assert "Confirmed by Ana, done" in SEEN[platform](Reply(text=settled_note(done(record(), "Ana"), NOW)))


@ON_EVERY_PLATFORM
async def test_finding_11_a_value_in_done_is_no_markdown_and_is_quoted(platform: str) -> None:
    value = "x](https://evil.example) **Confirmed by Boss** ["
    text = await deletion(Confirm(done="**Paid** [{invoice_id}] now.")).done_text({"invoice_id": value}, "", "en")
    assert text is not None
    seen_there = SEEN[platform](Reply(text=text, exact=True))
    literal = value.replace("*", "\\u002a") if platform == "whatsapp" else value
    assert seen_there.strip().replace('"', "“", 1).replace('"', "”", 1) == f"Paid [“{literal}”] now."


def test_finding_11_value_in_a_settled_slack_note_is_no_mention() -> None:
    for value in ("slack:T1:U7", "<@U7>"):
        action = of({"it": value}, "Tell {it}?", address=GROUP)
        by_id = done(action, None)
        note = settled_note(by_id, NOW).replace(str(ANA), "slack:T1:U9")
        [part] = render_slack(
            Address(channel="slack", account="T1", place="D1"), Reply(text=note, edits="1.2", exact=True)
        )
        assert str(part.arguments["blocks"]).count("user_id") == 1, "the one who confirmed"
        assert "'user_id': 'U9'" in str(part.arguments["blocks"])


# ── questions too long for a message ──

LONG = of({"it": "word " * 800 + "end"}, "Send {it}?", filed=True)


def test_too_long_question_is_a_file_that_is_always_the_same() -> None:
    assert is_long(LONG) and not is_long(of({"it": "word " * 500}, "Send it?"))
    file = attached(LONG)
    assert (file.filename, file.size) == ("K7PA.txt", len(full_text(LONG).encode()))
    assert attached(LONG) == file and file.content == full_text(LONG).encode()
    assert f"Send “{LONG.args['it']}”?" in full_text(LONG)


def test_the_file_has_every_row() -> None:
    action = of({"it": "x\u200b" * 700, "to": "Ana"}, table=(("Customer", "A\u202eB"),))
    assert is_long(action), "characters are counted as they are written"
    rows = ["Customer: “A\\u202eB”", "it: “" + "x\\u200b" * 700 + "”", "to: Ana"]
    assert full_text(action) == "\n".join(["Send it?", "", *rows, ""])


def test_right_to_left_row_of_the_file_keeps_the_order_around_it() -> None:
    args: dict[str, Json] = {"note": "שלום" * 1_000, "lines": ["א", 5], "הערה": "a b", "copies": 2}
    printed = full_text(of(args, "Print {note} {copies} times?"))
    rows = 'lines: \u2068[\u2068"א"\u2069, 5]\u2069\nהערה: \u2068“a b”\u2069\n'
    assert printed == f"Print \u2068“{args['note']}”\u2069 2 times?\n\n{rows}"
    text = full_text(of(args))
    assert f'note: \u2068“{args["note"]}”\u2069\nlines: \u2068[\u2068"א"\u2069, 5]\u2069\n' in text
    assert text.endswith("\nהערה: \u2068“a b”\u2069\ncopies: 2\n")


@ON_EVERY_PLATFORM
def test_prompt_with_a_file_says_so_and_how_it_is_confirmed(platform: str) -> None:
    tokens: list[tuple[str | None, str]] = [] if platform in ("sms", "whatsapp") else [(None, "no")]
    reply = prompt([LONG], ButtonTokens(each=tokens))
    assert [button.label for button in reply.buttons] == (["Cancel"] if tokens else [])
    text = SEEN[platform](reply)
    assert "delete invoice" in text and "word" not in text.replace("words", "")
    assert "the file K7PA.txt above has all of it. Only its code confirms it." in text
    assert "Reply OK K7PA to confirm or NO K7PA to cancel." in text


def test_markdown_that_would_be_slow_to_read_is_a_file_too() -> None:
    assert is_long(of({"it": "[" * 1_100}))


async def propose_long(private: Table) -> tuple[ConversationActions, PendingAction]:
    """Show a question too long for a message, without a commit."""
    actions = await private.actions()
    proposed = private.proposed(actions, "4" * 4_000, tool=deletion())
    actions.ask(proposed)
    prompting.show_prompt(actions, [proposed])
    prompting.write_files(actions)
    return actions, proposed


async def ask_long(private: Table) -> PendingAction:
    """Deliver a question too long for a message."""
    actions, proposed = await propose_long(private)
    await private.write(actions)
    await private.deliver(proposed)
    return await private.read(proposed.pending_action_id)


def assert_shown_again(actions: ConversationActions, action: PendingAction) -> None:
    assert not actions.changes.approved
    prompting.write_files(actions)
    file, prompted = actions.says
    assert file.reply.media == (media_of(attached(action)),)
    assert actions.files == {action.pending_action_id: attached(action)}
    assert prompted.reply.text.startswith(f"To be safe I need the code {action.code}")
    assert [button.label for button in prompted.reply.buttons] == ["Cancel", "Change"]


async def test_file_of_a_long_prompt_is_sent_first_and_is_required(private: Table) -> None:
    actions, action = await propose_long(private)
    file, prompted = actions.says
    assert (file.reply.media, file.shows, file.asks) == ((media_of(attached(action)),), (), (action.pending_action_id,))
    assert (prompted.reply.media, prompted.shows, prompted.alone) == ((), (action.pending_action_id,), True)
    renderer = PartRenderer({"test": Platform()}, KEYRING)
    one, two = renderer.render("bot/test:bot:ana", PRIVATE, actions.says, cause="test", language="en")
    assert one.body["asks"] == two.body["asks"] == two.body["shows"] == [action.pending_action_id]
    assert one.body["shows"] == []


async def test_long_prompt_has_no_button_that_confirms(private: Table) -> None:
    action = await ask_long(private)
    assert {token.intent for token in action.tokens} == {"cancel", "change"}


async def test_a_bare_yes_and_a_reply_are_answered_with_the_question(private: Table) -> None:
    action = await ask_long(private)
    actions = await private.actions()
    assert deciding.word(actions, reads("confirm"), ANA, private.word(actions.now, action), "en")
    assert_shown_again(actions, action)
    actions = await private.actions()
    assert deciding.reply(actions, "m1", reads("confirm"), ANA, actions.now, "en")
    assert_shown_again(actions, action)


async def test_old_confirm_button_of_a_long_prompt_shows_it_again(private: Table) -> None:
    action = await ask_long(private)
    actions = await private.actions()
    old = Token(sha256=token_sha256("old"), intent="confirm")
    actions.change(replace(action, tokens=(*action.tokens, old)), actions.now)
    feedback = deciding.press(actions, action.pending_action_id, "old", ANA, actions.now)
    assert (feedback.told, action.code in feedback.text("en")) == (True, True)
    assert_shown_again(actions, action)


async def test_code_of_a_long_prompt_confirms_it(private: Table) -> None:
    action = await ask_long(private)
    actions = await private.actions()
    assert deciding.code(actions, action.code, reads("confirm"), ANA, actions.now, "en")
    assert actions.changes.approved == [action.pending_action_id]


@pytest.mark.parametrize("how", ["word", "reply", "code", "button"])
async def test_no_in_any_form_refuses_a_long_prompt(private: Table, how: str) -> None:
    actions, action = await propose_long(private)
    token = actions.says[-1].reply.buttons[0].token
    await private.write(actions)
    await private.deliver(action)
    action = await private.read(action.pending_action_id)
    actions = await private.actions()
    match how:
        case "word":
            deciding.word(actions, reads("cancel"), ANA, private.word(actions.now, action), "en")
        case "reply":
            deciding.reply(actions, "m1", reads("cancel"), ANA, actions.now, "en")
        case "code":
            deciding.code(actions, action.code, reads("cancel"), ANA, actions.now, "en")
        case _:
            deciding.press(actions, action.pending_action_id, token, ANA, actions.now)
    assert actions.by_id[action.pending_action_id].reason == "refused"


async def test_too_long_question_is_refused_where_files_are_not_shown(private: Table) -> None:
    actions = await private.actions()
    actions.shows_files = False
    refused = private.propose(actions, "4" * 4_000)
    assert isinstance(refused, ProposalRefused) and "too long to be shown here" in refused.why
    assert isinstance(private.propose(actions), PendingAction)


@pytest.mark.parametrize("channel", [SmsChannel, WhatsAppChannel])
def test_sms_and_whatsapp_show_a_file_only_as_a_link(channel: Any) -> None:
    account: tuple[str, str, str] = ("AC" + "0" * 32, "token", "+15550001111")
    assert not channel(*account).capabilities.text_files
    assert channel(*account, public_url="https://bot.example").capabilities.text_files


async def test_questions_too_long_together_are_several_messages(private: Table) -> None:
    actions = await private.actions(fits=lambda address, reply: len(render_telegram(address, reply)) == 1)
    more: dict[str, Any] = {"plan": "p", "address": PRIVATE}
    asked = [
        actions.ask(of({"it": "word " * 300}, code=f"K7P{n}", pending_action_id=f"{n}" * 32, **more)) for n in range(5)
    ]
    prompting.show_prompt(actions, asked)
    ids = tuple(action.pending_action_id for action in asked)
    assert [each.shows for each in actions.says] == [ids[:2], ids[2:4], ids[4:]]
    assert all(each.listed == ids for each in actions.says)
    assert [[button.label for button in each.reply.buttons] for each in actions.says] == [
        ["Confirm 1–2", "Cancel 1–2", "Confirm 1", "Confirm 2"],
        ["Confirm 3–4", "Cancel 3–4", "Confirm 3", "Confirm 4"],
        ["Confirm 5", "Cancel 5", "Change"],
    ]
    assert ["5\\. **" in each.reply.text for each in actions.says] == [False, False, True]
    assert ["Or write the numbers" in each.reply.text for each in actions.says] == [False, False, True]
