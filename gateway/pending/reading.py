"""Reading replies: a message is a yes, a no, or neither.

The whole message must be an answer by the grammar of `grammar.py`, in the conversation's language or in English. The
wrapping is removed first: markup, quotes, a mention of the bot, a signature, a friendly emoji. Every other text is
unclear. The rules never guess, because a wrong yes cannot be undone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal, NamedTuple, Protocol, TypeAlias

from channels import (
    AnswerStopped,
    ButtonPress,
    ConversationMoved,
    DeliveryReport,
    Event,
    Feedback,
    Message,
    OptOut,
    Person,
)
from gateway.pending.continuing import acknowledges, adds, goes_on
from gateway.pending.folding import without_invisible
from gateway.pending.grammar import Reading, readings
from gateway.pending.signature import without_signature
from gateway.pending.tokens import CODE_LETTERS
from gateway.pending.words import INTENTS, UNKNOWN_VERB, Intent, common, heads, words_of
from gateway.pending.words.version import VERSION
from gateway.tools.confirm import NO_VERBS

Answer: TypeAlias = Literal["confirm", "cancel", "unclear"]
"""The answer of a message to a question."""

MAX_LENGTH = 200
"""The most characters of an answer with signature. A longer text is unclear."""

Spoken: TypeAlias = str | Sequence[str]
"""The language of a reply, or its possible languages: BCP 47 tags; the region does not matter."""

ANY_VERB = "*"
"""Stands for every verb, for callers interested only in the shape of an answer."""
_GRAMMAR = 6
_KEEPING = frozenset({"keep", "leave"})
_WRAPPERS = (("*", "*"), ("_", "_"), ("'", "'"), ('"', '"'), ("“", "”"), ("„", "“"), ("«", "»"), ("‹", "›"))
_END = re.compile(r"\s*(?:!+|[.,])$")
"""One full stop or comma, or any number of exclamation marks: "yes.." trails off and is not an answer."""
_BOT = r"@[a-z0-9_]{0,29}bot"
_MENTION = re.compile(rf"^{_BOT}[,:]?\s|,?\s{_BOT}(?=[!.,]?$)")
"""A mention of a bot: the name of a Telegram bot ends in "bot" (core.telegram.org/bots/features)."""
_QUESTION = re.compile("QUESTION|INTERROBANG")
_DIGIT = re.compile("[0-9]")
_NUMBER = re.compile(r"#?\d{1,3}")
_OK = re.compile(r"^ok(?=$|[ ,])")
"""A word accepted only beside a code, because the code names the action without doubt."""

_GAP = r"[ \-‐–]"
_CODE = rf"(?P<code>[a-z0-9]{{4}}|[a-z0-9]{{2}}{_GAP}[a-z0-9]{{2}}|[a-z0-9](?:{_GAP}[a-z0-9]){{3}})"
"""Wider than the characters of codes (`tokens.CODE_LETTERS`): a mistyped code is still read as a code."""
_WORD_AND_CODE = tuple(
    map(
        re.compile,
        (
            rf"(?P<before>){_CODE}[,:]? (?P<after>.+)",
            rf"(?P<before>.+?)[,:]? {_CODE}(?P<after>)",
            rf"(?P<before>.+?)[,:]? {_CODE}[,:]? (?P<after>.+)",
        ),
    )
)


_MADE_OF = frozenset(CODE_LETTERS)
_CODE_ALONE = re.compile(r"(?=[a-z]*[0-9])[a-z0-9]{4}[,.:;!–—-]*", re.IGNORECASE)
_WORDS_BEFORE_CODE = 3
_PAUSES = " ,.:;!–—-"
_LONGEST_WITH_REASON = 1_000
_LEAST_LETTERS = 2


class CodeReply(NamedTuple):
    """A whole message of a word and a code: the action and the answer."""

    code: str
    """The code as shown in the prompt: four characters in upper case."""
    intent: Intent


class ReplyParser:
    """A parser of answers to prompts. Pure: the same text always gives the same result."""

    version: str = f"{_GRAMMAR}-{VERSION}"
    """The version of the rules and of the words, stored with each action."""

    def classify(self, text: str, lang: str = "en", *, verb: str | None = None, name: str | None = None) -> Answer:
        """Return the answer of a whole text in the conversation's language (BCP 47; the region does not matter).

        `verb` is the prompt's verb, from `VERBS`. A phrase with a verb answers only a prompt of the same verb, and the
        words of a verb that is also a no ("cancel it") do not refuse a prompt of this verb. None: the prompt's verb is
        not known, and a phrase with a verb is unclear. `name` is the person's own name and handle: a line under thanks
        must be made of these words, else the text is unclear.
        """
        return read_words(text, lang, verb, name)


def read_code(text: str, lang: Spoken, *, verb: str | None = ANY_VERB, name: str | None = None) -> CodeReply | None:
    """Return the code and the intent of "OK K7P2", "k7-p2 sim", "NO K7P2", for a prompt of this verb.

    OK and NO count in any language, and so do the words of the conversation's language. Because the code names the
    action without doubt, the words of every other language count too, except single letters.
    """
    if text.isascii() and not _DIGIT.search(text):  # most messages; every code has a digit
        return None
    core = unwrapped(text, lang, name)
    return None if core is None else _code_in(core, lang, verb)


def read_refusal(text: str, lang: Spoken, verb: str | None, name: str | None = None) -> Answer:
    """Return the answer of "NO K7P2 wrong amount" to a question of this verb.

    Only a no may have a reason. A yes with more words behind it is unclear.
    """
    found = _split(text)
    said = read_beside_code(found[0], lang, verb, name) if found is not None else "unclear"
    return "cancel" if said == "cancel" else "unclear"


def reason_of(text: str) -> str:
    """Return the reason in "NO K7P2 wrong amount", at most `MAX_LENGTH` characters; empty if there is none."""
    found = _split(text)
    return found[1] if found is not None else ""


def read_refused_code(text: str, lang: Spoken, name: str | None = None) -> CodeReply | None:
    """Return the code and the no of "NO K7P2 wrong amount"; see `read_refusal`."""
    found = _split(text)
    if found is None or reads_as_answer(found[1], lang, name):  # "NO K7P2 yes": which of them is meant?
        return None
    code = read_code(found[0], lang, name=name)
    return code if code is not None and code.intent == "cancel" else None


def read_words(text: str, lang: Spoken, verb: str | None, name: str | None = None) -> Answer:
    """Return the answer of a message without a code to a question of this verb; see `ReplyParser.classify`."""
    core = unwrapped(text, lang, name)
    return (_intent(core, lang, verb) if core is not None else None) or "unclear"


def read_beside_code(text: str, lang: Spoken, verb: str | None, name: str | None = None) -> Answer:
    """Return the answer of the words beside a code to a question of this verb; see `read_code`."""
    code = read_code(text, lang, verb=verb, name=name)
    return "unclear" if code is None else code.intent


def reads_as_answer(text: str, lang: Spoken, name: str | None = None) -> bool:
    """Return True for a yes or a no to any prompt, alone or with a code, or a plain one in any other language."""
    core = unwrapped(text, lang, name)
    if core is None:
        return False
    alone = any(_meanings(core, lang)) or any(form in heads().readings for form, _ in without_emoji(core))
    return alone or _code_in(core, lang, ANY_VERB) is not None


def continues(text: str, lang: Spoken, name: str | None = None) -> Literal["change", "add"] | None:
    """Return the continuation of a text after its yes: "yes, but INV-7" changes, "yes and delete 8" adds.

    None for every other text, and for a contradiction: "yes, and INV-7 instead", "yes, but 8 too".
    """
    core = unwrapped(text, lang, name)
    tables = [words_of(each) for each in (*_each(lang), "en")] if core is not None else []
    found = {goes_on(core or "", words) for words in tables} - {None}
    if "change" in found and any(adds(core or "", words) for words in tables):
        return None
    return found.pop() if len(found) == 1 else None


def is_near_answer(text: str, lang: Spoken, name: str | None = None) -> bool:
    """Return True for a text of only acknowledgements, "ok" or "sure", or of only a number."""
    core = unwrapped(text, lang, name)
    if core is None or any(_meanings(core, lang)):
        return False
    tables = [words_of(each) for each in dict.fromkeys((*_each(lang), "en"))]
    forms = [form for form, _ in without_emoji(core)]
    return any(_NUMBER.fullmatch(form) or any(acknowledges(form, words) for words in tables) for form in forms)


def decides(event: Event, lang: Spoken) -> bool:
    """Return True for an event of the decision lane: presses, opt-outs, reports, messages that look like a decision.

    `lang` is the language of answers to the writer.
    """
    if isinstance(event, Message):
        return event.person is not None and not event.person.is_bot and _looks_like_decision(event, lang)
    return isinstance(event, ButtonPress | AnswerStopped | ConversationMoved | DeliveryReport | Feedback | OptOut)


def _looks_like_decision(message: Message, lang: Spoken) -> bool:
    """Return True if a message goes through the decision lane, judged by shape alone.

    A yes or a no counts as a reply to another message, of any writer. A bare reply goes with the turns instead, and is
    read in its place in the conversation.
    """
    if message.forwarded or message.via_bot or message.transcribed or message.replayed:
        return False
    if message.command is not None:
        return message.command == "stop"
    if message.attachments or message.spoiled_by:
        return False
    text, name = message.text, name_of(message.person)
    if message.reply_to is not None and reads_as_answer(text, lang, name):
        return True
    return read_code(text, lang, name=name) is not None or read_refused_code(text, lang, name) is not None


class ConfirmParser(Protocol):
    """A parser of yes and no for the pending stores of selectools."""

    version: str

    def is_confirm(self, message: str) -> bool: ...
    def is_cancel(self, message: str) -> bool: ...


class RegexConfirmParser:
    """`ReplyParser` over Portuguese, English and Spanish at once, for callers without a known language."""

    version: str = f"reply-{ReplyParser.version}:pt-en-es"
    _languages: ClassVar[tuple[str, ...]] = ("pt", "en", "es")
    _nothing: ClassVar[frozenset[str]] = frozenset({"nada"})
    """A no in selectools' documents, too doubtful in other places."""

    def is_confirm(self, message: str) -> bool:
        """Return True for a yes in any of the languages. A single letter is no yes: "y" is also the Spanish "and"."""
        return self._reads(message) == {"confirm"}

    def is_cancel(self, message: str) -> bool:
        """Return True for a no in any of the languages."""
        return self._reads(message) == {"cancel"}

    def _reads(self, message: str) -> set[Intent]:
        core = unwrapped(message, "en") or ""
        if min(len(form) for form, _ in without_emoji(core)) < _LEAST_LETTERS:
            return set()
        if core in self._nothing:
            return {"cancel"}
        read = (_said(_meanings(core, lang, beside=False), "delete") for lang in self._languages)
        return {intent for intent in read if intent is not None}


