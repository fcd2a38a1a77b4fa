"""Decisions: presses, codes, replies to prompts, stops, opt-outs and deadlines overtake any running turn."""
