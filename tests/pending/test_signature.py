"""A line under thanks or a closing is dropped only as the person's own name."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from channels import Address, Message, Person
from gateway.pending import ReplyParser
from gateway.pending.reading import decides, name_of, read_code, read_refused_code, reads_as_answer
from gateway.pending.selecting import read_selection
from gateway.pending.words import languages, words_of

PARSER = ReplyParser()
CORPUS: dict[str, dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "corpus" / "under_thanks.toml").read_text(encoding="utf-8")
)
OWN = [
    ("Yes\nThanks\nAna", "Ana Mota"),
    ("Yes\nBest,\nana mota", "Ana Mota"),
    ("Yes.\nBest regards, Ana Mota", "Ana Mota @anam"),
    ("yes\n-- \n@ana_m", "Bob @ana_m"),
    ("yes\n--\nana", "@ana_m"),
    ("yes\nRegards\nJose", "José"),
    ("yes\nthanks\nSent from my iPhone", ""),
    ("yes\nplease\nthanks", ""),
]
FOREIGN = [
    ("Yes\nThanks\nAna", "Bob"),
    ("Yes\nThanks\nAna", ""),
    ("Yes\nBest,\nNo Way", "Ana Mota"),
    ("Yes\nBest, No Way", "Ana Mota"),
    ("yes\n--\nNO", "Ana"),
    ("yes\nthanks\nno", "No Lee"),
    ("Yes\nBest, No", "No Lee"),
    ("Yes\nBest, Nein", "Nein"),
    ("Yes\nThanks\nNein", "Nein"),
    ("Yes\nBest regards, Stop", "Stop"),
    ("Yes\nBest, Wait", "Wait"),
    ("Yes\nThanks\nMaybe", "Maybe"),
    ("yes\nthanks\nAna no", "Ana"),
    ("yes\nthanks\nAna\nnot yet", "Ana"),
    ("yes\nSent from my invoice", "Ana"),
]


def test_every_language_has_its_lines() -> None:
    assert sorted(CORPUS) == list(languages())


def test_a_line_under_thanks_is_a_name_or_makes_unclear(lang: str) -> None:
    own, words = CORPUS[lang], words_of(lang)
    name, others = own["name"], [*own["lines"], own["no"], own["yes"]]
    closings = (own["thanks"], f"{own['thanks']}!", "--", min(words.closings, key=len))
    meant = [(own["yes"], "confirm"), (own["no"], "cancel")]
    signed = [f"{answer}\n{closing}\n{{}}" for answer, _ in meant for closing in closings]
    assert [
        (text, name)
        for (answer, means) in meant
        for text in (f"{answer}\n{closing}\n{own['signed']}" for closing in closings)
        if PARSER.classify(text, lang, verb="delete", name=name) != means
    ] == []
    wrong = [text.format(line) for text in signed for line in others]
    wrong += [text.format(own["signed"]) for text in signed]
    assert [
        text
        for text in wrong
        if PARSER.classify(text, lang, verb="delete", name=None if own["signed"] in text else name) != "unclear"
    ] == []
    assert [text for text in wrong if read_code(text.replace("\n", " K7P3\n", 1), lang) is not None] == []
    assert [text for text in wrong if reads_as_answer(text, lang)] == []


def test_line_other_than_the_persons_name_makes_it_unclear() -> None:
    assert [text for text, name in OWN if PARSER.classify(text, "en", name=name) != "confirm"] == []
    assert [text for text, name in FOREIGN if PARSER.classify(text, "en", name=name) != "unclear"] == []


def test_every_reader_takes_the_name() -> None:
    assert read_code("OK K7P3\nThanks\nAna", "en", name="Ana") == ("K7P3", "confirm")
    assert read_code("OK K7P3\nThanks\nnot yet", "en", name="Ana") is None
    assert read_refused_code("NO K7P3 wrong amount\nThanks\nAna", "en", "Ana") == ("K7P3", "cancel")
    assert read_selection("1 and 2\nRegards\nAna", 3, words_of("en"), "Ana") is not None
    assert read_selection("1 and 2\nThanks\nnot 2", 3, words_of("en"), "Ana") is None


def test_the_decision_lane_takes_the_writers_name() -> None:
    def sent(text: str) -> Message:
        ana = Person(channel="telegram", account="1", user_id="5", name="Ana Mota")
        here = Address(channel="telegram", account="1", place="9")
        return Message(event_ids=("1",), address=here, person=ana, text=text)

    assert name_of(sent("").person) == "Ana Mota"
    assert name_of(None) is None
    assert decides(sent("OK K7P3\nThanks\nAna"), "en")
    assert not decides(sent("OK K7P3\nThanks\nBob"), "en")
