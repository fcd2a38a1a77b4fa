"""Time limits of work, the lag of the event loop, and tasks left running after cancellation."""
