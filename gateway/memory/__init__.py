"""The memory of a conversation: its transcript."""

from gateway.memory.transcript import HISTORY, LINES_READ, RESET, Transcripts, to_entries

__all__ = ["HISTORY", "LINES_READ", "RESET", "Transcripts", "to_entries"]
