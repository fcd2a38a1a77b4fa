"""``python -m askfirst`` is ``askfirst``."""

from gateway.cli import main

if __name__ == "__main__":
    main(prog_name="askfirst")
