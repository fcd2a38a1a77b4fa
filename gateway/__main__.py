"""Entry point of ``python -m gateway``, the same as ``askfirst``."""

from gateway.cli import main

if __name__ == "__main__":
    main(prog_name="askfirst")
