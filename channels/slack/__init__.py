"""Slack: the Events API, interactivity and slash commands on one URL, or over Socket Mode."""

from channels.slack.channel import SlackChannel
from channels.slack.errors import PollingRefused

__all__ = ["PollingRefused", "SlackChannel"]
