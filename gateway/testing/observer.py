"""RecordingObserver: the events of a bot, for the assertions of a test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.observe.callbacks import event_names
from gateway.observe.events import ObservedEvent
from gateway.observe.observer import AgentObserver, arguments


class RecordingObserver(AgentObserver):
    """An observer that keeps every event that has a method of AgentObserver.

    ::

        seen = RecordingObserver()
        agent = Agent([delete_invoice], config=AgentConfig(observers=[seen]))
        await agent.run("delete invoice 42")
        assert [said["tool_name"] for name, said in seen.events if name == "tool_start"] == ["delete_invoice"]
    """

    def __init__(self) -> None:
        self.events: list[tuple[str, Mapping[str, Any]]] = []
        """The name of each event, without ``on_``, and the arguments of its method by name, in order."""

    def wants(self, name: str) -> bool:
        """Return True if the event of this name has a method."""
        return name in event_names()

    def on_event(self, event: ObservedEvent) -> None:
        """Keep an event."""
        self.events.append((event.name, {each: getattr(event, each) for each in arguments(event.name)}))
