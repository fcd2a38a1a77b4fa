"""Time: limits of work, the lag of the event loop, and tasks that outlast their caller."""
