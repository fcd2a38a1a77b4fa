"""Real servers that stand in for platforms and models."""
