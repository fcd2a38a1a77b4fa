"""Parsing the words of a language from its file, in the form explained in README.md of this folder."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from gateway.pending.folding import fold, unaccented
from gateway.pending.words.plan import check_plan, plan_of
from gateway.pending.words.table import (
    CARRIER_WORDS,
    EVERY,
    INTENTS,
    NAMES,
    UNSPACED,
    Common,
    Continuing,
    Form,
    Intent,
    Parts,
    Piece,
    Role,
    Words,
    spellings,
    text_of,
    texts,
)
from gateway.tools.confirm import NO_VERBS, VERBS

_ALPHABETS = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARABIC", "HEBREW"})
_ALIKE = {"approve": ("reject",), "keep": ("keep", "leave"), "leave": ("keep", "leave")}
"""Verb -> the prompt verbs for which the verb is ambiguous: "I approve" to "Reject the invoice?"."""
_TAKES_AWAY = frozenset({"archive", "block", "cancel", "close", "delete", "drop", "leave", "stop"})
"""Prompt verbs for taking a thing away: "I don't need it" may be a yes to these verbs."""
_FORM = re.compile(r"\{(\w+)\}")
_SLOT = re.compile(r"\S*\{\w+\}[^\s,]*")
"""The form of a verb, with a pronoun written in the same word: Spanish "{imp}lo"."""
_PREFIXED = re.compile(r"\S\{")
_STEM = 4


def parsed(source: Mapping[str, Any], lang: str, common: Common) -> Words:
    """Return the words of a file. Raises ValueError, naming the line, for a line in a wrong form."""
    forms = _forms(source, lang)
    # Without its accent the word has another meaning: "sí, borra" is a yes, "si borra" is none.
    other = tuple(f"{text} " for name in NAMES.values() for text in texts(source, lang, f"{name}_comma"))
    polite, polite_no, beside = (_spelt_list(source, lang, key) for key in ("polite", "polite_no", "beside_verb"))
    acknowledged, after = _spelt_list(source, lang, "acknowledged"), _acknowledgements(source, lang)
    near = Parts(polite | after | acknowledged, lang)
    slots = _slots(source, lang, other)
    exact = _plain(source, lang, common, forms)
    if acknowledged:  # Swedish "jo, tack"
        harmless = Parts((polite | after) - acknowledged, lang)
        for text in [text for text in exact if near.make(text) and not harmless.make(text)]:
            if kept := {piece for piece in exact.pop(text) if piece.role == "ack" or piece.intent == "cancel"}:
                exact[text] = kept
    permitting = frozenset(map(fold, source.get("permitting", ())))
    bare = Parts(polite | beside | {"{}"}, lang)
    asking = {text for text, found in forms.items() if any(form.name not in permitting for form in found)}
    asked = Parts(polite | beside | asking, lang)
    for intent, name in NAMES.items():
        for text, verb in _fixed(source, lang, name):  # "no I want to keep it" is no refusal to delete it
            repeats = intent == "confirm" and (text in after or asked.make(text))
            exact[text].add(Piece("then" if intent == "confirm" else "phrase", intent, verb, repeats=repeats))
    unclear, joined = (_spelt_list(source, lang, key) for key in ("unclear", "unclear_joined"))
    pieces = {text: _weighed(text, said, unclear) for text, said in _spelt(exact, other, lang).items()}
    weak = {text for text, said in pieces.items() if any(piece.acknowledges for piece in said)}
    confirming = (text for text, said in pieces.items() if any(piece.intent == "confirm" for piece in said))
    usual_ends = {text.split()[-1] for text in chain(confirming, slots, polite)}  # Dutch "doe maar"
    doubts, continuing = _spelt_list(source, lang, "doubts"), _continuing(source.get("continuing", {}), lang)
    answers = {text: read for text, read in pieces.items() if text not in unclear}
    return Words(
        language=lang,
        typed=(source["typed"]["yes"], source["typed"]["no"]),
        pieces=pieces,
        polite=polite | polite_no,
        polite_no=polite_no,
        acknowledgements=after | weak,
        near=Parts(polite | after | weak, lang),
        mere=Parts(polite - after - weak, lang),
        doubts=doubts,
        doubtful_ends=continuing.change - usual_ends,
        closings=_spelt_list(source, lang, "closings"),
        sent_from=tuple(_signature(fold(line)) for line in source.get("sent_from", ())),
        unclear=frozenset(text.replace(",", "") for text in unclear),
        unclear_joined=joined,
        slots={text: frozenset(intents) for text, intents in slots.items() if len(intents) == 1},
        repeats=frozenset(text for text in slots if _repeats(text, bare, permitting, lang)),
        forms=forms,
        longest_form=max(map(len, forms), default=0),
        first=_first(chain(pieces, polite, polite_no, slots), lang),
        first_of_forms=_first(forms, lang),
        prefixed=lang in UNSPACED or any(_PREFIXED.search(text) for text in slots),
        plan=plan_of(source.get("plan", {}), lang, common, answers, other),
        continuing=continuing,
        going_on=_parts((*common.going_on[EVERY], *common.going_on.get(lang, ()))),
        wanting=_parts(common.wanting.get(lang, ())),
    )


def _first(texts: Iterable[str], lang: str) -> frozenset[str]:
    """Return the first words of texts; none in a language without spaces."""
    return frozenset() if lang in UNSPACED else frozenset(text.split()[0].strip(",") for text in texts if text)


def _plain(
    source: Mapping[str, Any], lang: str, common: Common, forms: Mapping[str, frozenset[Form]]
) -> dict[str, set[Piece]]:
    """Return the answers without the verb of a question."""
    stems = _stems(forms, lang)
    unneeded = frozenset(texts(source, lang, "no_unneeded"))
    exact: dict[str, set[Piece]] = defaultdict(set)
    for intent, name in NAMES.items():
        everywhere = common.everywhere[intent] - common.exceptions.get(lang, frozenset())
        for text, piece in _plain_pieces(source, lang, intent, name, everywhere, stems):
            doubtful = _TAKES_AWAY if intent == "cancel" and text in unneeded else frozenset[str]()
            exact[text].add(piece._replace(no_verbs=piece.no_verbs | doubtful))
    return exact


def _slots(source: Mapping[str, Any], lang: str, other: tuple[str, ...]) -> dict[str, set[Intent]]:
    """Return the phrases with the verb of a question, replaced by the name of the verb's form."""
    slots: dict[str, set[Intent]] = defaultdict(set)
    for intent, name in NAMES.items():
        for text in filter(_is_slot, texts(source, lang, f"{name}_verb")):
            for spelling in spellings(text):
                if spelling == text or not spelling.startswith(other):
                    slots[spelling].add(intent)
    return slots


