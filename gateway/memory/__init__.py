"""The memory of a conversation: its transcript, the window of it that a turn reads, and a summary of what is before."""

from gateway.memory.transcript import HISTORY, RESET, Transcripts, from_entries, lines_read, to_entries
from gateway.memory.window import ConversationMemory

__all__ = ["HISTORY", "RESET", "ConversationMemory", "Transcripts", "from_entries", "lines_read", "to_entries"]
