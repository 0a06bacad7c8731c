"""Files of the profile `observability`: what they name exists, and each alert fires for its cause and only then."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from portico.adapters.telemetry.metrics.catalogue import SERIES
from portico.domain.failures import Code
from tests.support.prometheus import ROOT, promtool

CONFIGURATION = ROOT / "deploy" / "observability"
PROVISIONING = CONFIGURATION / "grafana" / "provisioning"
DASHBOARD = json.loads((CONFIGURATION / "grafana" / "dashboards" / "portico.json").read_text())
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
OBSERVERS = ("jaeger", "prometheus", "grafana")
TARGETS = [target for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
RULES = [
    rule for group in yaml.safe_load((CONFIGURATION / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
EXPRESSIONS = [target["expr"] for target in TARGETS] + [rule["expr"] for rule in RULES]

LABELS = {label for each in SERIES for label in each.labels}
AT = '{job="portico",instance="a"'
HEALTHY: Mapping[str, str] = {
    f"up{AT}}}": "1+0x70",
    f"portico_storage_up{AT}}}": "1+0x70",
    f'portico_executions_total{AT},state="COMPLETE"}}': "0+600x70",
    f'portico_executions_total{AT},state="ERROR"}}': "0+6x70",
    f'portico_breaker_state{AT},provider="p",breaker="open"}}': "0+0x70",
    f'portico_fallback_transitions_total{AT},from_fsm="IDLE",to_fsm="SELECTING"}}': "0+600x70",
    f'portico_fallback_transitions_total{AT},from_fsm="ATTEMPTING",to_fsm="SELECTING"}}': "0+6x70",
    f'portico_inferences_total{AT},provider="p"}}': "0+600x70",
    f"portico_executions_waiting{AT}}}": "5 0 9 2 5 0 9 2 5+0x62",
    f'portico_requests_refused_total{AT},code="REQUEST_OVERLOADED"}}': "7+0x70",
    f'portico_limits_waiting{AT},limit="tokens"}}': "3 0 3 0+0x67",
    f'portico_event_loop_lag_seconds_bucket{AT},le="0.01"}}': "0+600x70",
    f'portico_event_loop_lag_seconds_bucket{AT},le="1"}}': "0+600x70",
    f'portico_event_loop_lag_seconds_bucket{AT},le="+Inf"}}': "0+600x70",
    f"portico_tool_threads_abandoned{AT}}}": "1 0+0x69",
    f"portico_records_dropped_total{AT}}}": "3+0x70",
    f"portico_spans_dropped_total{AT}}}": "3+0x70",
    f'portico_bugs_total{AT},place="sink"}}': "1+0x70",
    f"portico_audit_failures_total{AT}}}": "1+0x70",
}
FIRING: Mapping[str, Mapping[str, str]] = {
    "PorticoDown": {f"up{AT}}}": "0+0x70"},
    "PorticoStorageDown": {f"portico_storage_up{AT}}}": "0+0x70"},
    "PorticoExecutionsFail": {f'portico_executions_total{AT},state="ERROR"}}': "0+60x70"},
    "PorticoBreakerOpen": {f'portico_breaker_state{AT},provider="p",breaker="open"}}': "1+0x70"},
    "PorticoFailsOver": {
        f'portico_fallback_transitions_total{AT},from_fsm="ATTEMPTING",to_fsm="SELECTING"}}': "0+100x70"
    },
    "PorticoQueueGrows": {f"portico_executions_waiting{AT}}}": "0+60x70"},
    "PorticoOverloaded": {f'portico_requests_refused_total{AT},code="REQUEST_OVERLOADED"}}': "0+1x70"},
    "PorticoLimitsWait": {f'portico_limits_waiting{AT},limit="tokens"}}': "3+0x70"},
    "PorticoEventLoopSlow": {f'portico_event_loop_lag_seconds_bucket{AT},le="0.01"}}': "0+1x70"},
    "PorticoToolHangs": {f"portico_tool_threads_abandoned{AT}}}": "1+0x70"},
    "PorticoRecordsLost": {f"portico_records_dropped_total{AT}}}": "0+1x70"},
    "PorticoSpansLost": {f"portico_spans_dropped_total{AT}}}": "0+1x70"},
    "PorticoAuditFails": {f"portico_audit_failures_total{AT}}}": "0+1x70"},
    "PorticoDefect": {f'portico_bugs_total{AT},place="sink"}}': "0+1x70"},
}
"""Series that make an alert fire, in place of the healthy ones."""


def checked(*arguments: str) -> str:
    """Return what promtool says if it refuses the files, else nothing."""
    done = promtool(*arguments)
    return "" if done.returncode == 0 else (done.stdout + done.stderr).decode()


def fired(directory: Path, series: Mapping[str, str], expected: str | None) -> str:
    """Return what promtool says unless exactly the expected alert fires after an hour."""
    samples = [] if expected is None else [{"labels": f'{{alertname="{expected}"}}', "value": 1}]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": "60m",
                "exp_samples": samples,
            }
        ],
    }
    path = directory / "rules.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(CONFIGURATION / "alerts.yaml")], "tests": [test]}))
    return checked("test", "rules", str(path))


def test_promtool_accepts_the_configuration_and_the_rules() -> None:
    assert checked("check", "config", str(CONFIGURATION / "prometheus.yaml")) == ""
    assert checked("check", "rules", str(CONFIGURATION / "alerts.yaml")) == ""


def test_no_alert_fires_while_all_is_well(tmp_path: Path) -> None:
    assert fired(tmp_path, HEALTHY, None) == ""


@pytest.mark.parametrize("alert", [rule["alert"] for rule in RULES])
def test_an_alert_fires_for_its_cause_and_no_other_one_does(tmp_path: Path, alert: str) -> None:
    assert fired(tmp_path, {**HEALTHY, **FIRING[alert]}, alert) == ""


def test_an_alert_that_does_not_fire_is_noticed(tmp_path: Path) -> None:
    assert "PorticoDown" in fired(tmp_path, HEALTHY, "PorticoDown")


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_reads_only_series_of_the_catalogue_by_labels_that_they_have(expression: str) -> None:
    labels = {f"{each.name}{suffix}": set(each.labels) for each in SERIES for suffix in _suffixes(each.type)}
    named = re.findall(r"\b((?:portico|gen_ai)_[a-z_]+)(?:\{(.*?)\})?", expression)
    series = [(name, selector) for name, selector in named if name not in LABELS]
    assert series or expression.startswith(("up", "process_"))
    for name, selector in series:
        assert name in labels
        assert set(re.findall(r"(\w+)(?:=|!=)", selector)) <= labels[name]


def _suffixes(kind: str) -> tuple[str, ...]:
    return ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)


@pytest.mark.parametrize(
    ("subject", "series"),
    {
        "executions": "portico_executions_total",
        "latency by stage": "portico_stage_duration_seconds_bucket",
        "failovers": "portico_fallback_transitions_total",
        "breaker": "portico_breaker_state",
        "queue": "portico_executions_waiting",
        "tokens": "portico_tokens_total",
        "cost": "portico_cost_total",
        "suspensions": 'state="SUSPENDED"',
    }.items(),
)
def test_the_dashboard_shows(subject: str, series: str) -> None:
    assert any(series in target["expr"] for target in TARGETS), subject


def test_the_panels_have_ids_of_their_own_and_the_provisioned_source() -> None:
    source, traces = yaml.safe_load((PROVISIONING / "datasources" / "prometheus.yaml").read_text())["datasources"]
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    assert {target["datasource"]["uid"] for target in TARGETS} == {source["uid"]}
    assert [each["url"] for each in (source, traces)] == ["http://prometheus:9090", "http://jaeger:16686"]


def test_the_dashboard_is_mounted_where_it_is_looked_for() -> None:
    [provider] = yaml.safe_load((PROVISIONING / "dashboards" / "portico.yaml").read_text())["providers"]
    mounted = [volume.split(":")[:2] for volume in COMPOSE["services"]["grafana"]["volumes"]]
    assert ["./deploy/observability/grafana/dashboards", provider["options"]["path"]] in mounted
    home = COMPOSE["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{provider['options']['path']}/portico.json"


@pytest.mark.parametrize("name", OBSERVERS)
def test_a_service_of_the_profile_is_optional_unprivileged_and_reads_files_that_exist(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["profiles"] == ["observability"]
    assert [port.rpartition(":")[0].split(":")[0] for port in service["ports"]] == ["127.0.0.1"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    for volume in service["volumes"]:
        source = volume.split(":")[0]
        assert (ROOT / source).exists() if source.startswith("./") else source in COMPOSE["volumes"]
    for argument in service.get("command", ()):
        inside = re.search(r"=/etc/\w+/(.*)", argument)
        assert inside is None or (CONFIGURATION / inside[1]).exists()


def test_jaeger_takes_traces_where_the_service_sends_them_and_defines_what_it_names() -> None:
    jaeger: Mapping[str, Any] = yaml.safe_load((CONFIGURATION / "jaeger.yaml").read_text())
    protocols = jaeger["receivers"]["otlp"]["protocols"]
    assert {protocol["endpoint"] for protocol in protocols.values()} == {"0.0.0.0:4317", "0.0.0.0:4318"}
    pipeline = jaeger["service"]["pipelines"]["traces"]
    for kind in ("receivers", "processors", "exporters"):
        assert set(pipeline[kind]) == set(jaeger[kind])
    assert set(jaeger["service"]["extensions"]) == set(jaeger["extensions"])
    backends = jaeger["extensions"]["jaeger_storage"]["backends"]
    assert jaeger["exporters"]["jaeger_storage_exporter"]["trace_storage"] in backends
    assert jaeger["extensions"]["jaeger_query"]["storage"]["traces"] in backends


def test_prometheus_reads_the_port_for_metrics_of_every_replica() -> None:
    [job] = yaml.safe_load((CONFIGURATION / "prometheus.yaml").read_text())["scrape_configs"]
    [found] = job["dns_sd_configs"]
    services = COMPOSE["services"]
    assert found["names"] == [name for name, service in services.items() if service["image"] == "portico"]
    assert found["port"] == services["portico"]["environment"]["PORTICO__SERVER__METRICS_PORT"]


def test_the_advice_names_codes_that_there_are() -> None:
    named = {name for each in SERIES for name in re.findall(r"`([A-Z]+_[A-Z_]*\*?)`", each.advice)}
    assert "ACCESS_*" in named
    for name in named:
        assert any(code == name or (name.endswith("*") and code.startswith(name[:-1])) for code in Code), name
