"""Turns: the bot runs over the waiting events of a conversation, and each turn ends in a single commit."""
