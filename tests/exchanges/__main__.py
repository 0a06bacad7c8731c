"""Writes the records of all scenes anew, or of those that are named: `python -m tests.exchanges [SCENE ...]`."""

import sys

from tests.exchanges.recorder import record
from tests.exchanges.records import write_record
from tests.exchanges.scenes import SCENES

for name in sys.argv[1:] or SCENES:
    write_record(name, record(SCENES[name]))
