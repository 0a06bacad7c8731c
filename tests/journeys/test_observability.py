"""Dashboard and alerts on a real Prometheus that scrapes the service under load: each query returns data."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.http_server import RunningServer
from tests.support.portico import ASK_PERSON, EVENTS, RESPOND_ASYNC, chat, portico
from tests.support.prometheus_server import CONFIGURATION, PrometheusServer, prometheus_server
from tests.support.upstream import closed_port

DASHBOARD = json.loads((CONFIGURATION / "grafana" / "dashboards" / "portico.json").read_text())
ROUNDS = 3
PRICE = {"input": 1.0, "output": 2.0}


def configured(dead: str) -> Mapping[str, Any]:
    """Return a configuration with a dead provider before a live one, and limits that the load exceeds."""
    return {
        "engines": {
            "dead": {"model": "openai://gone", "base_url": dead},
            "live": {"model": "rehearsal://", "price": PRICE},
        },
        "routes": {"default": ["dead", "live"], "alone": ["dead"]},
        "failover": {"breaker_failures": 4, "breaker_cooldown": 0.2, "max_retries": 1},
        "queue": {"waiting": 0},
        "tenants": {"local": {"requests": "10/3600"}},
    }


async def load(served: RunningServer, number: int) -> None:
    """Send one request of every kind that the dashboard shows."""
    await served.post(chat("Hello"))
    await served.post(chat("Tell a story"), EVENTS)
    await served.post(chat("Please calculate 17*3"))
    await served.post(chat("Please calculate 17*3", mode="plan"))
    await served.post(chat("Hello", model="alone"))
    await served.post(chat(ASK_PERSON, request_id=f"q-{number}"))
    await served.post(b'{"tool_id":"ask_person","payload":"yes"}', path=f"/v1/executions/q-{number}/resume")
    await served.post(b"{}")
    await served.post(chat("Hello"), RESPOND_ASYNC)


def expressions() -> list[str]:
    """Return the queries of the dashboard, and the alerts' expressions with their comparison as a value."""
    queries = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    rules = [rule for group in alerts()["groups"] for rule in group["rules"]]
    compared = [re.subn(r" (==|>) ([\d.]+)$", r" \1 bool \2", rule["expr"]) for rule in rules]
    assert all(replaced == 1 for _, replaced in compared)
    return [query.replace("$__rate_interval", "1m") for query in queries] + [expression for expression, _ in compared]


def alerts() -> Mapping[str, Any]:
    """Return the alert rules."""
    found: Mapping[str, Any] = yaml.safe_load((CONFIGURATION / "alerts.yaml").read_text())
    return found


async def without_data(prometheus: PrometheusServer) -> list[str]:
    """Return the expressions that yield no number."""
    silent = []
    for expression in expressions():
        values = [float(sample["value"][1]) for sample in await prometheus.query(expression)]
        if not [value for value in values if not math.isnan(value)]:
            silent.append(expression)
    return silent


@pytest.mark.usefixtures("real_time")
async def test_each_query_of_the_dashboard_and_each_alert_returns_data(tmp_path: Path) -> None:
    async with (
        closed_port() as dead,
        portico(**configured(dead)) as (served, _),
        prometheus_server(tmp_path, served.port) as prometheus,
    ):
        for number in range(ROUNDS):
            await load(served, number)
            await prometheus.wait_for_scrapes(3)
        assert await without_data(prometheus) == []
        assert {rule["health"] for rule in await prometheus.rules()} == {"ok"}
