"""Writes the tables of docs/confirmation-rules.md with the sentences about an action, and of docs/wording.md with all.

The sentences come from gateway/wording/en.toml, in the same order and under the same headings. The occasions are listed
here. ``python -m scripts.sentences`` rewrites the tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from gateway.wording import FALLBACK
from gateway.wording.own import PLACE
from gateway.wording.sentences import headings, read

__all__ = ["OCCASIONS", "PAGE", "WORDING", "listed", "written"]

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "confirmation-rules.md"
WORDING: Final = ROOT / "docs" / "wording.md"

_BEGIN: Final = "<!-- sentences: written by `make sentences` -->\n"
_END: Final = "<!-- /sentences -->"

OCCASIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "the prompt": {
        "run_tool": "the question of a tool with `confirm=True`",
        "prompt_shown": "what the model is told to say about a question",
        "prompt_window": "under a question: the time that is left",
        "prompt_until": "the same for an hour or more, where the app shows times in the person's time zone",
        "prompt_code": "under a question with buttons, small and last",
        "prompt_codes": "the same, where one message asks several questions",
        "prompt_words": "under a question without buttons",
        "prompt_words_do": "the same, where the action itself is to cancel something",
        "prompt_attached": "the question is too long for a message",
        "prompt_requester_only": "under a question in a group",
        "prompt_approvers": "under a question that others decide",
        "prompt_votes": "the same, when several of them have to",
        "deciders": "in place of the approvers, where their rule has no name for them",
        "asks_approval": "in front of the question in the chat of an approver",
        "asked_by": "beside the question in a group where approvers decide",
        "prompt_asked": "under a question whose approvers are all in other chats",
        "prompt_asked_until": "the same, where the app shows times in the person's time zone",
        "prompt_refuse_only": "under a question whose approvers are all in other chats",
        "prompt_numbers": "under several questions of one reply, in a one-to-one chat",
        "standing_offer": "under a question with `standing=`, without buttons",
        "standing_pressed": "the same, with buttons",
        "standing_same": "what a permission covers: the arguments that stay the same, with their values",
        "standing_most": "the same: an argument of `most`",
        "standing_free": "the same: the arguments of `free`",
        "standing_shown": "the same, where the preview of a function is compared",
        "button_confirm": "the button for yes",
        "button_cancel": "the button for no",
        "button_do": "the button for yes, where the action itself is to cancel something",
        "button_do_not": "the button for no, likewise",
        "button_do_code": "the same, where one message asks several questions",
        "button_do_not_code": "the same, where one message asks several questions",
        "button_confirm_code": "the same, where one message asks several questions",
        "button_cancel_code": "the same, where one message asks several questions",
        "button_change": "the button with which the requester changes a question",
        "button_standing": "the button for yes that also gives the permission",
        "button_confirm_all": "the button for yes to all items of a plan",
        "button_cancel_all": "the button for no to all items of a plan",
        "button_again": "the button under what has failed, expired or drifted",
        "button_again_of": "the button under a no of the approvers",
        "still_waiting": "in front of a question that is shown again; also the answer to a press that changes nothing",
        "say_code": "a yes that could mean something else; the question follows, with its code",
        "almost": "ok, sure, or a number under a question; the question follows, with its code",
        "change_how": "the answer to *Change*",
        "standing_given": "a permission was given, when its action was launched; also a line of /pending",
        "waits_for": "a yes of a person that may only refuse; also a line under a reply",
        "still_open": "a line under a reply, once the question was shown often enough",
        "still_open_many": "the same, for several open questions",
        "several_open": "a yes or no while several questions are open; a list of them follows",
        "which_confirm": "the same after a yes, where numbers count",
        "which_cancel": "the same after a no, where numbers count",
        "changed_it": "in front of a question that takes the place of a changed one",
    },
    "what the prompt becomes once it is settled": {
        "confirmed_by": "done",
        "cancelled_by": "refused",
        "cancelled_by_because": "refused, with a reason",
        "cancelled_by_you": "the same two, by a person without a name in a chat of their own",
        "cancelled_by_you_because": "the same two, by a person without a name in a chat of their own",
        "you": "in place of such a person's name",
        "running_note": "confirmed, and not at its end yet",
        "failed_note": "the tool raised",
        "unknown_note": "the outcome is unknown",
        "expired_note": "nobody answered in time",
        "not_started_note": "confirmed, but no worker could launch it within 15 minutes",
        "withdrawn_note": "withdrawn by /stop, by an operator, or since the person opted out",
        "undelivered_note": "the question did not arrive",
        "drifted_note": "drifted: it would act on something else than was shown",
        "tampered_note": "drifted: somebody without the key changed its record",
        "other_release_note": "drifted: no process has the tool as it was shown",
        "not_checked_note": "drifted: its preview could not be made again",
        "changed_note": "a newer question takes its place",
    },
    "what became of an action": {
        "done": "done, and neither the tool nor `done=` says it in other words",
        "permitted": "a call that a standing permission covers, before it runs",
        "permitted_done": "the same, once it is done; the text of the tool follows",
        "cancelled": "refused, or withdrawn by an operator",
        "cancelled_because": "refused, with a reason",
        "cancelled_you_because": "the same, by a person without a name in a chat of their own",
        "not_approved": "refused by an approver, for the person who asked",
        "not_approved_because": "the same, with a reason",
        "failed": "the tool raised",
        "failed_because": "the tool raised `ToolFailed` with `person=`, and has no `failed=`",
        "did_not_work": "the `{reason}` of `failed=` when the tool named none; also the answer to a late button",
        "unknown": "a timeout, a broken connection, or a process that ended in the middle",
        "unknown_repeated": "the same, after more than one launch",
        "nothing_done": "the tool raised `NothingDone`",
        "busy": "its `lock` is held by an earlier run that does not end",
        "expired": "nobody answered in time",
        "undelivered": "the question did not arrive, and had taken the place of another one",
        "not_shown": "no place took the question: told with the next message of the person",
        "taken_back": "the model took the question back for the person",
        "drifted": "drifted: it would act on something else than was shown",
        "tampered": "drifted: somebody without the key changed its record",
        "other_release": "drifted: no process has the tool as it was shown",
        "not_started": "confirmed, but no worker could launch it within 15 minutes",
        "plan_stopped": 'an item of a plan, when one before it failed, with `on_item_failure="stop"`',
        "not_checked": "drifted: its preview could not be made again",
        "cannot_ask_again": "Ask again was pressed, and the call is refused now",
        "approvers_unreached": "approvers who have no chat with the bot, or opted out",
        "dropped": 'the person wrote about something else, with `on_unrelated="drop"`',
    },
    "what answers a press, or a yes or no that comes late": {
        "pressed_ok": "a yes that counts",
        "vote_passed_on": "a yes or no to a question that was asked in another chat",
        "pressed_vote": "a yes that counts, while others are needed too",
        "pressed_no": "a no that counts",
        "one_moment": "Ask again was pressed; also after a yes that waits for a process of the release that asked",
        "already_running": "after the yes, before the end",
        "already_done": "it is done",
        "already_cancelled": "it was refused or withdrawn",
        "already_expired": "it has expired, or its question did not arrive",
        "already_unknown": "its outcome is unknown",
        "not_yours": "somebody else's question",
        "not_here": "the button was shown in another chat",
        "unknown_button": "nothing is known of it, or not any more",
        "held_up": "the press took more than a minute to arrive",
        "asked_often": "the approvers were asked again three times within an hour",
    },
    "commands": {
        "stopped": "/stop, where an answer was being written or a permission counted",
        "stopped_waiting": "/stop, where something waited",
        "stopped_nothing": "/stop, where there was nothing",
        "stopped_running": "/stop, while an effect runs",
        "standing_revoked": "/stop, for each standing permission",
        "pending_list": "/pending",
        "pending_none": "/pending, where nothing is open",
    },
    "when something is in the way": {
        "file_lost": "a file that the tool made could not be stored",
        "may_be_duplicate": "in front of a message that may have arrived already",
    },
}
"""Heading of the sentences -> name of a sentence -> occasion of the sentence."""

OTHER_OCCASIONS: Final[Mapping[str, str]] = {
    "greeting": "/start, and a person who opts in; `greeting=` comes first",
    "help": "/help, with the list of the commands",
    "cmd_start": "the list of the commands, and the menu of the platform",
    "cmd_help": "the same",
    "cmd_new": "the same",
    "cmd_stop": "the same",
    "cmd_pending": "the same",
    "cmd_receipts": "the same",
    "cmd_usage": "the same",
    "cmd_export": "the same",
    "cmd_forget": "the same",
    "new_done": "/new",
    "receipts_list": "/receipts",
    "receipts_none": "/receipts, where nothing is decided yet",
    "usage_tokens": "/usage: an amount without a price",
    "usage_day": "/usage",
    "usage_month": "/usage",
    "usage_cached": "/usage, where the model's own cache saved tokens",
    "usage_unpriced": "/usage, where the price of a model is not known",
    "usage_saved": "/usage, where a cache of the bot saved calls",
    "usage_left_day": "/usage, with a budget of a day",
    "usage_left_month": "/usage, with a budget of a month",
    "own_chat_only": "/export and /forget in a group",
    "export_ask": "/export",
    "export_done": "/export with the code: the file follows",
    "export_nothing": "/export with the code, where nothing is kept",
    "export_too_large": "/export with the code, where the platform takes no file of that size",
    "forget_ask": "/forget",
    "forget_begun": "/forget with the code",
    "stranger": "a person whom the allow-list does not name",
    "newcomer": "the same, with pairing",
    "admitted": "a person let in by a code",
    "has_admitted": "the answer to /pair",
    "no_such_newcomer": "the answer to /pair with another code",
    "whoami": "/whoami",
    "opted_out": "a person who opts out",
    "not_stored": "a message by SMS or WhatsApp that could not be stored",
    "too_fast": "more messages a minute than the limit",
    "model_down": "the model cannot be reached; the message is tried again",
    "history_too_long": "the conversation is longer than the model takes",
    "gave_up": "the model could not be reached to the end",
    "turn_timeout": "an answer that takes longer than its limit",
    "still_working": "an answer that takes long, once, on platforms without a sign of typing",
    "repeated": "the same text five times with the same answer",
    "file_not_read": "a file that could not be read",
    "answer_in_file": "under the beginning of an answer of more messages than `max_parts`",
    "heard": "in front of the answer to a voice message",
    "max_iterations": "an answer of more steps than `max_iterations`, or in a loop",
    "budget": "an answer that costs more than its limit",
    "budget_person": "a person's budget is used up",
    "budget_bot": "the bot's budget is used up",
    "guarded": "a guard stopped the message or the answer",
    "empty_answer": "the model answered with nothing",
    "error_incident": "an error of the bot or of the gateway; the log has the reference",
}
"""Name of a sentence about another subject than an action -> occasion."""

_ON_THE_PAGE: Final[Mapping[str, str]] = {
    "page_console_": "the console of `askfirst dev`",
    "page_began_": "the console: how a message came",
    "page_stage_": "the console: a step of a message",
    "page_": "the chat page",
}
"""Beginning of the names of the page's own texts -> occasion. The first that fits counts."""


