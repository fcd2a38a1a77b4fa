"""Delivery: sends the parts of outboxes in order, each with a receipt, and makes dead letters of the others."""
