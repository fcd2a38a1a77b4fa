"""What leases work and runs it: decisions, turns, actions, delivery, timers."""