def _split(text: str) -> tuple[str, str] | None:
    """Return a message up to its code and the word of its answer, and the reason behind; None without a reason."""
    if text.isascii() and not _DIGIT.search(text):  # most messages; every code has a digit
        return None
    words = without_invisible(text[:_LONGEST_WITH_REASON]).split()
    places = [place for place, word in enumerate(words[: _WORDS_BEFORE_CODE + 1]) if _CODE_ALONE.fullmatch(word)]
    if not places:
        return None
    end = places[0] + 1 if places[0] else 2
    answer, reason = " ".join(words[:end]).rstrip(_PAUSES), " ".join(words[end:]).lstrip(_PAUSES)
    return (answer, reason[:MAX_LENGTH]) if any(map(str.isalnum, reason)) else None


def name_of(person: Person | None) -> str | None:
    """Return the words of a person's name and handle, as given by the platform. A signature may contain these words."""
    return " ".join(filter(None, (person.name, person.handle))) or None if person is not None else None


def unwrapped(text: str, lang: Spoken, name: str | None = None) -> str | None:
    """Return the folded text without mention, signature, markup, quotes and end mark; None if the text is no answer."""
    if len(text) > MAX_LENGTH or "?" in text or (not text.isascii() and any(map(_asks, text))):
        return None
    lines = without_signature(text, dict.fromkeys((*_each(lang), "en")), name)
    return None if lines is None else _bare(_MENTION.sub(" ", " . ".join(lines), count=1).strip())


