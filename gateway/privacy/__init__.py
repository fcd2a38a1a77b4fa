"""Data of people: reading conversations as an operator, forgetting and expiry."""
