"""Reading replies: whether a message is a yes, a no, or neither.

The whole message must be a word or short phrase of the table (words.toml), once the wrapping is off: markup, quotes, a
mention of the bot, a device's signature, politeness, a friendly emoji. Whatever is not in the table is unclear, so a
question, a condition, a second sentence or a look-alike letter needs no rule of its own. A wrong yes cannot be undone:
nothing here guesses.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, NamedTuple, Protocol

from channels import ButtonPress, ConversationMoved, DeliveryReport, Event, Message, OptOut
from gateway.pending.words import INTENTS, TABLE, Intent, Words, check_words, fold, safe_words

__all__ = [
    "CodeReply",
    "ConfirmParser",
    "RegexConfirmParser",
    "ReplyParser",
    "check_words",
    "decides",
    "looks_like_decision",
    "read_code",
    "reads_as_answer",
    "safe_words",
]

MAX_LENGTH = 200
"""Characters. No answer with its signature is longer, and what is longer is not looked at."""

_GRAMMAR = 1
_WRAPPERS = (("*", "*"), ("_", "_"), ("'", "'"), ('"', '"'), ("“", "”"), ("„", "“"), ("«", "»"), ("‹", "›"))
_END = re.compile(r"\s*(?:!+|[.,])$")
"""One full stop or comma, or any number of exclamation marks: "yes.." trails off and is not an answer."""
_BOT = r"@[a-z0-9_]{0,29}bot"
_MENTION = re.compile(rf"^{_BOT}[,:]?\s|,?\s{_BOT}(?=[!.,]?$)")
"""Of the bot, not of somebody else: the name of a Telegram bot ends in "bot" (core.telegram.org/bots/features)."""
_QUESTION = re.compile("QUESTION|INTERROBANG")
_SIGNATURE_RULE = re.compile(r"[-_—–]{1,3}")

_GAP = r"[ \-‐–]"
_CODE = rf"(?P<code>[a-z0-9]{{4}}|[a-z0-9]{{2}}{_GAP}[a-z0-9]{{2}}|[a-z0-9](?:{_GAP}[a-z0-9]){{3}})"
"""Wider than what codes are made of (`tokens.CODE_LETTERS`): a mistyped code names no action, but is one."""
_WORD_AND_CODE = (re.compile(rf"{_CODE}[,:]? (?P<words>.+)"), re.compile(rf"(?P<words>.+?)[,:]? {_CODE}"))


class CodeReply(NamedTuple):
    """A whole message of word and code: which action, and what is said of it."""

    code: str
    """As the prompt shows it: upper case, four characters."""
    intent: Intent


class ReplyParser:
    """Reads a message as an answer to a prompt. Pure: the same text is always read alike."""

    version: str = f"{_GRAMMAR}-{TABLE.version}"
    """Of the rules and of the table; stored with each action."""

    def classify(self, text: str, lang: str = "en") -> Literal["confirm", "cancel", "unclear"]:
        """What the text says, whole, in the conversation's language (BCP 47; the region does not matter)."""
        core = _unwrapped(text)
        if core is None:
            return "unclear"
        words = TABLE.of(lang)
        return _intent(core, words, words.phrases) or "unclear"


def read_code(text: str, lang: str) -> CodeReply | None:
    """The code and the intent of "OK K7P2", "k7-p2 sim", "NO K7P2".

    Counted are OK and NO in any language, the words of the conversation's own, and, since the code names the action
    beyond doubt, those of every other language too, except single letters.
    """
    core = _unwrapped(text)
    return None if core is None else _code_in(core, lang)


def reads_as_answer(text: str, lang: str) -> bool:
    """Whether it is a yes or a no, alone or with a code, in this language or any other of the table."""
    core = _unwrapped(text)
    if core is None:
        return False
    tables = map(TABLE.of, (lang, *TABLE.languages))
    return any(_intent(core, words, words.phrases) for words in tables) or _code_in(core, lang) is not None


def looks_like_decision(
    text: str,
    lang: str,
    *,
    stop: bool = False,
    replies: bool = False,
    media: bool = False,
    forwarded: bool = False,
    edited: bool = False,
    via_bot: bool = False,
    transcribed: bool = False,
) -> bool:
    """Whether a message goes through the decision lane, by its shape alone.

    `stop`: it is the command /stop. `replies`: it answers another message, whoever wrote that one. A bare yes or no
    does not: it is read in its place in the conversation.
    """
    if media or forwarded or edited or via_bot or transcribed:
        return False
    return stop or (reads_as_answer(text, lang) if replies else read_code(text, lang) is not None)


def decides(event: Event) -> bool:
    """Whether an event goes through the decision lane: presses, opt-outs, reports, what looks like a decision."""
    if isinstance(event, Message):
        person = event.person
        return (
            person is not None
            and not person.is_bot
            and looks_like_decision(
                event.text,
                person.language or "en",
                stop=event.command == "stop",
                replies=event.reply_to is not None,
                media=bool(event.attachments),
                forwarded=event.forwarded,
                via_bot=event.via_bot,
                transcribed=event.transcribed,
            )
        )
    return isinstance(event, ButtonPress | ConversationMoved | DeliveryReport | OptOut)


