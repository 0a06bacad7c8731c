"""Build the image and run it: `python -m release.image`, which is `make image-test`.

It needs neither Docker nor a registry of images, but root and three programs: `mmdebstrap` makes the base of Debian's
packages, `buildah` builds, `runc` runs the image with a read-only root, as its user, without capabilities. It is asked
README's first request, a stream, its health, a check and a backup, and stopped. The tests that are named as arguments
run in the build stage, on the interpreter of the image. Where a program is missing one line says so, and nothing fails.
"""

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from release.lock import ROOT
from release.sbom import SITE_PACKAGES, bill_of_materials, version

PROGRAMS: Final = ("buildah", "runc", "mmdebstrap")
BASE: Final = "localhost/portico-base"
IMAGE: Final = "localhost/portico-image-test"
STAGE: Final = "localhost/portico-image-test-build"
INTERPRETER: Final = "/opt/portico/bin/python"
FOLDER: Final = ROOT / "build/image"
LARGEST_BYTES: Final = 225_000_000
USER: Final = 10001
AUTHORITIES: Final = 100
START_S: Final = 60.0
_ABSENT: Final = ("sh", "bash", "dash", "busybox", "apt", "dpkg", "pip", "pip3")
_QUESTION: Final = {"messages": [{"role": "user", "content": "Roll two dice with roll_dice, count 2, sides 6."}]}
_AUTHORITIES: Final = "import ssl; print(len(ssl.create_default_context().get_ca_certs()))"
_COMPILED: Final = """
import aiohttp, asyncpg, cryptography.x509, dbos, greenlet, jsonschema_rs, orjson, psycopg, pydantic_core, re2, yaml
import numpy
print(numpy.linalg.det(numpy.eye(3)), re2.search("b+", "abb").group())
"""
_LOCKS: Final = [
    f"--requirement={path.name}"
    for path in ROOT.glob("requirements-*.lock")
    if "llamacpp" not in path.name and "release" not in path.name
]
_WRITE: Final = "import pathlib; pathlib.Path('/opt/portico/new').touch()"


def missing() -> str | None:
    """Return what is missing on this machine; None if the test can run."""
    names = [name for name in PROGRAMS if shutil.which(name) is None]
    return names[0] if names else None if os.getuid() == 0 else "root"