def _spelt_list(source: Mapping[str, Any], lang: str, key: str) -> frozenset[str]:
    """Return the texts of a list in every spelling."""
    return frozenset(chain.from_iterable(map(spellings, texts(source, lang, key))))


def _acknowledgements(source: Mapping[str, Any], lang: str) -> frozenset[str]:
    """Return the texts that count only behind a yes, and not alone: "ok"."""
    own = frozenset(chain.from_iterable(texts(source, lang, key) for key in ("yes", "yes_comma", "yes_phrases")))
    return frozenset(
        chain.from_iterable(spellings(text) for text in texts(source, lang, "yes_after") if text not in own)
    )


def _weighed(text: str, pieces: frozenset[Piece], unclear: frozenset[str]) -> frozenset[Piece]:
    """Return the pieces of a text. A yes listed as unclear only acknowledges, also twice."""
    if text not in unclear:
        return pieces
    return frozenset(
        piece._replace(acknowledges=True) if piece.intent == "confirm" and piece.role != "after" else piece
        for piece in pieces
    )


def _repeats(slot: str, bare: Parts, permitting: frozenset[str], lang: str) -> bool:
    """Return True for a phrase with only the verb, except for permissions: "delete it", not "you may delete it"."""
    form, pattern = _FORM.search(slot), _FORM if lang in UNSPACED else _SLOT
    asks = form is not None and form[1] not in permitting
    return asks and bare.make(pattern.sub("{}", slot))


