"""What `make` runs besides the tools themselves."""
