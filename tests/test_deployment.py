"""Files of deploy/: what they name exists in the product, and they agree with each other."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from portico.adapters.telemetry.metrics.catalogue import SERIES
from portico.bootstrap.service import open_service
from portico.entrypoints.http.app import create_app
from portico.settings import Settings, load_settings

DEPLOY = Path(__file__).parents[1] / "deploy"
BASE = DEPLOY / "kubernetes/base"
GATEWAYS = sorted(path.name for path in (DEPLOY / "gateway").iterdir())
UNIT = (DEPLOY / "systemd/portico.service").read_text(encoding="utf-8")
KEY = "ptk_abcd1234_" + "s" * 43
CLOSING_S = 2
NO_PROGRAM = "this machine has no {name}"
LARGEST_EXPOSURE = 2.0
PATHS = {route.path for route in create_app(Settings(), open_service).routes}


def manifest(name: str) -> Any:
    return yaml.safe_load((BASE / f"{name}.yaml").read_text(encoding="utf-8"))


def configured(text: str, tmp_path: Path) -> Settings:
    """Return the settings of that file, with the key and the credentials that a Secret would have."""
    (tmp_path / "portico.toml").write_text(text, encoding="utf-8")
    return load_settings({"PORTICO_KEY": KEY, "OPENAI_API_KEY": "k"}, tmp_path / "portico.toml")


def run(name: str, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run a program of the machine; skip the test where there is none."""
    program = shutil.which(name)
    if program is None:
        pytest.skip(NO_PROGRAM.format(name=name))
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", GATEWAYS)
def test_a_gateway_names_its_upstreams_and_hides_what_is_not_for_the_outside(name: str) -> None:
    text = (DEPLOY / "gateway" / name).read_text(encoding="utf-8")
    assert "UPSTREAMS" in text
    assert {*re.findall(r"\b80\d\d\b", text)} == {"8080", "8081", "8082", "8083"}
    assert {"/metrics", "/docs", "/readyz"} <= PATHS
    assert "/metrics" in text
    assert "/docs" in text


def test_the_files_of_gateways_keep_what_lets_a_restart_lose_nothing() -> None:
    nginx, haproxy, caddy, envoy = (
        (DEPLOY / "gateway" / name).read_text(encoding="utf-8")
        for name in ("nginx.conf", "haproxy.cfg", "Caddyfile", "envoy.yaml")
    )
    assert re.findall(r"^ *proxy_next_upstream (.*);$", nginx, re.MULTILINE) == ["error timeout"]
    assert re.findall(r"^ *retry-on (.*)$", haproxy, re.MULTILINE) == ["conn-failure"]
    assert "lb_retry_match {\n\t\t\tmethod GET\n\t\t}" in caddy
    [hosts] = re.findall(r"retry_on: (.*)", envoy)
    assert hosts == "connect-failure,refused-stream"
    assert "host_selection_retry_max_attempts" in envoy
    assert yaml.safe_load(envoy)["static_resources"]["clusters"][0]["health_checks"][0]["no_traffic_interval"] == "1s"


def test_the_configuration_of_kubernetes_can_be_used_and_fits_the_ports_and_times(tmp_path: Path) -> None:
    server = configured(manifest("configmap")["data"]["portico.toml"], tmp_path).server
    pod = manifest("deployment")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"http": server.port, "metrics": server.metrics_port}
    longest = server.lame_duck_seconds + server.drain_seconds + CLOSING_S
    assert pod["terminationGracePeriodSeconds"] == longest + 8
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] in PATHS
    assert server.lame_duck_seconds > 2 * container["readinessProbe"]["periodSeconds"]
    assert {each["port"] for each in manifest("networkpolicy")["spec"]["ingress"][0]["ports"]} == {*ports}


