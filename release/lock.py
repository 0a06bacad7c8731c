"""The packages that a hashed lock installs here."""

import re
from pathlib import Path
from typing import Final

from packaging.markers import Marker

ROOT: Final = Path(__file__).parents[1]
LOCK: Final = ROOT / "requirements.lock"
_ENTRY: Final = re.compile(r"^([a-z0-9._-]+)==(\S+)(?: ; (.*?))?(?: \\)?$", re.MULTILINE)


def locked(path: Path = LOCK) -> dict[str, str]:
    """Return the version of each package that the lock at this path installs with this Python, by normalised name."""
    entries = _ENTRY.findall(path.read_text(encoding="utf-8"))
    return {name: version for name, version, marker in entries if not marker or Marker(marker).evaluate()}