class ConfirmParser(Protocol):
    """Reads a text as yes or no, for the seed library's pending stores."""

    version: str

    def is_confirm(self, message: str) -> bool: ...
    def is_cancel(self, message: str) -> bool: ...


class RegexConfirmParser:
    """`ReplyParser` over Portuguese, English and Spanish at once, for callers that do not know the language."""

    version: str = f"reply-{ReplyParser.version}:pt-en-es"
    _languages: ClassVar[tuple[str, ...]] = ("pt", "en", "es")

    def is_confirm(self, message: str) -> bool:
        """Whether it is a yes in one of the languages. A single letter is none: "y" is also the Spanish "and"."""
        return self._reads(message) == {"confirm"}

    def is_cancel(self, message: str) -> bool:
        """Whether it is a no in one of the languages."""
        return self._reads(message) == {"cancel"}

    def _reads(self, message: str) -> set[str]:
        core = _unwrapped(message)
        tables = [TABLE.of(lang) for lang in self._languages] if core else []
        return {intent for words in tables if core and (intent := _intent(core, words, words.phrases, shortest=2))}


def _unwrapped(text: str) -> str | None:
    """The folded text without mention, signature, markup, quotes and end mark, or None when it cannot be an answer."""
    if len(text) > MAX_LENGTH or "?" in text or (not text.isascii() and any(map(_asks, text))):
        return None
    lines = [line for raw in text.splitlines() if (line := fold(raw))]
    while len(lines) > 1 and (TABLE.is_signature(_END.sub("", lines[-1])) or _SIGNATURE_RULE.fullmatch(lines[-1])):
        lines.pop()
    return _bare(_MENTION.sub(" ", " ".join(lines), count=1).strip())


def _asks(char: str) -> bool:
    """A question mark of any other script, before folding makes a semicolon of the Greek one."""
    return not char.isascii() and _QUESTION.search(unicodedata.name(char, "")) is not None


def _bare(text: str) -> str:
    """Without end mark, the Spanish opening mark, and up to three layers of markup and quotes."""
    for _ in range(3):
        text = _END.sub("", text, count=1).removeprefix("¡")
        for left, right in _WRAPPERS:
            if len(text) > 2 and text.startswith(left) and text.endswith(right):
                text = text[len(left) : -len(right)].strip()
                break
        else:
            break
    return text


def _intent(core: str, words: Words, phrases: Mapping[Intent, frozenset[str]], *, shortest: int = 1) -> Intent | None:
    """What the text says, when it says one thing."""
    said = {
        intent
        for form, fitting in _forms(core, words)
        for intent in fitting
        if len(form) >= shortest and form in phrases[intent]
    }
    return said.pop() if len(said) == 1 else None


def _code_in(core: str, lang: str) -> CodeReply | None:
    readings: set[CodeReply] = set()
    for form, fitting in _forms(core, TABLE.of(lang)):
        for match in filter(None, (pattern.fullmatch(form) for pattern in _WORD_AND_CODE)):
            code, intent = re.sub(_GAP, "", match["code"]).upper(), _intent_beside_code(match["words"], lang)
            if intent is not None and intent in fitting and any(map(str.isdigit, code)):
                readings.add(CodeReply(code, intent))
    return readings.pop() if len(readings) == 1 else None


def _intent_beside_code(core: str, lang: str) -> Intent | None:
    own = TABLE.of(lang)
    others = (TABLE.of(language) for language in TABLE.languages)
    return _intent(core, own, own.with_code) or next(
        (intent for words in others if (intent := _intent(core, words, words.with_code, shortest=2))), None
    )


def _forms(core: str, words: Words) -> Iterator[tuple[str, frozenset[Intent]]]:
    """The text with and without its emoji and its politeness, and what it can then mean."""
    bases = [(core, frozenset(INTENTS))]
    for emoji, fitting in words.emoji.items():
        if core.endswith(emoji):
            bases.append((_bare(core.removesuffix(emoji).strip()), fitting))
    for base, fitting in bases:
        yield from ((text, fitting) for text in _without_end(base, words))
        for front in (polite for polite in words.polite if _begins(base, polite)):
            rest = base.removeprefix(front).removeprefix(",").strip()
            allowed = fitting if any(_begins(rest, head) for head in words.heads) else fitting - {"confirm"}
            yield from ((text, allowed) for text in _without_end(rest, words))


def _without_end(text: str, words: Words) -> Iterator[str]:
    yield text
    for polite in words.polite:
        if text.endswith(f" {polite}"):
            yield text.removesuffix(f" {polite}").removesuffix(",")


def _begins(text: str, words: str) -> bool:
    return text == words or text.startswith((f"{words} ", f"{words},"))
