"""Models, one module a vendor."""