def written(page: str) -> str:
    """Return docs/confirmation-rules.md with current tables. Raises KeyError for a sentence without an occasion."""
    return _with(page, _tables("| {heading} | when | name |", "| {text} | {when} | `{name}` |", of=OCCASIONS))


def listed(page: str) -> str:
    """Return docs/wording.md with current tables. Raises KeyError for a sentence without an occasion."""
    head, row = "| {heading} | when | placeholders | in English |", "| `{name}` | {when} | {places} | {text} |"
    return _with(page, _tables(head, row, of=set(headings().values())))


def _with(page: str, tables: Iterable[str]) -> str:
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}{''.join(tables)}\n{_END}{after}"


def _tables(head: str, row: str, *, of: Collection[str]) -> Iterator[str]:
    """Yield the tables of these headings. Sentences about another subject are in the tables of all headings only."""
    about = {name for names in OCCASIONS.values() for name in names}
    for heading in dict.fromkeys(headings().values()):
        names = [name for name, stands in headings().items() if stands == heading]
        if of is OCCASIONS:
            names = [name for name in names if name in about or name not in OTHER_OCCASIONS]
        if heading not in of:
            continue
        first = head.format(heading=heading)
        yield f"\n{first}\n{'| --- ' * (first.count('|') - 1)}|\n"
        for name in names:
            places = ", ".join(f"`{{{place}}}`" for place in dict.fromkeys(PLACE.findall(_text(name))))
            yield row.format(name=name, when=_occasion(name), places=places, text=_text(name)) + "\n"


def _text(name: str) -> str:
    """Return a sentence in English as a cell of a table: all plural forms, and each new line as in TOML."""
    spoken = read(FALLBACK)
    forms = spoken.forms.get(name, {"other": spoken.sentences[name]})
    return " / ".join(forms.values()).replace("|", "\\|").replace("\n", "\\n")


def _occasion(name: str) -> str:
    for occasions in (*OCCASIONS.values(), OTHER_OCCASIONS):
        if name in occasions:
            return occasions[name]
    for beginning, occasion in _ON_THE_PAGE.items():
        if name.startswith(beginning):
            return occasion
    raise KeyError(f"scripts/sentences.py does not say when {name} is said")


if __name__ == "__main__":
    for path, renewed in ((PAGE, written), (WORDING, listed)):
        path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
