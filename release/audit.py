"""Known vulnerabilities of the locked packages: `python -m release.audit`, which is `make audit`.

pip-audit says "No known vulnerabilities found" and ends with 0 even if it could look up nothing. So its answers are
counted: the command ends with 3 if a package could not be checked, and with 1 if one has a known vulnerability.
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from release.lock import LOCK, ROOT

PROGRAM: Final = ROOT / ".venv-release/bin/pip-audit"
VULNERABLE: Final = 1
UNCHECKED: Final = 3


def verdict(answer: Mapping[str, Any]) -> tuple[list[str], int]:
    """Return the lines to print about an answer of pip-audit in its JSON, and the exit code."""
    packages: Sequence[Mapping[str, Any]] = answer["dependencies"]
    skipped = [each for each in packages if "skip_reason" in each]
    lines = [
        f"{each['name']} {each['version']}: {found['id']}, repaired in {', '.join(found['fix_versions']) or 'none'}"
        for each in packages
        for found in each.get("vulns", ())
    ]
    code = VULNERABLE if lines else 0
    if skipped or not packages:
        lines.append(f"audit: {len(skipped)} of {len(packages)} packages could not be checked")
        code = code or UNCHECKED
    return lines or [f"audit: {len(packages)} packages have no known vulnerability"], code


def answer_about(lock: Path) -> Mapping[str, Any] | str:
    """Return the answer of pip-audit about the packages of this lock, or the last line of its error."""
    options = ("--require-hashes", "--disable-pip", "--progress-spinner", "off", "--desc", "off", "--format", "json")
    ended = subprocess.run(
        [PROGRAM, *options, "--requirement", lock], capture_output=True, text=True, check=False, cwd=ROOT
    )
    if not ended.stdout.startswith("{"):
        return (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
    answer: Mapping[str, Any] = orjson.loads(ended.stdout)
    return answer


def main(arguments: Sequence[str]) -> int:
    """Ask about the lock that is named, or that of the service; return the exit code."""
    answer = answer_about(Path(arguments[0]) if arguments else LOCK)
    if isinstance(answer, str):
        sys.stderr.write(f"audit: pip-audit: {answer}\n")
        return UNCHECKED
    lines, code = verdict(answer)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