def _asks(char: str) -> bool:
    """Return True for a question mark of another script. Folding would turn the Greek one into a semicolon."""
    return not char.isascii() and _QUESTION.search(unicodedata.name(char, "")) is not None


def _bare(text: str) -> str:
    """Return the text without end mark, Spanish opening mark, and up to three layers of markup and quotes."""
    for _ in range(3):
        text = _END.sub("", text, count=1).removeprefix("¡")
        for left, right in _WRAPPERS:
            if len(text) > 2 and text.startswith(left) and text.endswith(right):
                text = text[len(left) : -len(right)].strip()
                break
        else:
            break
    return text


def _each(lang: Spoken) -> Sequence[str]:
    return (lang,) if isinstance(lang, str) else tuple(dict.fromkeys(lang))


def _meanings(core: str, lang: Spoken, *, beside: bool = True) -> Iterator[Reading]:
    """Yield every reading of a text in these languages, and `beside` them in English.

    A text that is no answer in any of these languages is no answer in English either.
    """
    for form, fitting in without_emoji(core):
        tables = [words_of(each) for each in _each(lang)]
        if beside:
            others = [words for words in tables if words.language != "en"]
            barred = any(words.says_nothing(form) or not _counts_in_english(form, words.language) for words in others)
            tables = others if barred else [*others, words_of("en")]
        for words in tables:
            yield from (reading for reading in readings(form, words) if reading.intent in fitting)