def _parts(written: Iterable[str]) -> tuple[str, ...]:
    """Return parts of words without accents and apostrophes."""
    # Folding would take off the space at an end, which marks the edge of a word.
    folded = {re.sub(r"\S.*\S|\S", lambda found: fold(found[0]), text) for text in written}
    return tuple(sorted(unaccented(text).replace("'", "") for text in folded))


def _continuing(source: Mapping[str, Any], lang: str) -> Continuing:
    """Return the words after a yes that continue the answer. A hyphen at an end marks a part of a longer word."""
    spelt = {key: _spelt_list(source, lang, key) for key in ("change", "instead", "add")}
    prefixes = frozenset(text.rstrip("-") for found in spelt.values() for text in found if text.endswith("-"))
    change, instead, add = (frozenset(text.rstrip("-") for text in found) for found in spelt.values())
    too = _spelt_list(source, lang, "too")
    suffixes = tuple(sorted(text.lstrip("-") for text in too if text.startswith("-")))
    too = frozenset(text for text in too if not text.startswith("-"))
    return Continuing(change, instead, add, too, suffixes, prefixes)


def _plain_pieces(
    source: Mapping[str, Any],
    lang: str,
    intent: Intent,
    name: str,
    everywhere: frozenset[str],
    stems: Mapping[str, frozenset[str]],
) -> Iterator[tuple[str, Piece]]:
    def no_verbs(text: str) -> frozenset[str]:
        return _no_verbs(text, lang, stems) if intent == "cancel" else frozenset()

    for text in chain(texts(source, lang, name), everywhere):
        yield text, Piece("head", intent, None, no_verbs(text))
    for text in texts(source, lang, f"{name}_comma"):
        yield text, Piece("comma head", intent, None, no_verbs(text))
    for text in texts(source, lang, "acknowledged") if intent == "confirm" else ():
        yield text, Piece("ack", intent, acknowledges=True)
    for text in texts(source, lang, f"{name}_after"):
        yield text, Piece("after", intent, None, no_verbs(text))
    then = frozenset(texts(source, lang, f"{name}_then"))
    for text in chain(texts(source, lang, f"{name}_phrases"), then, texts(source, lang, f"{name}_unneeded")):
        role: Role = "then" if intent == "confirm" or text in then else "phrase"
        yield text, Piece(role, intent, None, _no_verbs(text, lang, stems))


