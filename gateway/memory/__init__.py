"""What a conversation remembers."""

from gateway.memory.transcript import HISTORY, RESET, Transcripts, to_entries

__all__ = ["HISTORY", "RESET", "Transcripts", "to_entries"]