def _counts_in_english(form: str, lang: str) -> bool:
    """Return False for a word with another meaning in this language, and for single letters."""
    elsewhere = common().exceptions.get(lang, frozenset())
    return len(form) > 1 and not {word.strip(",") for word in form.split()} <= elsewhere


def _said(meanings: Iterator[Reading], verb: str | None) -> Intent | None:
    """Return the intent of the readings for a prompt of this verb, if all readings agree."""
    read = list(meanings)
    if verb == ANY_VERB:  # a phrase with a verb may be a no without it: "cancel it"
        read = [reading for reading in read if reading.verb is None] or read
    said = {reading.intent for reading in read if verb == ANY_VERB or _answers(reading, verb)}
    return said.pop() if len(said) == 1 else None


def _answers(reading: Reading, verb: str | None) -> bool:
    """Return True for a reading accepted for a prompt of this verb; None: the prompt's verb is not known."""
    if (verb or UNKNOWN_VERB) in reading.no_verbs:
        return False
    if reading.verb is None:
        return reading.intent == "confirm" or verb not in NO_VERBS or not _may_do_it(reading)
    # "Cancel it", said to "Cancel the order?", may be a yes or a no.
    doubtful = verb in NO_VERBS and reading.intent == "confirm" and not reading.headed
    return reading.verb == verb and not doubtful


def _may_do_it(reading: Reading) -> bool:
    """Return True for a no that may be a yes to a question with a no as its verb: "drop it" to "Cancel the order?".

    "No, keep it" is excluded: the question itself offers these words.
    """
    return bool(reading.no_verbs) and not (reading.headed and reading.no_verbs <= _KEEPING)


def _intent(core: str, lang: Spoken, verb: str | None) -> Intent | None:
    return _said(_meanings(core, lang), verb)


def _code_in(core: str, lang: Spoken, verb: str | None) -> CodeReply | None:
    """Return the only reading of a text as code and words: in this language and English, else in any other."""
    for intent_of in (_intent_beside_code, _intent_elsewhere):
        found: set[CodeReply] = set()
        for form, fitting in without_emoji(core):
            for match in filter(None, (pattern.fullmatch(form) for pattern in _WORD_AND_CODE)):
                code = re.sub(_GAP, "", match["code"]).upper()
                beside = ", ".join(filter(None, (match["before"], match["after"])))
                intent = intent_of(beside, lang, verb) if any(map(str.isdigit, code)) else None
                if intent is not None and intent in fitting:
                    found.add(CodeReply(code, intent))
        found = {reply for reply in found if set(reply.code) <= _MADE_OF} or found
        if found:
            return found.pop() if len(found) == 1 else None
    return None


def _intent_beside_code(core: str, lang: Spoken, verb: str | None) -> Intent | None:
    if core == common().with_code["cancel"]:
        return "cancel"
    return _intent(_OK.sub(next(iter(common().everywhere["confirm"])), core), lang, verb)


def _intent_elsewhere(core: str, lang: Spoken, verb: str | None) -> Intent | None:
    """Return the intent of a plain yes or no of another language: the code names the action without doubt."""
    said = set(heads().readings.get(core, {}).values())
    return said.pop() if len(said) == 1 and not any(words_of(each).says_nothing(core) for each in _each(lang)) else None


def without_emoji(core: str) -> Iterator[tuple[str, frozenset[Intent]]]:
    """Yield the text with and without emoji, each with its possible intents."""
    yield core, frozenset(INTENTS)
    every = common().emoji
    for emoji, fitting in every.items() if core.endswith(tuple(every)) else ():
        if core.endswith(emoji):
            yield _bare(core.removesuffix(emoji).strip()), fitting
            return
