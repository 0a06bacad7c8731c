"""The bill of materials in CycloneDX 1.6: `python -m release.sbom [ROOT]`, which is `make sbom`.

It lists the packages that the lock installs. With the root of an image it lists those of the image, and Debian's from
`var/lib/dpkg/status.d`. Every component has a version, a licence and a package URL, and the whole is valid; else the
command ends with 1 and one line.
"""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from email.message import Message
from email.parser import HeaderParser
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

import orjson

from release.lock import LOCK, ROOT
from release.notices import stated_licence

PROGRAMS: Final = ROOT / ".venv-release/bin"
SITE_PACKAGES: Final = "opt/portico/lib/python3*/site-packages"
_VALIDATION: Final = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
sys.exit(JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read()) and "not valid")
"""
_SHORT_LICENCE: Final = re.compile(r"^License: *(\S.*?)\s*$", re.MULTILINE)
_COMMON_LICENCE: Final = re.compile(r"/usr/share/common-licenses/([A-Za-z]+(?:-[0-9.]*[0-9])?)")


def version() -> str:
    """Return the version that pyproject.toml states."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def file_name() -> str:
    return f"portico-{version()}.cdx.json"


def bill_of_materials(root: Path | None = None) -> bytes:
    """Return the bill of what the lock installs, or of the image with this root.

    Raises: SystemExit if it is not complete, or pip or the programs of CycloneDX fail.
    """
    with tempfile.TemporaryDirectory() as folder:
        site_packages = _environment(Path(folder), root)
        bill = orjson.loads(
            _output(
                [
                    *(PROGRAMS / "cyclonedx-py", "environment", Path(folder) / "bin/python"),
                    *("--spec-version", "1.6", "--pyproject", ROOT / "pyproject.toml", "--output-reproducible"),
                ]
            )
        )
        licences = {each.name: stated_licence(each) for each in distributions(path=[str(site_packages)])}
    components: list[dict[str, Any]] = [each for each in bill["components"] if each["name"] != "portico"]
    for each in components:
        each.setdefault("licenses", [{"license": {"name": licences[each["name"]]}}])
    components += [] if root is None else debian_components(root)
    incomplete = [each["name"] for each in components if not all(map(each.get, ("version", "licenses", "purl")))]
    if incomplete:
        raise SystemExit(f"sbom: without version, licence or package URL: {', '.join(incomplete)}")
    text = orjson.dumps(bill | {"components": components}, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    _output([PROGRAMS / "python", "-c", _VALIDATION], text)
    return text


def debian_components(root: Path) -> list[dict[str, Any]]:
    """Return the components of the Debian packages that the image with this root names. Raises: OSError."""
    fields = dict(
        line.partition("=")[::2] for line in (root / "etc/os-release").read_text(encoding="utf-8").splitlines()
    )
    distribution = f"debian-{fields['VERSION_ID'].strip(chr(34))}"
    return [
        _debian_component(HeaderParser().parsestr(path.read_text(encoding="utf-8")), root, distribution)
        for path in sorted((root / "var/lib/dpkg/status.d").iterdir())
    ]


def _debian_component(stanza: "Message[str, str]", root: Path, distribution: str) -> dict[str, Any]:
    name, number = stanza["Package"], stanza["Version"]
    purl = f"pkg:deb/debian/{name}@{number.replace('+', '%2B').replace(':', '%3A')}"
    text = (root / "usr/share/doc" / name / "copyright").read_text(encoding="utf-8", errors="replace")
    return {
        "type": "library",
        "bom-ref": f"deb:{name}@{number}",
        "name": name,
        "version": number,
        "purl": f"{purl}?arch={stanza['Architecture']}&distro={distribution}",
        "licenses": [{"license": {"name": licence}} for licence in debian_licences(text)],
    }


def debian_licences(text: str) -> list[str]:
    """Return the names of the licences in a file of Debian's copyrights: short names, else texts it refers to."""
    names = {*_SHORT_LICENCE.findall(text)} if text.startswith("Format:") else set()
    return sorted(names or {*_COMMON_LICENCE.findall(text)}) or ["see usr/share/doc"]


def _environment(folder: Path, root: Path | None) -> Path:
    """Make an environment with the packages of the lock, or those of the image; return where they are."""
    _output([sys.executable, "-m", "venv", "--without-pip", folder])
    [own] = folder.glob("lib/python3*/site-packages")
    if root is None:
        install = ("pip", "install", "--quiet", "--require-hashes", "--requirement", LOCK)
        _output([sys.executable, "-m", "uv", *install, "--python", folder / "bin/python"])
        return own
    [packages] = root.glob(SITE_PACKAGES)
    (own / "image.pth").write_text(f"{packages.resolve()}\n", encoding="utf-8")
    return packages


def _output(command: Sequence[str | Path], given: bytes | None = None) -> bytes:
    """Return what a command prints. Raises: SystemExit with the end of its error."""
    ended = subprocess.run(command, input=given, capture_output=True, check=False, env=dict(_variables()))
    if ended.returncode != 0:
        raise SystemExit(f"sbom: {Path(command[0]).name}: {ended.stderr.decode(errors='replace').strip()[-300:]}")
    return ended.stdout


def _variables() -> Iterator[tuple[str, str]]:
    """Yield the variables of the environment without those that add modules."""
    return ((name, value) for name, value in os.environ.items() if not name.startswith("PYTHON"))


def main(arguments: Sequence[str]) -> int:
    """Write the bill into dist/, and return the exit code."""
    text = bill_of_materials(Path(arguments[0]) if arguments else None)
    file = ROOT / "dist" / file_name()
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text)
    components = orjson.loads(text)["components"]
    sys.stdout.write(f"{file.relative_to(ROOT)}: {len(components)} components\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
