"""What a conversation remembers."""

from gateway.memory.transcript import HISTORY, RESET, from_entries, to_entries

__all__ = ["HISTORY", "RESET", "from_entries", "to_entries"]
