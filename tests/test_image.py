"""The container image runs as an unprivileged user, without a shell or secrets, on a read-only root."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
STAGES = re.split(r"(?m)^(?=FROM )", DOCKERFILE)[1:]
BUILD, FINAL, TOOLS, DEFAULT = STAGES
COMPOSE = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
SECRET = re.compile(
    r"^\s*(?:ENV |ARG |- )?\w*(?:key|token|password|secret)\w*\s*[=:]\s*(?!\$\{\w+:-\}$)\S",
    re.IGNORECASE | re.MULTILINE,
)
"""A name of a secret with a value that is not taken from the environment."""
IGNORED = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()


def test_both_stages_use_the_same_slim_base_by_digest() -> None:
    bases = {stage.split()[1] for stage in (BUILD, FINAL)}
    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.11-slim-bookworm@sha256:[0-9a-f]{64}", bases.pop())


def test_the_target_tools_adds_what_isolates_programs_and_the_default_has_none_of_it() -> None:
    assert TOOLS.startswith("FROM service AS tools\n")
    assert "install --yes --no-install-recommends bubblewrap util-linux " in TOOLS
    assert re.findall(r"^USER (.*)$", TOOLS, re.MULTILINE)[-1] == "10001:10001"
    assert DEFAULT.split() == ["FROM", "service"]


def test_the_composed_images_of_others_are_named_by_digest() -> None:
    images = re.findall(r"^ +image: (\S+)$", COMPOSE, re.MULTILINE)
    assert images[0] == "portico"
    assert all(re.search(r"@sha256:[0-9a-f]{64}$", image) for image in images[1:])
    assert len(images) == 5


def test_the_composed_service_waits_until_the_database_answers() -> None:
    assert re.search(r"depends_on:\n +postgresql:\n +condition: service_healthy\n +required: false", COMPOSE)
    assert "pg_isready" in COMPOSE


def test_the_composed_service_has_a_place_for_its_configuration() -> None:
    assert "PORTICO_CONFIG: ${PORTICO_CONFIG:-}" in COMPOSE
    assert "- ./config:/srv/config:ro" in COMPOSE


def test_modules_of_the_user_have_a_place_where_they_are_imported_from() -> None:
    assert "COPY --from=build /srv/plugins /srv/plugins" in FINAL
    assert "echo /srv/plugins > /opt/portico/lib/python3.11/site-packages/plugins.pth" in BUILD
    assert "- ./plugins:/srv/plugins:ro" in COMPOSE


def test_dependencies_are_installed_by_hash_and_the_service_without_dependencies() -> None:
    installs = re.findall(r"pip install ([^&\n]*)", DOCKERFILE)
    assert [install.strip() for install in installs] == [
        "--require-hashes --requirement requirements.lock --requirement requirements-build.lock",
        "--no-deps --no-build-isolation .",
    ]


def test_make_run_installs_what_the_service_needs_by_hash_and_no_tools_for_tests() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^run: \$\(RUNNABLE\) ", makefile, re.MULTILINE)
    recipe = makefile.partition("$(RUNNABLE):")[2].partition("@touch")[0]
    assert re.findall(r"pip install --quiet (.*)", recipe) == [
        "--require-hashes --requirement requirements.lock --requirement requirements-build.lock",
        "--no-deps --no-build-isolation --editable .",
    ]
    assert not [line for line in makefile.splitlines() if "--editable" in line and "--no-build-isolation" not in line]


def test_the_build_requirements_are_locked_by_hash() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["dependency-groups"]["build"] == project["build-system"]["requires"]
    lock = (ROOT / "requirements-build.lock").read_text(encoding="utf-8")
    assert re.findall(r"^([a-z-]+)==", lock, re.MULTILINE) == ["setuptools"]
    assert "--hash=sha256:" in lock


def test_it_runs_as_a_numbered_user_that_is_not_root() -> None:
    assert re.findall(r"^USER (.*)$", FINAL, re.MULTILINE) == ["10001:10001"]
    assert re.findall(r"^.*chown.*$", DOCKERFILE, re.MULTILINE) == [
        "COPY --from=build --chown=10001:10001 /srv/var /srv/var"
    ]
    assert "      - executions:/srv/var" in COMPOSE


def test_it_starts_without_a_shell() -> None:
    assert 'ENTRYPOINT ["portico"]\nCMD ["serve"]' in FINAL
    assert not re.search(r"^RUN ", FINAL, re.MULTILINE)


def test_it_has_a_health_check() -> None:
    healthcheck = re.search(r"HEALTHCHECK .*?CMD (\[.*?\])$", FINAL, re.MULTILINE | re.DOTALL)
    assert healthcheck is not None
    assert healthcheck[1] == '["portico", "health"]'
    assert "EXPOSE 8080" in FINAL


@pytest.mark.parametrize("text", [DOCKERFILE, COMPOSE], ids=["Dockerfile", "docker-compose.yml"])
def test_it_contains_no_secret(text: str) -> None:
    assert not SECRET.search(text)


@pytest.mark.parametrize(
    "line", ["ENV API_KEY=sk-1", "      OPENAI_API_KEY: sk-1", "ARG password=x", "  - TOKEN=${T:-abc}"]
)
def test_a_planted_secret_is_noticed(line: str) -> None:
    assert SECRET.search(f"FROM scratch\n{line}\n")


def test_the_build_context_contains_only_the_copied_files() -> None:
    patterns = [line for line in IGNORED if line and not line.startswith("#")]
    assert patterns[0] == "*"
    copied = {
        name.rstrip("/")
        for line in re.findall(r"^COPY (?!--)(.*) \S+$", DOCKERFILE, re.MULTILINE)
        for name in line.split()
    }
    assert copied == {pattern.removeprefix("!") for pattern in patterns if pattern.startswith("!")}


@pytest.mark.parametrize(
    "line",
    ["read_only: true", "cap_drop:\n      - ALL", "- no-new-privileges:true", "tmpfs:", "healthcheck:"],
)
def test_the_composed_service_has_no_unneeded_privileges(line: str) -> None:
    assert line in COMPOSE


def test_its_grace_period_is_longer_than_draining() -> None:
    grace = re.search(r"stop_grace_period: (\d+)s", COMPOSE)
    assert grace is not None
    assert int(grace[1]) > 30


def test_without_authentication_it_listens_on_the_hosts_loopback_only() -> None:
    assert "network_mode: host" in COMPOSE
    assert "ports:" not in COMPOSE


@pytest.mark.parametrize(
    ("lock", "extras"),
    [("requirements.lock", ()), ("requirements-dev.lock", ("dev",)), ("requirements-otlp-grpc.lock", ("otlp-grpc",))],
    ids=["run", "develop", "traces over gRPC"],
)
def test_a_lock_contains_the_dependencies_of_pyproject_with_hashes(lock: str, extras: tuple[str, ...]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(name for extra in extras for name in project["optional-dependencies"][extra])]
    entries = re.split(r"(?m)^(?=[a-z0-9])", (ROOT / lock).read_text(encoding="utf-8"))[1:]
    asked = {entry.partition("==")[0] for entry in entries if "portico (pyproject.toml)" in entry}
    assert asked == {re.split(r"[>=<\[]", name)[0] for name in wanted}, "make lock"
    assert all("--hash=sha256:" in entry for entry in entries)
