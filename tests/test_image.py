"""The container image runs as an unprivileged user, without a shell or secrets, on a read-only root."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from portico.domain.failures import ConfigurationFailure
from portico.settings import Settings, load_settings

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
STAGES = re.split(r"(?m)^(?=FROM )", DOCKERFILE)[1:]
FINAL = STAGES[-1]
ROOTFS = (ROOT / "deploy/image/rootfs.sh").read_text(encoding="utf-8")
COMPOSE = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
SECRET = re.compile(
    r"^\s*(?:ENV |ARG |- )?\w*(?:key|token|password|secret)\w*(?<!_ENV)\s*[=:]\s*(?!\$\{\w+:-\}$)\S",
    re.IGNORECASE | re.MULTILINE,
)
"""A name of a secret with a value that is not taken from the environment."""
SERVICES = yaml.safe_load(COMPOSE)["services"]
REPLICAS = ("portico", "portico-2", "portico-3")
KEY = "ptk_abcd1234_" + "s" * 43
IGNORED = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()


def test_what_runs_is_from_scratch_and_what_builds_is_debian_by_digest() -> None:
    assert [stage.split()[1] for stage in STAGES] == ["${BASE}", "${BASE}", "scratch"]
    assert re.search(r"^ARG BASE=debian:trixie-slim@sha256:[0-9a-f]{64}$", DOCKERFILE, re.MULTILINE)


def test_the_target_tools_adds_what_isolates_programs_and_the_default_has_none_of_it() -> None:
    _, tools, last = STAGES
    assert tools.startswith("FROM ${BASE} AS tools\n")
    assert "install --yes --no-install-recommends python3 bubblewrap util-linux " in tools
    assert re.findall(r"^USER (.*)$", tools, re.MULTILINE) == ["10001:10001"]
    assert "bubblewrap" not in last


def test_the_composed_images_of_others_are_named_by_digest() -> None:
    images = {service["image"] for service in SERVICES.values()} - {"portico"}
    assert {image.split(":")[0] for image in images} == {
        "nginx",
        "postgres",
        "jaegertracing/jaeger",
        "prom/prometheus",
        "grafana/grafana",
    }
    assert all(re.search(r":[\w.-]+@sha256:[0-9a-f]{64}$", image) for image in images)


def test_the_composed_service_waits_until_the_database_answers() -> None:
    assert re.search(r"depends_on:\n +postgresql:\n +condition: service_healthy\n +required: false", COMPOSE)
    assert "pg_isready" in COMPOSE


def test_the_composed_service_has_a_place_for_its_configuration() -> None:
    assert "PORTICO_CONFIG: ${PORTICO_CONFIG:-}" in COMPOSE
    assert "- ./config:/srv/config:ro" in COMPOSE


def test_modules_of_the_user_have_a_place_where_they_are_imported_from() -> None:
    assert 'echo /srv/plugins > "$site/plugins.pth"' in ROOTFS
    assert "- ./plugins:/srv/plugins:ro" in COMPOSE


def test_dependencies_are_installed_by_hash_and_the_service_without_dependencies() -> None:
    installs = re.findall(r"pip install ([^&\n]*)", DOCKERFILE)
    assert [install.strip() for install in installs] == [
        "--no-deps --require-hashes --requirement requirements-build.lock"
    ]
    assert re.findall(r"portico/bin/python install ([^&\n]*)", DOCKERFILE) == [
        "--no-deps --require-hashes $locks",
        "--no-deps --no-index /wheels/*.whl",
    ]
    assert 'locks="--requirement requirements.lock"' in DOCKERFILE


def test_make_run_installs_what_the_service_needs_by_hash_and_no_tools_for_tests() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^run: \$\(RUNNABLE\) ", makefile, re.MULTILINE)
    recipe = makefile.partition("$(RUNNABLE):")[2].partition("@touch")[0]
    assert re.findall(r"pip install --quiet (.*)", recipe) == [
        "--no-deps --require-hashes --requirement requirements.lock --requirement requirements-build.lock",
        "--no-deps --no-build-isolation --editable .",
    ]
    assert not [line for line in makefile.splitlines() if "--editable" in line and "--no-build-isolation" not in line]


def test_no_lock_is_resolved_anew_where_it_is_installed() -> None:
    """A lock is complete. Pip, asked to resolve, may try a release newer than the lock and refuse it for its hash."""
    for text in (DOCKERFILE, (ROOT / "Makefile").read_text(encoding="utf-8")):
        installs = re.findall(r"install .*--require-hashes", text)
        assert installs
        assert all("--no-deps" in install for install in installs)


def test_the_build_requirements_are_locked_by_hash() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["dependency-groups"]["build"] == project["build-system"]["requires"]
    lock = (ROOT / "requirements-build.lock").read_text(encoding="utf-8")
    assert re.findall(r"^([a-z-]+)==", lock, re.MULTILINE) == ["setuptools"]
    assert "--hash=sha256:" in lock


def test_it_runs_as_a_numbered_user_that_is_not_root() -> None:
    assert re.findall(r"^USER (.*)$", FINAL, re.MULTILINE) == ["10001:10001"]
    assert re.findall(r"^.*chown.*$", ROOTFS, re.MULTILINE) == ['chown 10001:10001 "$root/srv/var"']
    assert all("executions:/srv/var" in SERVICES[name]["volumes"] for name in REPLICAS)


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
        for line in re.findall(r"^COPY (?!--)(.*) \S+$", DOCKERFILE.replace("\\\n", ""), re.MULTILINE)
        for name in line.split()
    }
    assert copied == {pattern.removeprefix("!") for pattern in patterns if pattern.startswith("!")}


def test_every_extra_of_the_image_has_its_lock_there() -> None:
    names = re.search(r"^EXTRA_NAMES := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert names is not None
    assert {f"!requirements-{name}.lock" for name in names[1].split()} <= {*IGNORED}


@pytest.mark.parametrize(
    "line",
    ["read_only: true", "cap_drop:\n      - ALL", "- no-new-privileges:true", "tmpfs:", "healthcheck:"],
)
def test_the_composed_service_has_no_unneeded_privileges(line: str) -> None:
    assert line in COMPOSE


def composed(name: str, **given: str) -> Settings:
    """Return the settings of a composed replica, with these variables in the file `.env`."""
    values = {
        variable: re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: given.get(found[1], found[2]), str(value))
        for variable, value in SERVICES[name]["environment"].items()
    }
    return load_settings({key: value for key, value in values.items() if key != "PORTICO_CONFIG"})


@pytest.mark.parametrize("name", REPLICAS)
def test_a_composed_replica_needs_a_key_and_stops_within_its_grace_period(name: str) -> None:
    settings = composed(
        name, PORTICO_KEY=KEY, OPENAI_API_KEY="k", STORAGE_URL="postgresql://portico@postgresql/portico"
    )
    server = settings.server
    assert (settings.auth.mode, server.port) == ("keys", 8080)
    grace = int(SERVICES[name]["stop_grace_period"].removesuffix("s"))
    assert grace == server.lame_duck_seconds + server.drain_seconds + 2 + 8


def test_without_a_key_the_composed_service_says_how_to_make_one() -> None:
    with pytest.raises(ConfigurationFailure, match=r"PORTICO_KEY is not set; make a key with .portico keys generate"):
        composed("portico", OPENAI_API_KEY="k")


def test_everything_that_is_published_is_on_loopback_and_nothing_uses_the_network_of_the_host() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)
    assert {*published} == {"portico", "gateway", "jaeger", "prometheus", "grafana"}
    assert "network_mode" not in COMPOSE


def test_the_composed_gateway_is_that_of_deploy_before_the_replicas() -> None:
    gateway = (ROOT / "deploy/gateway/nginx.conf").read_text(encoding="utf-8").splitlines()[1:]
    composed_one = (ROOT / "deploy/compose/nginx.conf").read_text(encoding="utf-8").splitlines()[1:]
    changed = [line.split()[1] for ours, line in zip(gateway, composed_one, strict=True) if ours != line]
    assert changed == [*(f"{name}:8080" for name in REPLICAS), "8081;"]
    assert SERVICES["gateway"]["depends_on"] == [*REPLICAS]
    assert [SERVICES[name].get("profiles") for name in REPLICAS] == [None, ["replicas"], ["replicas"]]


def test_every_path_that_is_mounted_is_there_or_is_the_users() -> None:
    mounted = [volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", ())]
    assert {path for path in mounted if path.startswith("./") and not (ROOT / path).exists()} == {
        "./config",
        "./plugins",
    }
    assert {path for path in mounted if not path.startswith("./")} == {*yaml.safe_load(COMPOSE)["volumes"]}


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
