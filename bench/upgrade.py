"""Run two versions on one database: `python -m bench.upgrade [REF]`, which is `make upgrade-test FROM=REF`.

Three replicas of REF, or of the newest tag, run behind a gateway on one PostgreSQL. Under load of all kinds
of requests each is replaced by one of this checkout, and then each by one of REF again: nothing fails, nothing is lost,
nothing is asked twice. At last both versions replay what both have recorded. Before the first tag the stored format
changes in place, so REF must have the same; else one line says so, and the exit code is 2.
"""

import asyncio
import io
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.gateway.__main__ import CONFIGURATION
from bench.gateway.load import Load, running, unfinished
from bench.gateway.processes import COMMANDS, DRAIN_S, LAME_DUCK_S, ROOT, Gateway, Replica, missing_program
from bench.gateway.provider import Provider, open_provider
from tests.support.postgres import own_database, postgres_server

GOLDEN = "tests/golden"
SCHEMA = "app/portico/adapters/stores/schema_creation.py"
LOCK = "requirements.lock"
OTHER_FORMAT = 2
_SCHEMA_ID = re.compile(r'^SCHEMA_ID: Final = "(.*)"$', re.MULTILINE)


def newest_tag() -> str | None:
    """Return the newest tag before this commit; None if there is none."""
    ended = _git("describe", "--tags", "--abbrev=0")
    return ended.stdout.decode().strip() if ended.returncode == 0 else None


def difference(ref: str) -> str | None:
    """Return what of the stored format differs between REF and this checkout; None if nothing does."""
    if _git("diff", "--quiet", ref, "--", GOLDEN).returncode != 0:
        return "golden set"
    there = _git("show", f"{ref}:{SCHEMA}").stdout.decode()
    here = (ROOT / SCHEMA).read_text(encoding="utf-8")
    return None if _SCHEMA_ID.findall(there) == _SCHEMA_ID.findall(here) else "schema"


def environment_of(ref: str, folder: Path) -> Mapping[str, str]:
    """Unpack REF into the folder, with what its lock installs if that differs; return the variables that run it."""
    archive = _git("archive", ref, "app", LOCK).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    path = [str(folder / "app")]
    if (folder / LOCK).read_bytes() != (ROOT / LOCK).read_bytes():
        packages = folder / "packages"
        install = ("uv", "pip", "install", "--quiet", "--require-hashes", "--requirement", folder / LOCK)
        subprocess.run([sys.executable, "-m", *install, "--target", packages], check=True)
        path.append(str(packages))
    return {"PYTHONPATH": os.pathsep.join(path)}


async def rolled(
    gateway: Gateway, replicas: Sequence[Replica], version: Mapping[str, str], asked: Provider
) -> list[str]:
    """Replace each replica by one of this version under load, and return what went wrong."""
    load = Load(gateway.url)
    async with running(load):
        for replica in replicas:
            await asyncio.sleep(2)
            await replica.stop()
            replica.environment = {**replica.environment, **version}
            await replica.start()
        await asyncio.sleep(2)
    lost = await unfinished(load)
    twice = [name for name in load.sent if asked.asked[name] > 1]
    _say(f"  {len(load.sent)} requests, {len(load.failed)} failed, {len(lost)} lost, {len(twice)} asked twice")
    return [*(f"{name}: {problem}" for name, problem in load.failed), *lost, *twice]


async def run(ref: str, name: str, url: str, folder: Path) -> list[str]:
    """Upgrade and go back behind the gateway of this name, replay with both, and return what went wrong."""
    old, new = environment_of(ref, folder / "old"), {"PYTHONPATH": str(ROOT / "app")}
    async with open_provider() as provider:
        configuration = CONFIGURATION.format(url=provider.url, lame_duck=LAME_DUCK_S, drain=DRAIN_S)
        (folder / "portico.toml").write_text(configuration, encoding="utf-8")
        ours = {key: value for key, value in os.environ.items() if not key.startswith("PORTICO")}
        ours |= {"PORTICO__STORAGE__URL": url, "GATEWAY_TEST_KEY": "k", **old}
        replicas = [Replica(folder, ours) for _ in range(3)]
        gateway = Gateway(name, folder, [replica.port for replica in replicas])
        try:
            for replica in replicas:
                await replica.start()
            await gateway.start()
            _say(f"upgrade from {ref}:")
            wrong = await rolled(gateway, replicas, new, provider)
            _say(f"back to {ref}:")
            wrong += await rolled(gateway, replicas, old, provider)
        finally:
            for process in (gateway.process, *(replica.process for replica in replicas)):
                if process is not None:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
    return [*wrong, *(line for version in (old, new) for line in replayed(folder, {**ours, **version}))]


def replayed(folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Replay what is recorded with the version of this environment, and return what differs."""
    command = (sys.executable, "-m", "portico", "replay", "--last", "1000", "--fail-on-difference")
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    lines = ended.stdout.strip().splitlines()
    identical = sum("  identical  " in line for line in lines)
    _say(f"replay with {environment['PYTHONPATH']}: {identical} of {len(lines)} executions identical")
    return [] if ended.returncode == 0 else [f"replay: exit code {ended.returncode}: {ended.stderr.strip()[-300:]}"]


def _git(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """Run the test from the version that is named, or from the newest tag; return the exit code."""
    ref = arguments[0] if arguments else newest_tag()
    if ref is None:
        _say("upgrade-test: skipped: there is no tag; name a version with FROM=REF")
        return 0
    if _git("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}").returncode != 0:
        _say(f"upgrade-test: there is no version {ref}")
        return OTHER_FORMAT
    if newest_tag() is None and (differing := difference(ref)) is not None:
        _say(f"upgrade-test: {ref} has another {differing}; before the first tag the stored format changes in place")
        return OTHER_FORMAT
    names = [name for name in COMMANDS if missing_program(name) is None]
    if not names:
        _say(f"upgrade-test: skipped: {', '.join(COMMANDS)} are missing")
        return 0
    with tempfile.TemporaryDirectory(prefix="portico-upgrade-") as folder, postgres_server() as server:
        (Path(folder) / "old").mkdir()
        wrong = asyncio.run(run(ref, names[0], own_database(server.url), Path(folder)))
    for each in wrong[:50]:
        _say(each)
    _say(f"upgrade-test: {'failed' if wrong else 'ok'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
