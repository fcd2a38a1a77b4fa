"""The turns of a bot, as its author makes them: its commands, and its model."""
