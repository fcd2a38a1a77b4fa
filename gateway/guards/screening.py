"""The screening of texts from elsewhere for instructions to the model.

The screening finds common wordings in English, also with invisible characters and look-alike letters in between, and
proves no text harmless. A tool that asks still asks.
"""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final, NamedTuple


class Screened(NamedTuple):
    """A screened text, and the kinds of the removed instructions."""

    text: str
    kinds: tuple[str, ...]


_LONGEST_LINE: Final = 2000
"""A longer line is screened in pieces of this length, each with the end of the previous piece."""
_OVERLAP: Final = 200
_LONGEST_NAME: Final = 500
QUICK: Final = 2000
"""Any text of this length takes at most some 20 milliseconds."""

_BEFORE = (
    r"(?:all |any |the |your |of |these |those |my )*(?:previous|prior|earlier|above|preceding|former|original|system)"
)
_RULES = r"(?:instruction|direction|rule|prompt|command|guideline|constraint|polic(?:y|ie)|message|context)s?"
_MODEL = r"(?:ai|a\.i\.|assistant|llm|language model|chat ?bot|agent|model)"
_SECRETS = r"(?:conversation|chat|history|data|password|credential|secret|token|api key|key|file|memor(?:y|ie))s?"

_OWN_RULES = (
    r"(?:own |current |initial |given |usual |core |safety |system )*"
    r"(?:instruction|directive|rule|prompt|guideline|constraint|polic(?:y|ie)|restriction|programming|training)s?"
)
_PEOPLE = (
    r"(?:owner|boss|manager|supervisor|ceo|admin(?:istrator)?|operator|user|customer|approver|requester|person|human|"
    r"developer|root)"
)
_BEFORE_NO_COMMAND = (
    *("not", "n't", "never", r"\bto", "may", "might", "can", "could", "would", "will"),
    *("who", "they", "people", r"\bwe", r"\bI", "sometimes", "often"),
)
"""The words before a verb other than a command: a negation, another verb or a subject."""
_BEFORE_A_NOUN = ("the", "our", "your", "this", r"\bmy", r"\ba")


def _without(before: Sequence[str], words: str) -> str:
    """Return a pattern of words, not preceded by any of `before`."""
    return rf"\b(?={words})" + "".join(rf"(?<!{word} )" for word in before) + words


_VALUE = r"(?!\W*(?:windows|linux|mac|ubuntu|debian|android|ios|version|v?\d|ok\b|online|offline|up\b|down\b|none|n/a))"
"""The words behind a label in the description of a machine."""

