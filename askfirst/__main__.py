"""Entry point of ``python -m askfirst``, the same as ``askfirst``."""

from gateway.cli import main

if __name__ == "__main__":
    main(prog_name="askfirst")