def make_base() -> None:
    """Make the base of Debian's packages, once in a checkout. Raises: SystemExit."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    base = FOLDER / "base.tar"
    if not base.exists():
        _run(["mmdebstrap", "--quiet", "--variant=minbase", "trixie", base])
    container = _run(["buildah", "from", "scratch"]).strip()
    _run(["buildah", "add", "--quiet", container, base, "/"])
    _run(["buildah", "commit", "--quiet", "--rm", container, BASE])


def build(tag: str, *target: str) -> None:
    """Build the image, or with `--target`, NAME one of its stages, under this name. Raises: SystemExit."""
    revision = _run(["git", "rev-parse", "--short", "HEAD"]).strip()
    index, options = _package_index()
    arguments = {"BASE": BASE, "VERSION": version(), "REVISION": revision, **index}
    options += [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    build = ["buildah", "bud", "--quiet", "--isolation", "chroot", "--format", "docker"]
    _run([*build, *options, *target, "--tag", tag, ROOT])


def _package_index() -> tuple[Mapping[str, str], list[str]]:
    """Return the variables of pip that this machine sets, as they hold in the container, and the options of buildah."""
    given = {name: os.environ[name] for name in ("PIP_CERT", "PIP_INDEX_URL") if name in os.environ}
    if "PIP_CERT" not in given:
        return given, []
    volume = f"{given['PIP_CERT']}:/run/authorities.pem:ro"
    return {**given, "PIP_CERT": "/run/authorities.pem"}, ["--volume", volume]


def passes(tests: Sequence[str]) -> bool:
    """Run these tests in the build stage, with the locked tools for tests; return whether they pass."""
    build(STAGE, "--target", "build")
    container = _run(["buildah", "from", STAGE]).strip()
    try:
        for name in _run(["git", "ls-tree", "--name-only", "HEAD"]).split():
            _run(["buildah", "add", "--quiet", container, ROOT / name, f"/checkout/{name}"])
        index, options = _package_index()
        options += [word for name, value in index.items() for word in ("--env", f"{name}={value}")]
        run = ["buildah", "run", "--isolation", "chroot", "--workingdir", "/checkout", *options, container]
        _run([*run, "/opt/build/bin/pip", "--python", INTERPRETER, "install", "--quiet", "--no-deps", *_LOCKS])
        command = [*run, INTERPRETER, "-m", "pytest", "-m", "not torture and not postgres", *tests]
        return subprocess.run(command, check=False).returncode == 0
    finally:
        _run(["buildah", "rm", container])


@contextmanager
def mounted() -> Iterator[Path]:
    """Mount the image while the context is open, and return its root."""
    container = _run(["buildah", "from", IMAGE]).strip()
    try:
        yield Path(_run(["buildah", "mount", container]).strip())
    finally:
        _run(["buildah", "rm", container])


@dataclass(frozen=True)
class Container:
    """The image as it runs: its name, the process of runc, and its port on loopback."""

    name: str
    process: "subprocess.Popen[bytes]"
    port: int

    def execute(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in it, as its user."""
        return subprocess.run(["runc", "exec", self.name, *command], capture_output=True, text=True, check=False)

    def ask(self, accept: str = "application/json") -> str:
        """Send README's first request, and return the answer. Raises: OSError."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/execute",
            data=json.dumps(_QUESTION).encode(),
            headers={"Content-Type": "application/json", "Accept": accept},
        )
        with urllib.request.urlopen(request, timeout=START_S) as answer:  # noqa: S310 - loopback
            return str(answer.read().decode())

    def status(self) -> Mapping[str, str]:
        """Return what the kernel says of the process of the service."""
        pid = json.loads(_run(["runc", "state", self.name]))["pid"]
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}

    def stop(self) -> int:
        """Send SIGTERM, and return the exit code."""
        _run(["runc", "kill", self.name, "TERM"])
        return self.process.wait(START_S)


@contextmanager
def running(root: Path, folder: Path) -> Iterator[Container]:
    """Run the image with this root until the context ends; it keeps its data in the folder."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = folder / "var"
    data.mkdir()
    os.chown(data, USER, USER)
    (folder / "config.json").write_text(json.dumps(configuration(root, data, port)), encoding="utf-8")
    name = f"portico-{os.getpid()}"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["runc", "run", "--no-pivot", "--bundle", folder, name], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    container = Container(name, process, port)
    try:
        ends = time.monotonic() + START_S
        while process.poll() is None and container.execute("portico", "health").returncode != 0:
            if time.monotonic() > ends:
                break
            time.sleep(0.2)
        yield container
    finally:
        if process.poll() is None:
            subprocess.run(["runc", "delete", "--force", name], check=False)
            process.wait()
        if process.returncode != 0:
            sys.stderr.write((folder / "log").read_text(encoding="utf-8", errors="replace")[-2000:])


def configuration(root: Path, data: Path, port: int) -> Mapping[str, Any]:
    """Return the configuration of runc: the root read-only, the image's user, no capability, the host's network."""
    image = json.loads(_run(["buildah", "inspect", "--type", "image", IMAGE]))["Docker"]["config"]
    own = [f"PORTICO__SERVER__PORT={port}", "PORTICO__ENGINES__REHEARSAL__MODEL=rehearsal://"]
    user, group = (int(number) for number in image["User"].split(":"))
    none: Sequence[str] = ()
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": user, "gid": group},
            "args": [*image["Entrypoint"], *image["Cmd"]],
            "env": [*image["Env"], *own, "PORTICO__STORAGE__URL=sqlite:///var/portico.db"],
            "cwd": image["WorkingDir"],
            "capabilities": dict.fromkeys(("bounding", "effective", "inheritable", "permitted", "ambient"), none),
            "noNewPrivileges": True,
        },
        "root": {"path": str(root), "readonly": True},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "mode=1777"]},  # noqa: S108 - a mount
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "noexec"]},  # noqa: S108 - a mount
            {"destination": "/srv/var", "type": "bind", "source": str(data), "options": ["bind", "rw"]},
        ],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")]},
    }


