"""Scripts for `make`, besides the tools themselves."""
