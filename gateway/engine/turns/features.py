"""The features of turns, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.engine.calls import Results
from gateway.engine.context import EngineContext
from gateway.engine.missed_news import MissedNews
from gateway.engine.turns.attachments import Attachments
from gateway.engine.turns.expenses import BookedExpenses
from gateway.engine.turns.feature import TurnFeature
from gateway.engine.turns.follow_ups import FollowUps
from gateway.engine.turns.interception import Interception
from gateway.engine.turns.links import EndedLinks
from gateway.engine.turns.live import Live
from gateway.engine.turns.long_answers import LongAnswers
from gateway.engine.turns.memories import Memories
from gateway.engine.turns.notes import Notes
from gateway.engine.turns.own_data import OwnData
from gateway.engine.turns.people import People
from gateway.engine.turns.questions import Questions
from gateway.engine.turns.raw_results import KeptRawResults
from gateway.engine.turns.repeats import Repeats
from gateway.engine.turns.traces import Traces
from gateway.engine.turns.transcript import TranscriptLines
from gateway.engine.turns.visible_lines import VisibleLines

FEATURES: Final[Sequence[type[TurnFeature]]] = (
    Interception,  # first: the bot sees no vetoed message, and the answers to these stand before all others
    Notes,  # after the vetoes: it joins the notes that are left
    Repeats,  # before what costs time: a repeated text needs no files and no memories
    Attachments,
    Memories,  # after the attachments: they look for what the messages are about
    KeptRawResults,
    OwnData,
    BookedExpenses,
    VisibleLines,
    People,
    Results,
    TranscriptLines,
    Traces,
    FollowUps,
    EndedLinks,
    LongAnswers,  # before the questions: only the bot's own answers become files
    MissedNews,
    Questions,  # last of what is said: questions stand under the answer
    Live,  # after all: the first of what is said takes the place of the preview
)


def make_features(context: EngineContext) -> Sequence[TurnFeature]:
    """Return the features of the turns of a process, and set the records to read with the leases of turns."""
    context.turn_reads = [prefix for feature in FEATURES for prefix in feature.reads]
    return [feature(context) for feature in FEATURES]
