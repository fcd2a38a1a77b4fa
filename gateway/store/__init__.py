"""The storage protocol and both implementations."""
