"""Reading replies: whether a message is a yes, a no, or neither.

The whole message must be a word or short phrase of the table (words.toml), once the wrapping is off: markup, quotes, a
mention of the bot, a device's signature, politeness, a friendly emoji. Every other text is unclear, so a question, a
condition, a second sentence or a look-alike letter needs no rule of its own. The rules never guess, since a wrong yes
cannot be undone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import ClassVar, Literal, NamedTuple, Protocol, TypeAlias

from channels import ButtonPress, ConversationMoved, DeliveryReport, Event, Message, OptOut
from gateway.pending.folding import fold
from gateway.pending.verbs import in_place, verbs_in
from gateway.pending.words import INTENTS, TABLE, Intent, Words
from gateway.tools.verbs import NO_VERBS

__all__ = [
    "ANY_VERB",
    "MAX_LENGTH",
    "Answer",
    "CodeReply",
    "ConfirmParser",
    "RegexConfirmParser",
    "ReplyParser",
    "decides",
    "looks_like_decision",
    "read_beside_code",
    "read_code",
    "read_refusal",
    "read_refused_code",
    "read_words",
    "reads_as_answer",
    "reason_of",
]

Answer: TypeAlias = Literal["confirm", "cancel", "unclear"]
"""How a message reads as the answer to a question."""

MAX_LENGTH = 200
"""Characters. No answer with its signature is longer, and what is longer is not looked at."""

ANY_VERB = "*"
"""Stands for every verb, where only the shape of an answer counts."""
_GRAMMAR = 2
_WRAPPERS = (("*", "*"), ("_", "_"), ("'", "'"), ('"', '"'), ("“", "”"), ("„", "“"), ("«", "»"), ("‹", "›"))
_END = re.compile(r"\s*(?:!+|[.,])$")
"""One full stop or comma, or any number of exclamation marks: "yes.." trails off and is not an answer."""
_BOT = r"@[a-z0-9_]{0,29}bot"
_MENTION = re.compile(rf"^{_BOT}[,:]?\s|,?\s{_BOT}(?=[!.,]?$)")
"""A mention of a bot: the name of a Telegram bot ends in "bot" (core.telegram.org/bots/features)."""
_QUESTION = re.compile("QUESTION|INTERROBANG")
_SIGNATURE_RULE = re.compile(r"[-_—–]{1,3}")
_DIGIT = re.compile("[0-9]")

_GAP = r"[ \-‐–]"
_CODE = rf"(?P<code>[a-z0-9]{{4}}|[a-z0-9]{{2}}{_GAP}[a-z0-9]{{2}}|[a-z0-9](?:{_GAP}[a-z0-9]){{3}})"
"""Wider than what codes are made of (`tokens.CODE_LETTERS`): a mistyped code names no action, but is one."""
_WORD_AND_CODE = (re.compile(rf"{_CODE}[,:]? (?P<words>.+)"), re.compile(rf"(?P<words>.+?)[,:]? {_CODE}"))


_CODE_ALONE = re.compile(r"(?=[a-z]*[0-9])[a-z0-9]{4}[,.:;!–—-]*", re.IGNORECASE)
_WORDS_BEFORE_CODE = 3
_PAUSES = " ,.:;!–—-"
_LONGEST_WITH_REASON = 1_000


class CodeReply(NamedTuple):
    """A whole message of word and code: which action, and what is said of it."""

    code: str
    """As the prompt shows it: upper case, four characters."""
    intent: Intent


class ReplyParser:
    """Reads a message as an answer to a prompt. Pure: the same text is always read alike."""

    version: str = f"{_GRAMMAR}-{TABLE.version}"
    """The version of the rules and of the table; it is stored with each action."""

    def classify(self, text: str, lang: str = "en", *, verb: str | None = None) -> Answer:
        """Return what the text says, whole, in the conversation's language (BCP 47; the region does not matter).

        `verb` is the prompt's, one of `VERBS`: a phrase with a verb answers only a prompt of the same one, and the
        words of a verb that is also a no ("cancel it") do not refuse a prompt of that verb. None: the prompt's verb is
        not known, and a phrase with a verb is unclear.
        """
        core = _unwrapped(text)
        if core is None:
            return "unclear"
        return _intent(core, TABLE.of(lang), lang, verb) or "unclear"


def read_code(text: str, lang: str, *, verb: str | None = ANY_VERB) -> CodeReply | None:
    """Return the code and the intent of "OK K7P2", "k7-p2 sim", "NO K7P2", for a prompt of this verb.

    Counted are OK and NO in any language, the words of the conversation's own, and, since the code names the action
    beyond doubt, those of every other language too, except single letters.
    """
    if text.isascii() and not _DIGIT.search(text):  # most messages; every code has a digit
        return None
    core = _unwrapped(text)
    return None if core is None else _code_in(core, lang, verb)


def read_refusal(text: str, lang: str, verb: str | None) -> Answer:
    """Return how "NO K7P2 wrong amount" reads to a question of this verb.

    Only a no has a reason: a yes with more behind it is no clear yes.
    """
    found = _split(text)
    said = read_beside_code(found[0], lang, verb) if found is not None else "unclear"
    return "cancel" if said == "cancel" else "unclear"


def reason_of(text: str) -> str:
    """Return the reason in "NO K7P2 wrong amount", at most `MAX_LENGTH` characters; empty when there is none."""
    found = _split(text)
    return found[1] if found is not None else ""


def read_refused_code(text: str, lang: str) -> CodeReply | None:
    """Return the code and the no of "NO K7P2 wrong amount"; see `read_refusal`."""
    found = _split(text)
    if found is None or reads_as_answer(found[1], lang):  # "NO K7P2 yes": which of them is meant?
        return None
    code = read_code(found[0], lang)
    return code if code is not None and code.intent == "cancel" else None


def read_words(text: str, lang: str, verb: str | None) -> Answer:
    """Return how a message without a code reads to a question of this verb; see `ReplyParser.classify`."""
    return ReplyParser().classify(text, lang, verb=verb)


def read_beside_code(text: str, lang: str, verb: str | None) -> Answer:
    """Return how the words beside a code read to a question of this verb; see `read_code`."""
    code = read_code(text, lang, verb=verb)
    return "unclear" if code is None else code.intent


def reads_as_answer(text: str, lang: str) -> bool:
    """Return True for a yes or a no to any prompt, alone or with a code, in this language or any other of the table."""
    core = _unwrapped(text)
    if core is None:
        return False
    languages = dict.fromkeys((lang, *TABLE.languages))
    alone = any(_readings(core, TABLE.of(each), each) for each in languages)
    return alone or _code_in(core, lang, ANY_VERB) is not None


def looks_like_decision(
    text: str,
    lang: str,
    *,
    stop: bool = False,
    replies: bool = False,
    media: bool = False,
    command: bool = False,
    spoiled: bool = False,
    forwarded: bool = False,
    edited: bool = False,
    via_bot: bool = False,
    transcribed: bool = False,
) -> bool:
    """Whether a message goes through the decision lane, by its shape alone.

    `stop`: it is the command /stop; any other `command` decides nothing, nor does what is `spoiled`. `replies`: it
    answers another message, whoever wrote that one. A bare yes or no does not: it is read in its place in the
    conversation.
    """
    if media or forwarded or edited or via_bot or transcribed or spoiled:
        return False
    if command or stop:
        return stop
    if replies and reads_as_answer(text, lang):
        return True
    return read_code(text, lang) is not None or read_refused_code(text, lang) is not None


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
                command=event.command is not None,
                spoiled=bool(event.spoiled_by) or event.replayed,
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
        found: set[str] = set()
        for lang in self._languages if core else ():
            intent = _meant(_readings(core or "", TABLE.of(lang), lang, shortest=2), "delete")
            found |= {intent} if intent is not None else set()
        return found


def _split(text: str) -> tuple[str, str] | None:
    """Return a message up to its code and the word of its answer, and what stands behind; None when nothing does."""
    if text.isascii() and not _DIGIT.search(text):  # most messages; every code has a digit
        return None
    words = text[:_LONGEST_WITH_REASON].split()
    places = [place for place, word in enumerate(words[: _WORDS_BEFORE_CODE + 1]) if _CODE_ALONE.fullmatch(word)]
    if not places:
        return None
    end = places[0] + 1 if places[0] else 2
    answer, reason = " ".join(words[:end]).rstrip(_PAUSES), " ".join(words[end:]).lstrip(_PAUSES)
    return (answer, reason[:MAX_LENGTH]) if any(map(str.isalnum, reason)) else None


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


class _Reading(NamedTuple):
    """One way to read a text."""

    intent: Intent
    verb: str | None
    """That it says, and the prompt must be of; None: none."""
    names: frozenset[str]
    """Every verb that stands in it."""


def _readings(core: str, words: Words, lang: str, *, with_code: bool = False, shortest: int = 1) -> set[_Reading]:
    phrases, found = words.with_code if with_code else words.phrases, set[_Reading]()
    for form, fitting in _forms(core, words):
        names = verbs_in(form, lang)
        for intent in fitting if len(form) >= shortest else ():
            if form in phrases[intent]:
                found.add(_Reading(intent, "delete" if "delete" in names else None, names))
            for replaced, verb in in_place(form, lang):
                if replaced in phrases[intent]:
                    found.add(_Reading(intent, verb, names))
    return found


def _meant(readings: set[_Reading], verb: str | None) -> Intent | None:
    """Return what the readings say to a prompt of this verb, when they say one thing."""
    said = {
        reading.intent
        for reading in readings
        if verb == ANY_VERB
        or (reading.verb == verb and verb is not None)
        or (reading.verb is None and not (verb in NO_VERBS and verb in reading.names))
    }
    return said.pop() if len(said) == 1 else None


def _intent(core: str, words: Words, lang: str, verb: str | None) -> Intent | None:
    return _meant(_readings(core, words, lang), verb)


def _code_in(core: str, lang: str, verb: str | None) -> CodeReply | None:
    readings: set[CodeReply] = set()
    for form, fitting in _forms(core, TABLE.of(lang)):
        for match in filter(None, (pattern.fullmatch(form) for pattern in _WORD_AND_CODE)):
            code, intent = re.sub(_GAP, "", match["code"]).upper(), _intent_beside_code(match["words"], lang, verb)
            if intent is not None and intent in fitting and any(map(str.isdigit, code)):
                readings.add(CodeReply(code, intent))
    return readings.pop() if len(readings) == 1 else None


def _intent_beside_code(core: str, lang: str, verb: str | None) -> Intent | None:
    own = _meant(_readings(core, TABLE.of(lang), lang, with_code=True), verb)
    if own is not None:
        return own
    others = (
        _meant(_readings(core, TABLE.of(other), other, with_code=True, shortest=2), verb) for other in TABLE.languages
    )
    return next((intent for intent in others if intent is not None), None)


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
