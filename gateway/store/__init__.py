"""The one storage seam and its implementations."""