def contents(root: Path) -> Iterator[tuple[str, bool]]:
    """Yield what has to hold of the files of the image, and whether it does."""
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    size = sum(path.stat().st_size for path in files)
    yield f"files have {size / 1e6:.1f} MB, at most {LARGEST_BYTES / 1e6:.0f}", size <= LARGEST_BYTES
    parts = {name: sum(path.stat().st_size for path in files if path.is_relative_to(root / name)) for name in _PARTS}
    yield "  " + ", ".join(f"{name} {size / 1e6:.1f}" for name, size in parts.items()), True
    programs = {path.name for path in files if os.access(path, os.X_OK)} & {*_ABSENT}
    yield f"no shell, pip or package manager: {', '.join(sorted(programs)) or 'none'}", not programs
    raised = [str(path) for path in files if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)]
    yield f"no setuid file: {', '.join(raised) or 'none'}", not raised
    bill = json.loads(bill_of_materials(root))
    named = {(each["name"].lower(), each["version"]) for each in bill["components"]}
    debian = sum(each["purl"].startswith("pkg:deb/") for each in bill["components"])
    yield f"the bill of materials has {len(named)} components, {debian} of Debian", debian == len(_stanzas(root))
    [packages] = root.glob(SITE_PACKAGES)
    yield "the packages have no pip", not [*packages.glob("pip-*")]


def behaviour(container: Container) -> Iterator[tuple[str, bool]]:
    """Yield what has to hold of the image as it runs, and whether it does."""
    status = container.status()
    yield f"user {status['Uid'].split()[0]}", {*status["Uid"].split()} == {str(USER)}
    yield f"capabilities {status['CapEff']}, {status['CapBnd']}", int(status["CapEff"] + status["CapBnd"], 16) == 0
    yield "no new privileges", status["NoNewPrivs"] == "1"
    refused = container.execute("python", "-c", _WRITE)
    yield "its root is read-only", "Read-only file system" in refused.stderr
    yield from _answers(container)
    printed = container.execute("portico", "--version").stdout.strip()
    yield printed, printed == f"portico {version()} ({_run(['git', 'rev-parse', '--short', 'HEAD']).strip()})"
    compiled = container.execute("python", "-c", _COMPILED)
    yield f"stripped libraries work: {compiled.stdout.strip()}", compiled.stdout == "1.0 bb\n"
    count = container.execute("python", "-c", _AUTHORITIES).stdout.strip()
    yield f"{count} certificate authorities", count.isdigit() and int(count) >= AUTHORITIES
    code = container.stop()
    yield f"SIGTERM ends it with {code}", code == 0


def _answers(container: Container) -> Iterator[tuple[str, bool]]:
    try:
        answer = json.loads(container.ask())
        yield "the first request of README", answer["state"] == "COMPLETE" and "Rolled 2d6" in answer["content"]
        yield "a stream", "event: execution.completed" in container.ask("text/event-stream")
    except urllib.error.URLError as error:
        yield f"a request: {error}", False
    for command in (("health",), ("check", "--offline"), ("backup", "/srv/var/copy.db", "--verify", "2")):
        ended = container.execute("portico", *command)
        yield f"portico {' '.join(command)}: {ended.returncode} {ended.stderr[-200:]}".strip(), ended.returncode == 0


_PARTS: Final = ("usr/lib", "usr/bin", "usr/share", "opt/portico")


def _stanzas(root: Path) -> list[Path]:
    return [*(root / "var/lib/dpkg/status.d").iterdir()]


def _run(command: Sequence[str | Path]) -> str:
    """Return what a command prints. Raises: SystemExit with the end of its error."""
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise SystemExit(f"image-test: {command[0]}: {ended.stderr.strip()[-500:]}")
    return ended.stdout


def _said(found: Iterator[tuple[str, bool]], say: Callable[[str], object]) -> bool:
    """Print what was found, and return whether all of it holds."""
    holds = True
    for what, is_so in found:
        say(f"image-test: {what}{'' if is_so else ': FAILED'}\n")
        holds = holds and is_so
    return holds


def main(tests: Sequence[str]) -> int:
    """Build, look, run and test; return the exit code."""
    absent = missing()
    if absent is not None:
        sys.stdout.write(f"image-test: skipped: {absent} is missing\n")
        return 0
    make_base()
    build(IMAGE)
    with mounted() as root, tempfile.TemporaryDirectory(prefix="portico-image-") as folder:
        holds = _said(contents(root), sys.stdout.write)
        with running(root, Path(folder)) as container:
            holds = _said(behaviour(container), sys.stdout.write) and holds
    holds = (not tests or passes(tests)) and holds
    sys.stdout.write(f"image-test: {'ok' if holds else 'failed'}\n")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
