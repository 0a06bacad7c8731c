"""A release: wheel, sdist, bill of materials and SHA256SUMS of the last commit, in dist/.

`python -m release.archives`, which is `make release`, builds twice, in two folders, and writes only if both builds of
wheel and sdist have the same bytes. Times are that of the commit.
"""

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from release.lock import ROOT
from release.sbom import bill_of_materials, file_name

DIST: Final = ROOT / "dist"


def built(epoch: int) -> Mapping[str, bytes]:
    """Build the last commit, and return the bytes of wheel and sdist by name. Raises: CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "source", Path(folder) / "out"
        source.mkdir()
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(source, filter="data")
        subprocess.run(
            [
                *(sys.executable, "-m", "uv", "build", "--quiet", "--offline", "--no-build-isolation"),
                *("--python", sys.executable, "--out-dir", out, source),
            ],
            check=True,
            env=os.environ | {"SOURCE_DATE_EPOCH": str(epoch)},
        )
        return {
            path.name: repacked(path.read_bytes(), epoch) if path.name.endswith(".tar.gz") else path.read_bytes()
            for path in sorted(out.iterdir())
            if path.suffix in {".whl", ".gz"}
        }


def repacked(archive: bytes, epoch: int) -> bytes:
    """Return a .tar.gz with the same files, sorted, and with this time, no owner and plain modes."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as given,
        gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=epoch) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as written,
    ):
        for member in sorted(given.getmembers(), key=lambda each: each.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode, member.pax_headers = 0o755 if member.isdir() else 0o644, {}
            written.addfile(member, given.extractfile(member) if member.isfile() else None)
    return packed.getvalue()


def checksums(files: Mapping[str, bytes]) -> bytes:
    """Return the lines that `sha256sum --check` reads."""
    return "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files)).encode()


def main() -> int:
    """Build twice and write what is equal; return the exit code."""
    os.umask(0o022)
    epoch = int(subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True).stdout)
    first, second = (built(epoch) for _ in range(2))
    differing = [name for name in first if first[name] != second.get(name)]
    if differing:
        sys.stderr.write(f"release: two builds differ: {', '.join(differing)}\n")
        return 1
    files = {**first, file_name(): bill_of_materials()}
    DIST.mkdir(exist_ok=True)
    for name, content in {**files, "SHA256SUMS": checksums(files)}.items():
        (DIST / name).write_bytes(content)
        sys.stdout.write(f"dist/{name}: {len(content)} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
