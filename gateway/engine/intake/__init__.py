"""Intake: the events of channels are checked and stored before the platform is answered."""
