"""Real servers as stand-ins for platforms and models."""
