"""Configuration: the settings of the environment, limits, and the options of a bot's parts."""
