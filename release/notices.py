"""THIRD_PARTY_NOTICES: the licences of what Portico is installed with, from the installed packages.

`python -m release.notices` writes it, which is `make notices`. A text that several packages have stands there once. The
file names no versions, since one version of Python is given another release of a package than the next; the packages
themselves have their licences beside them.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from release.lock import ROOT, locked

FILE: Final = ROOT / "THIRD_PARTY_NOTICES"
VENDOR: Final = ROOT / "app/portico/entrypoints/http/console/static/vendor"
_NAMES: Final = ("LICENSE", "LICENCE", "COPYING", "NOTICE")
_LINE: Final = "=" * 78
_HEAD: Final = """\
Portico is installed with the packages below, and contains Preact and htm. Each has the licence that is named
beside it; the texts follow. `make notices` writes this file.
"""


def notices() -> str:
    """Return the text of the file. Raises: PackageNotFoundError if a locked package is not installed."""
    licences: dict[str, str] = {}
    holders: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(locked()):
        package = distribution(name)
        licences[name] = stated_licence(package)
        for text in dict.fromkeys(_texts(package)):
            holders[text].append(name)
    for path in sorted(VENDOR.glob("*.LICENSE")):
        name = f"{path.stem} (in the console)"
        licences[name] = "Apache-2.0" if "Apache License" in path.read_text(encoding="utf-8") else "MIT"
        holders[_plain(path.read_text(encoding="utf-8"))].append(name)
    listed = "".join(f"  {name}: {licence}\n" for name, licence in sorted(licences.items()))
    texts = "".join(f"{_LINE}\n{', '.join(names)}\n{_LINE}\n\n{text}\n" for text, names in holders.items())
    return f"{_HEAD}\n{listed}\n{texts}"


def stated_licence(package: Distribution) -> str:
    """Return the licence that the metadata of a package states: an expression, a name, or classifiers.

    Raises: LookupError if it states none.
    """
    metadata = package.metadata
    expressions: list[str] = metadata.get_all("License-Expression", [])
    names: list[str] = metadata.get_all("License", [])
    classifiers = [each.rpartition(" :: ")[2] for each in metadata.get_all("Classifier", []) if "License ::" in each]
    short = [each for each in names if "\n" not in each and len(each) < len(_LINE)]
    for stated in (*expressions, *short, ", ".join(classifiers)):
        if stated and stated != "UNKNOWN":
            return stated
    raise LookupError(f"{package.name} states no licence")


def _texts(package: Distribution) -> Iterator[str]:
    for file in sorted(package.files or ()):
        if ".dist-info" in file.parts[0] and file.name.upper().startswith(_NAMES):
            yield _plain(Path(str(file.locate())).read_text(encoding="utf-8", errors="replace"))


def _plain(text: str) -> str:
    """Return a text without spaces at the ends of its lines, and one newline at its end."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"


def main() -> int:
    """Write the file, and return the exit code."""
    FILE.write_text(notices(), encoding="utf-8")
    sys.stdout.write(f"{FILE.name}: {len(locked())} packages\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
