"""Delivery: the parts of outboxes are sent in order, each with a receipt; what cannot be sent becomes a dead letter."""
