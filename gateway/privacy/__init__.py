"""Data of people: conversations as their operator reads them, what a forgetting takes, and what expires."""
