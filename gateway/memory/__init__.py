"""The memory of conversations: the transcript, the window, and the facts extracted for later turns."""

from gateway.memory.context import Remembered
from gateway.memory.entities import Entity, EntityMemory
from gateway.memory.extraction import Extraction, Learned, extract
from gateway.memory.graph import KnowledgeGraphMemory, Triple
from gateway.memory.knowledge import Fact, KnowledgeMemory, NotedFact
from gateway.memory.summary import summarize
from gateway.memory.transcript import HISTORY, RESET, Transcripts, from_entries, lines_read, readable_end, to_entries
from gateway.memory.window import ConversationMemory, without_halves

__all__ = [
    "HISTORY",
    "RESET",
    "ConversationMemory",
    "Entity",
    "EntityMemory",
    "Extraction",
    "Fact",
    "KnowledgeGraphMemory",
    "KnowledgeMemory",
    "Learned",
    "NotedFact",
    "Remembered",
    "Transcripts",
    "Triple",
    "extract",
    "from_entries",
    "lines_read",
    "readable_end",
    "summarize",
    "to_entries",
    "without_halves",
]
