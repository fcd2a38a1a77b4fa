"""Scripts that `make` runs besides the tools themselves."""