def test_the_pods_of_kubernetes_have_no_rights_that_they_do_not_need() -> None:
    pod = manifest("deployment")["spec"]["template"]["spec"]
    container = pod["containers"][0]["securityContext"]
    assert (pod["securityContext"]["runAsUser"], pod["automountServiceAccountToken"]) == (10001, False)
    assert container["readOnlyRootFilesystem"] is True
    assert container["capabilities"] == {"drop": ["ALL"]}
    assert container["allowPrivilegeEscalation"] is False


def test_the_autoscaler_reads_a_series_that_there_is() -> None:
    [metric] = manifest("horizontalpodautoscaler")["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] in {each.name for each in SERIES}


def test_every_manifest_is_listed_and_the_overlay_names_a_setting() -> None:
    resources = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    assert {*resources} == {path.name for path in BASE.iterdir()} - {"kustomization.yaml"}
    overlay = (DEPLOY / "kubernetes/postgresql/kustomization.yaml").read_text(encoding="utf-8")
    assert "PORTICO__STORAGE__URL" in overlay


def test_the_unit_waits_longer_than_a_stop_takes_and_sets_what_there_is(tmp_path: Path) -> None:
    variables = dict(re.findall(r"^Environment=(PORTICO__\w+)=(.*)$", UNIT, re.MULTILINE))
    key = tmp_path / "key"
    key.write_text(KEY)
    environ = {name: value.replace("%d/key", str(key)) for name, value in variables.items()}
    server = load_settings(environ, local_model=lambda: None).server
    [seconds] = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)
    assert int(seconds) >= server.lame_duck_seconds + server.drain_seconds + CLOSING_S + 8
    assert re.findall(r"^ExecStart=/opt/portico/bin/portico (\w+)$", UNIT, re.MULTILINE) == ["serve"]


def test_the_alerts_and_the_runbook_have_the_same_names() -> None:
    rules = yaml.safe_load((DEPLOY / "observability/alerts.yaml").read_text())["groups"][0]["rules"]
    runbook = (DEPLOY.parent / "docs/runbook.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", runbook, re.MULTILINE) == [rule["alert"] for rule in rules]
    for rule in rules:
        assert rule["annotations"]["runbook_url"].endswith(f"docs/runbook.md#{rule['alert'].lower()}")


def test_every_series_of_the_runbook_exists() -> None:
    runbook = (DEPLOY.parent / "docs/runbook.md").read_text(encoding="utf-8")
    named = {name.removesuffix("_bucket") for name in re.findall(r"\bportico_[a-z_]+", runbook)}
    assert named <= {each.name for each in SERIES}


@pytest.mark.parametrize("folder", ["base", "postgresql"])
def test_kustomize_makes_every_manifest_of(folder: str, tmp_path: Path) -> None:
    made = run("kubectl", "kustomize", DEPLOY / "kubernetes" / folder)
    assert (made.returncode, made.stderr) == (0, "")
    manifests = [*yaml.safe_load_all(made.stdout)]
    assert len(manifests) == len([*BASE.iterdir()]) - 1
    [pod] = (each["spec"]["template"]["spec"] for each in manifests if each["kind"] == "Deployment")
    names = [each["name"] for each in pod["containers"][0]["env"]]
    assert ("PORTICO__STORAGE__URL" in names) == (folder == "postgresql")
    (tmp_path / "all.yaml").write_text(made.stdout, encoding="utf-8")
    validated = run("kubernetes-validate", "--strict", tmp_path / "all.yaml")
    assert validated.returncode == 0, validated.stdout + validated.stderr


def test_systemd_takes_the_unit_and_finds_it_little_exposed(tmp_path: Path) -> None:
    unit = tmp_path / "portico.service"
    program = next(filter(None, map(shutil.which, ("true", "false"))))
    unit.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={program}", UNIT, flags=re.MULTILINE), encoding="utf-8")
    verified = run("systemd-analyze", "verify", "--man=no", unit)
    assert (verified.returncode, verified.stderr) == (0, "")
    rated = run("systemd-analyze", "security", "--offline=yes", "--no-pager", unit)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", rated.stdout)
    assert found is not None, rated.stderr
    assert float(found[1]) <= LARGEST_EXPOSURE
