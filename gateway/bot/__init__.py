"""The turns of a bot: commands and model."""