def _fixed(source: Mapping[str, Any], lang: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield the phrases with a verb outside of templates, or in a template with several forms of the verb."""
    for verb, fixed in source.get("fixed", {}).items():
        yield from ((text, verb) for text in texts(fixed, lang, name))
    names = list(map(fold, source.get("forms", ())))
    for pattern in texts(source, lang, f"{name}_verb"):
        for verb, lines in source["verbs"].items() if not _is_slot(pattern) else ():
            for line in lines:
                forms = dict(zip(names, (text_of(form, lang) for form in line.split("/")), strict=True))
                if all(forms[form] not in ("", "-") for form in _FORM.findall(pattern)):
                    yield pattern.format_map(forms), verb


def _is_slot(pattern: str) -> bool:
    return len(_FORM.findall(pattern)) == 1


def _forms(source: Mapping[str, Any], lang: str) -> Mapping[str, frozenset[Form]]:
    found: dict[str, set[Form]] = defaultdict(set)
    for verb, lines in source.get("verbs", {}).items():
        if verb not in VERBS:
            raise ValueError(f"{lang}.toml: {verb} is none of the verbs.")
        for line in lines:
            for name, form in zip(source["forms"], map(str.strip, line.split("/")), strict=True):
                if form not in ("", "-"):
                    for text in spellings(text_of(form, lang)):
                        found[text].add(Form(fold(name), verb))
    return {text: frozenset(forms) for text, forms in found.items()}


def _no_verbs(text: str, lang: str, forms: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the verbs of NO_VERBS with a form, or a word of the same stem, in a text: cancel, cancelled."""
    if lang in UNSPACED:
        return frozenset(chain.from_iterable(verbs for form, verbs in forms.items() if form in text))
    words = text.replace(",", " ").split()
    spans = {" ".join(words[i : i + count]) for count in (1, 2, 3) for i in range(len(words) - count + 1)}
    spans.update([word[:end] for word in words for end in range(_STEM, len(word))])
    return frozenset(chain.from_iterable([forms[each] for each in spans & forms.keys()]))


def _stems(forms: Mapping[str, frozenset[Form]], lang: str) -> Mapping[str, frozenset[str]]:
    """Return the verbs of NO_VERBS by their forms and by the stems of these forms."""
    found: dict[str, set[str]] = defaultdict(set)
    for form, verbs in forms.items():
        for each in {other for verb in verbs for other in _ALIKE.get(verb.verb, (verb.verb,))} & NO_VERBS:
            found[form].add(each)
            if lang not in UNSPACED:
                found[form[: max(_STEM, round(len(form) * 0.7))]].add(each)
    return {stem: frozenset(verbs) for stem, verbs in found.items()}


def _spelt(exact: Mapping[str, set[Piece]], other: tuple[str, ...], lang: str) -> Mapping[str, frozenset[Piece]]:
    """Return the pieces by every spelling. A spelling shared by a yes and a no is neither."""
    spelt: dict[str, set[Piece]] = {text: set(pieces) for text, pieces in exact.items()}
    loose: dict[str, set[Piece]] = defaultdict(set)
    for text, pieces in exact.items():
        for spelling in spellings(text):
            if spelling not in spelt and not spelling.startswith(other):
                loose[spelling] |= pieces
    spelt |= {text: pieces for text, pieces in loose.items() if not _contradicts(pieces)}
    return {text: frozenset(pieces) for text, pieces in spelt.items() if text and not _is_letter(text, lang)}


def _is_letter(text: str, lang: str) -> bool:
    """Return True for a single letter of an alphabet, an answer only in English. A sign is a word."""
    return lang != "en" and len(text) == 1 and unicodedata.name(text, "").split()[0] in _ALPHABETS


def _contradicts(pieces: Iterable[Piece]) -> bool:
    """Return True for a text that is both a yes and a no."""
    return len({piece.intent for piece in pieces if piece.role != "after"}) > 1


def _signature(line: str) -> tuple[str, str]:
    before, _, after = line.partition("{device}")
    return before, after


def check_words(words: Words, common: Common) -> None:
    """Raise ValueError, naming the words, if a language contradicts itself. The tests check each file.

    No text may be a yes and a no to the same question, and no yes may hold a doubt. The words to be typed at a prompt
    must have their meaning, and no carrier may act on these words. The words for selecting items of a plan must not
    contradict each other or the answers.
    """
    check_plan(words)
    for text in _hesitant(words):
        raise ValueError(f"{words.language}.toml: {text!r} holds a doubt. Take it out of the yeses and of polite.")
    for text, pieces in words.pieces.items():
        for verb in {piece.verb for piece in pieces}:
            said = [piece for piece in pieces if piece.verb in (None, verb) and verb not in piece.no_verbs]
            if _contradicts(said) and text not in words.unclear:
                raise ValueError(f"{words.language}.toml: {text!r} is both a yes and a no. Take it out on one side.")
    for word, intent in zip(words.typed, INTENTS, strict=True):
        own = {piece.intent for piece in words.pieces.get(fold(word), ())} | {
            each for each, text in common.with_code.items() if text == fold(word)
        }
        if fold(word) in CARRIER_WORDS or own != {intent}:
            raise ValueError(f"{words.language}.toml: typed: {word!r} is a carrier's word, or not read as {intent}.")


def _hesitant(words: Words) -> Iterator[str]:
    """Yield the texts of a yes with a doubt."""
    confirming = (text for text, pieces in words.pieces.items() if any(each.intent == "confirm" for each in pieces))
    slots = (text for text, intents in words.slots.items() if "confirm" in intents)
    for text in chain(confirming, slots, words.polite - words.polite_no):
        if words.hesitates(text) and text not in words.unclear:
            yield text
