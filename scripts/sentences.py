"""Writes the tables of docs/confirmation-rules.md with the sentences about an action.

The sentences come from gateway/wording/en.toml, in the same order and under the same headings. The occasions are listed
here. ``python -m scripts.sentences`` rewrites the tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from gateway.wording import FALLBACK, LANGUAGES

__all__ = ["OCCASIONS", "PAGE", "written"]

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "confirmation-rules.md"
_SENTENCES: Final = ROOT / "gateway" / "wording" / f"{FALLBACK}.toml"

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

_PARTLY: Final = frozenset({"commands", "when something is in the way"})
"""Headings with sentences about other subjects than an action, too."""
_HEADING = re.compile(r"# ── (.*) ──")
_NAME = re.compile(r"(\w+) = ")


def written(page: str) -> str:
    """Return the page with current tables. Raises KeyError for a sentence without an occasion."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}{''.join(_tables())}\n{_END}{after}"


def _tables() -> Iterator[str]:
    """Return the lines of the tables."""
    occasions: Mapping[str, str] | None = None
    partly = False
    for line in _SENTENCES.read_text(encoding="utf-8").splitlines():
        if heading := _HEADING.match(line):
            occasions, partly = OCCASIONS.get(heading[1]), heading[1] in _PARTLY
            if occasions is not None:
                yield f"\n| {heading[1]} | when | name |\n| --- | --- | --- |\n"
        elif occasions is not None and (name := _NAME.match(line)):
            if name[1] not in occasions:
                if partly:
                    continue
                raise KeyError(f"scripts/sentences.py does not say when {name[1]} is said")
            sentence = LANGUAGES[FALLBACK][name[1]].replace("|", "\\|")
            yield f"| {sentence} | {occasions[name[1]]} | `{name[1]}` |\n"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
