"""The bot of the soak, as `askfirst serve` loads it. What its tools do is written into the record."""

from __future__ import annotations

import os
from pathlib import Path

from tests.chaos.bot import make_bot
from tests.chaos.record import Record

bot = make_bot(Record(Path(os.environ["SOAK_RECORD"])))
