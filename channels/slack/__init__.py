"""Slack: the Events API, interactivity and slash commands on a single URL, or over Socket Mode."""

from channels.channel import PollingRefused
from channels.slack.channel import SlackChannel

__all__ = ["PollingRefused", "SlackChannel"]