_PATTERNS: Final = [
    (
        "override",
        rf"\b(?:ignore|disregard|forget|override|overrule|drop|skip)\b.{{0,20}}\b{_BEFORE}\b"
        rf".{{0,20}}\b{_RULES}\b",
    ),
    (
        "override",
        rf"\b(?:ignore|disregard|forget)\b (?:everything|all|anything)\b.{{0,30}}\b"
        rf"(?:above|before|said|told|{_RULES})\b",
    ),
    (
        "override",
        _without(
            _BEFORE_NO_COMMAND,
            r"(?:ignore|disregard|forget|override|overrule|overwrite|bypass|discard|abandon|break|violate)\b ",
        )
        + rf"(?:all |any |each |of )*your {_OWN_RULES}\b",
    ),
    (
        "override",
        rf"\byour {_OWN_RULES} (?:is|are|were|was|have been|has been)(?: now| hereby)? "
        r"(?:void|cancel+ed|replaced|superseded|revoked|overridden|suspended|no longer valid)\b",
    ),
    ("override", rf"\bdo not (?:follow|obey)\b.{{0,20}}\b{_RULES}\b"),
    (
        "new instructions",
        rf"\b(?:new|updated|real|actual|revised|following|secret|hidden) (?:system )?{_RULES}\b"
        r" ?(?:are|is|follow|:)",
    ),
    ("new instructions", r"\binstead,? (?:you must|you should|you will|do the following)\b"),
    ("role", r"\byou are (?:now|no longer)\b"),
    ("role", r"\bfrom now on,? (?:you|act|respond|answer|behave)\b"),
    (
        "role",
        rf"\b(?:act|behave|respond|answer|pretend|roleplay|role-play)\b (?:as|to be|like)\b.{{0,30}}\b"
        rf"(?:{_MODEL}|admin(?:istrator)?|root|developer|system)\b",
    ),
    (
        "role",
        _without(
            _BEFORE_NO_COMMAND,
            r"(?:impersonate|(?:pretend|roleplay|role-play|imagine|masquerade|pose) (?:that )?"
            r"(?:to be|you are|you're|as))\b ",
        )
        + rf"(?:the |an? |my |your )?{_PEOPLE}\b",
    ),
    (
        "role",
        rf"(?:^|[.!?:;] )\W{{0,3}}(?:act|behave|speak|talk|answer|respond|reply) "
        rf"as (?:(?:if|though) you (?:were|are) )?(?:the |an? |my ){_PEOPLE}\b",
    ),
    (
        "role",
        r"\b(?:enter|enable|activate|switch to)\b.{0,15}\b"
        r"(?:developer|debug|admin|god|dan|jailbreak|unrestricted)\b.{0,5}\bmode\b",
    ),
    ("role", r"\b(?:jailbreak|do anything now)\b"),
    ("markup", r"<\|?(?:im_start|im_end|system|assistant|endoftext|start_header_id|eot_id)\|?>"),
    (
        "markup",
        r"\[/?(?:inst|system|sys)\]|<</?sys>>|</?(?:system|assistant|instructions?|tool_call|function_calls?)>",
    ),
    ("markup", r"<\|[a-z_\u2581]{2,30}\|>|</?(?:start_of_turn|end_of_turn|bos|eos|think)>"),
    ("markup", r"^(?:(?!<s>).)*</s>"),  # with its beginning it is a text that is crossed out
    ("markup", r"\[/?(?:system|assistant|developer) (?:prompt|message|note|override)\]|^#{3,} ?instruction:"),
    (
        "markup",
        r"[.!?;…)\]}>\"”»]\s+system(?: (?:prompt|message|note|notice|instructions?|override|alert|admin))?\s?:"
        + _VALUE,
    ),
    (
        "markup",
        _without(_BEFORE_A_NOUN, r"(?-i:System|SYSTEM)\s?:\W{0,5}")
        + r"(?:you|ignore|disregard|forget|override|delete|pay|send|transfer|run|execute|approve|confirm|reveal|"
        r"respond|pretend|grant|do not|from now|the (?:user|owner|person))\b",
    ),
    ("markup", r"^\W{0,5}(?:system|assistant|developer)(?: (?:prompt|message|note))?\W{0,3}:"),
    (
        "address",
        rf"\b(?:attention|note|message|instruction|reminder|important|dear|hey|hello)s?\b.{{0,12}}\b"
        rf"(?:to|for)?\b.{{0,5}}\b(?:the |any |all )?{_MODEL}\b ?[:,!]",
    ),
    ("address", rf"\bif you are an? {_MODEL}\b"),
    (
        "prompt",
        rf"\b(?:reveal|print|show|repeat|output|leak|display|tell me|disclose|return)\b.{{0,20}}\b"
        rf"(?:your|the|system|initial|hidden)\b.{{0,15}}\b(?:system prompt|prompt|{_RULES})\b",
    ),
    ("prompt", r"\bwhat (?:is|are) your (?:system )?(?:prompt|instructions)\b"),
    (
        "secrecy",
        r"\b(?:do not|don't|never)\b (?:tell|inform|mention|alert|notify|warn|show|reveal)\b.{0,20}\b"
        r"(?:the )?(?:user|person|customer|human|owner|operator)\b",
    ),
    (
        "secrecy",
        r"\bwithout (?:asking|telling|informing|notifying|alerting|"
        r"the (?:user|person|customer)'?s? (?:knowledge|consent|approval))\b",
    ),
    (
        "confirmation",
        r"\bwithout (?:any )?(?:confirmation|confirming|approval|permission|asking (?:first|the user))\b",
    ),
    (
        "confirmation",
        r"\b(?:the )?(?:user|person|customer|owner|admin) (?:has |have )?(?:already )?"
        r"(?:approved|confirmed|agreed|authori[sz]ed|consented)\b",
    ),
    (
        "confirmation",
        r"\b(?:bypass|circumvent|disable|turn off|override)\b.{0,20}\b"
        r"(?:safety|security|guard(?:rail)?s?|polic(?:y|ies)|filters?|confirmations?|restrictions?)\b",
    ),
    (
        "tool",
        r"\byou (?:must|should|need to|have to|will)\b.{0,20}\b(?:call|use|invoke|run|execute)\b"
        r".{0,40}\b(?:tool|function|command)\b",
    ),
    (
        "tool",
        r"\b(?:call|invoke|execute|run) (?:the )?[\w.-]{1,40} (?:tool|function)\b.{0,20}\b"
        r"(?:now|immediately|with)\b",
    ),
    (
        "exfiltration",
        rf"\b(?:send|forward|post|upload|email|e-mail|transmit|exfiltrate|leak|copy)\b.{{0,30}}\b"
        rf"(?:all|the|this|your|any|every|user'?s?)\b.{{0,20}}\b{_SECRETS}\b.{{0,30}}\bto\b",
    ),
    ("exfiltration", r"!\[[^\]]{0,100}\]\(https?://[^)\s]{0,500}[?&][^)\s]{0,200}=\s*(?:\{|%7b|<)"),
]
_KINDS: Final = [(kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _PATTERNS]

_LOOK_ALIKES: Final = str.maketrans(
    "аАеЕоОрРсСхХуУіІјЈѕЅԁһҺкКмМнНтТвВзЗӏѵԛԝεΕοΟαΑρΡυΥιΙκΚνΝτΤχΧβΒμΜηΗζΖ",
    "aAeEoOpPcCxXyYiIjJsSdhHkKmMhHtTbB33lvqweEoOaApPuYiIkKvNtTxXbBuMnHzZ",
)
"""Look-alike letters of Cyrillic and Greek, and the letter of ASCII for each."""


_OTHER_WORDS: Final = re.compile(r"(?:[^\x00-\x7f]++ ?)++")


async def screen_aside(text: str) -> Screened:
    """Return the result of `screen` without holding up the event loop: a long text can take a second."""
    return screen(text) if len(text) <= QUICK else await asyncio.to_thread(screen, text)


def screen(text: str) -> Screened:
    """Return a text without invisible characters and without lines that read like an instruction.

    A note replaces each line, or the whole text for an instruction across lines.
    """
    visible = _visible(text)
    kinds: dict[str, None] = {}
    lines: list[str] = []
    for line in visible.splitlines(keepends=True):
        found = _kinds(line)
        if found:
            kinds |= dict.fromkeys(found)
            ending = line[len(line.rstrip("\r\n")) :]
            line = f"[taken out: a line that reads like an instruction ({', '.join(found)})]{ending}"
        lines.append(line)
    if not kinds and (across := _kinds(" ".join(visible.split()))):  # an instruction over several lines
        kinds = dict.fromkeys(across)
        lines = [f"[taken out: a text that reads like an instruction ({', '.join(across)})]"]
    return Screened("".join(lines), tuple(kinds))


def screened_name(filename: str) -> str:
    """Return a file's name, or a neutral name for a name that is too long or reads like an instruction."""
    words = re.sub(r"[_\-.+]+", " ", filename[:_LONGEST_NAME])
    if len(filename) <= _LONGEST_NAME and not (_kinds(_visible(words)) or _kinds(_visible(filename))):
        return filename
    suffix = PurePosixPath(filename).suffix
    return f"file{suffix}" if re.fullmatch(r"\.\w{1,8}", suffix) else "file"


def _folded(piece: str) -> str:
    """Return a piece of a line with look-alike letters replaced by letters of ASCII.

    Words in other letters become a single word: no part of an instruction in English.
    """
    if piece.isascii():
        return piece
    folded = unicodedata.normalize("NFKC", piece).translate(_LOOK_ALIKES)
    folded = "".join(char for char in unicodedata.normalize("NFD", folded) if not unicodedata.combining(char))
    return _OTHER_WORDS.sub(lambda found: "я " if found[0].endswith(" ") else "я", folded)


def _visible(text: str) -> str:
    """Return a text without invisible characters."""
    if text.isascii():
        return text
    return "".join(char for char in text if unicodedata.category(char) != "Cf" and not 0xFE00 <= ord(char) <= 0xFE0F)


def _kinds(line: str) -> list[str]:
    """Return the kinds of instructions in a line, cut first: folding makes up to 18 characters of a letter."""
    ends = range(_LONGEST_LINE, len(line) + _LONGEST_LINE, _LONGEST_LINE)
    pieces = [_folded(line[max(0, end - _LONGEST_LINE - _OVERLAP) : end]) for end in ends]
    return list(dict.fromkeys(kind for kind, pattern in _KINDS for piece in pieces if pattern.search(piece)))
