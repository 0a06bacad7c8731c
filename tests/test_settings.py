"""Settings: keys, sources, precedence and errors."""

import json
import os
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from portico.domain.failures import Code, ConfigurationFailure
from portico.settings import EngineSettings, ModelUrl, RouteSettings, Secret, Settings, load_settings

ENGINE = '[engines.primary]\nmodel = "openai://gpt-4o-mini"\n'
CANARY = "sk-canary-7d1f"


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(text: str = "", **environ: str) -> Settings:
    Path("given.toml").write_text(text)
    return load_settings(environ, Path("given.toml"), local_model=lambda: None)


def refusal(text: str = "", **environ: str) -> str:
    with pytest.raises(ConfigurationFailure) as caught:
        load(text, **environ)
    assert caught.value.code is Code.CONFIG_INVALID
    return caught.value.message


def test_the_settings_have_the_defaults_of_the_contract() -> None:
    assert json.loads(load_settings({}, local_model=lambda: None).model_dump_json()) == {
        "server": {
            "host": "127.0.0.1",
            "port": 8080,
            "public_url": None,
            "lame_duck_seconds": 0,
            "drain_seconds": 30,
            "max_in_flight": 1000,
            "metrics_host": "127.0.0.1",
            "metrics_port": None,
            "allowed_hosts": ["localhost", "127.0.0.1", "[::1]"],
            "cors_origins": [],
        },
        "storage": {
            "url": "sqlite:///var/portico.db",
            "event_retention_days": 7,
            "answer_retention_days": 90,
            "statement_timeout": 5,
            "replica_timeout": 10,
        },
        "console": {"enabled": True},
        "audit": {"file": None, "reads": "others"},
        "queue": {"waiting": 10_000, "at_once": 1_000, "per_tenant": 500},
        "grammars": {"directory": None},
        "prompts": {"directory": None},
        "memory": {"embedder": None, "dimensions": None},
        "skills": {"directory": None, "budget_tokens": 2000},
        "rules": {"modules": []},
        "flows": {"modules": [], "working_dir": None, "commands": [], "http_timeout": 30},
        "tools": {
            "modules": [],
            "threads": 32,
            "show_exceptions": False,
            "sandbox": {"isolation": "auto", "bubblewrap": "bwrap"},
            "files": None,
            "http_get": None,
            "python": None,
            "code": None,
            "cli": {},
            "http": {},
            "mcp": {},
        },
        "policy": {
            "allow": [],
            "deny": [],
            "approve": [],
            "pre_authorise": [],
            "trusted_output": [],
            "self_approval": True,
            "edit_on_approve": True,
        },
        "channels": {},
        "credentials": {},
        "secrets": {"key_file": None},
        "webhooks": {
            "retry_seconds": [5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400],
            "timeout": 20,
            "allow_private": False,
            "endpoints": {},
        },
        "auth": {
            "mode": "none",
            "bootstrap_key_file": None,
            "bootstrap_key_env": None,
            "bootstrap_tenant": "default",
            "bootstrap_user": "default",
            "issuer": None,
            "audience": None,
            "jwks_url": None,
            "algorithms": ["RS256", "ES256", "EdDSA"],
            "tenant_claim": "tenant",
            "user_claim": "sub",
            "scope_claim": "scope",
            "leeway": 60,
        },
        "ingress": {"approval_wait": 60.0, "waiting": 200, "models": {}},
        "mcp": {
            "enabled": False,
            "expose": ["execute", "agents", "flows"],
            "sessions": "auto",
            "wait": 30,
            "waiting": 200,
            "origins": [],
        },
        "media": {"hosts": ["*"], "private_hosts": [], "max_parts": 8, "max_bytes": 8_388_608, "timeout": 10},
        "sessions": {"compact": False},
        "failover": {
            "max_retries": 1,
            "connect_timeout": 5,
            "attempt_timeout": 120,
            "first_token_timeout": 60,
            "idle_timeout": 30,
            "retry_after_cap": 30,
            "breaker_failures": 5,
            "breaker_window": 30,
            "breaker_cooldown": 15,
            "retry_budget": 0.2,
            "retry_floor": 10,
            "max_deployments": 3,
        },
        "telemetry": {
            "log_level": "info",
            "log_format": "json",
            "currency": "USD",
            "stream_tool_content": True,
            "otlp_endpoint": None,
            "otlp_protocol": "http",
            "otlp_headers_file": None,
            "sample_ratio": 0.05,
            "sample_errors": True,
            "propagate": True,
            "capture_content": False,
        },
        "limits": {
            "body_bytes": 4 * 2**20,
            "json_depth": 64,
            "messages": 1000,
            "tools": 128,
            "concurrent_inferences": 32,
            "tool_rounds": 20,
            "calls_per_reply": 32,
            "tool_calls": 200,
            "tool_result_bytes": 256 * 2**10,
            "upstream_bytes": 32 * 2**20,
            "upstream_line_bytes": 4 * 2**20,
            "attempts": 3,
            "replicas": 16,
            "plan_steps": 50,
            "passes": 20,
            "flow_steps": 500,
            "history_messages": 50,
            "history_tokens": 8_000,
            "timeout": 600,
            "suspension_seconds": 604_800,
            "memory_bytes": 1_073_741_824,
            "schedules": 100,
        },
        "tenants": {},
        "planner": {"kind": "model", "name": None, "steps": []},
        "plan": {"modules": []},
        "engines": {
            "rehearsal": {
                "model": "rehearsal://rehearsal",
                "base_url": None,
                "api_key_env": None,
                "api_key_file": None,
                "context_window": 128000,
                "response_reserve": 4096,
                "options": [],
                "price": None,
                "api": None,
                "capabilities": {},
                "proxy": None,
                "ca_file": None,
                "headers": {},
                "max_connections": 256,
                "prompt_cache": "off",
                "requests": None,
                "tokens": None,
                "cost": None,
                "balance": "least_busy",
                "deployments": {},
                "vendor": None,
                "auth": None,
                "known_as": None,
            }
        },
        "routes": {
            "default": {
                "engines": ["rehearsal"],
                "on": {"context_exceeded": [], "content_filtered": []},
                "on_content_failure": "stay",
            }
        },
        "agents": {},
        "guardrails": {},
    }


def test_settings_without_any_source_have_the_same_defaults() -> None:
    assert Settings() == load_settings({}, local_model=lambda: None)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().server.port = 1


def test_every_key_of_the_contract_can_be_set_in_the_file() -> None:
    settings = load(
        """
        [server]
        host = "::1"
        port = 0
        drain_seconds = 0.5
        allowed_hosts = ["localhost", "*.example.org", "[::1]"]
        [failover]
        breaker_failures = 0
        retry_budget = 1
        [telemetry]
        log_level = "debug"
        [limits]
        tool_rounds = 0
        timeout = 1.5
        [engines.primary]
        model = "openai://gpt-4o-mini"
        base_url = "http://127.0.0.1:9001/v1/"
        context_window = 1000
        response_reserve = 0
        options = ["top_k", "reasoning_effort"]
        price = { input = 0.15, output = 1 }
        [engines.backup]
        model = "rehearsal://twin"
        [routes]
        default = ["backup", "primary"]
        """
    )
    assert (settings.server.host, settings.server.port, settings.server.drain_seconds) == ("::1", 0, 0.5)
    assert settings.server.allowed_hosts == ("localhost", "*.example.org", "[::1]")
    assert (settings.failover.breaker_failures, settings.failover.retry_budget) == (0, 1)
    assert settings.telemetry.log_level == "debug"
    assert (settings.limits.tool_rounds, settings.limits.timeout) == (0, 1.5)
    primary = settings.engines["primary"]
    assert primary.base_url == "http://127.0.0.1:9001/v1"
    assert primary.options == ("top_k", "reasoning_effort")
    assert primary.price is not None
    assert (primary.price.input, primary.price.output) == (0.15, 1)
    assert settings.routes == {"default": RouteSettings(engines=("backup", "primary"))}


class TestSources:
    def test_the_file_in_the_working_directory_is_read(self) -> None:
        Path("portico.toml").write_text("[server]\nport = 9\n")
        assert load_settings({}, local_model=lambda: None).server.port == 9

    def test_portico_config_names_another_file(self, tmp_path: Path) -> None:
        Path("portico.toml").write_text("[server]\nport = 9\n")
        (tmp_path / "other.toml").write_text("[server]\nport = 10\n")
        assert (
            load_settings({"PORTICO_CONFIG": str(tmp_path / "other.toml")}, local_model=lambda: None).server.port == 10
        )
        assert load_settings({"PORTICO_CONFIG": ""}).server.port == 9

    def test_a_given_path_takes_precedence_over_portico_config(self) -> None:
        Path("given.toml").write_text("[server]\nport = 11\n")
        assert load_settings({"PORTICO_CONFIG": "missing.toml"}, Path("given.toml")).server.port == 11

    def test_a_named_file_that_is_missing_is_refused(self) -> None:
        for environ, path in (({"PORTICO_CONFIG": "away.toml"}, None), ({}, Path("away.toml"))):
            with pytest.raises(ConfigurationFailure, match=r"away\.toml cannot be read: No such file"):
                load_settings(environ, path)

    def test_a_syntax_error_is_refused_with_its_line(self) -> None:
        assert "given.toml is not TOML" in refusal("[server]\nport = \n")
        assert "line 2" in refusal("[server]\nport = \n")
        assert "line 3" in refusal("[server]\nport = 1\nport = 2\n")

    def test_bytes_that_are_not_text_are_refused(self) -> None:
        Path("given.toml").write_bytes(b"\xff\xfe")
        with pytest.raises(ConfigurationFailure, match=r"given\.toml is not UTF-8"):
            load_settings({}, Path("given.toml"))

    def test_variables_replace_the_file_and_overrides_replace_both(self) -> None:
        Path("portico.toml").write_text("[server]\nport = 9\ndrain_seconds = 1\n")
        environ = {"PORTICO__SERVER__PORT": "10", "PORTICO__SERVER__HOST": "::1"}
        settings = load_settings(environ, overrides={"server.host": "localhost"})
        assert (settings.server.port, settings.server.host) == (10, "localhost")
        assert settings.server.drain_seconds == 1

    def test_the_process_environment_is_read_when_none_is_given(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PORTICO__SERVER__PORT", "12")
        assert load_settings().server.port == 12


class TestVariables:
    def test_a_variable_is_text_or_json_depending_on_its_key(self) -> None:
        settings = load(
            PORTICO__SERVER__ALLOWED_HOSTS='["a", "b"]',
            PORTICO__SERVER__DRAIN_SECONDS="2.5",
            PORTICO__TELEMETRY__LOG_LEVEL="warning",
            PORTICO__ENGINES__PRIMARY__MODEL="openai://123",
            PORTICO__ENGINES__PRIMARY__PRICE='{"input": 1, "output": 2.5}',
            PORTICO__ENGINES__PRIMARY__PRICE__INPUT="3",
            PORTICO__ENGINES__PRIMARY__OPTIONS='["top_k"]',
            PORTICO__ROUTES__FAST='["primary"]',
            PORTICO__LIMITS='{"messages": 5}',
        )
        assert settings.server.allowed_hosts == ("a", "b")
        assert settings.server.drain_seconds == 2.5
        assert settings.telemetry.log_level == "warning"
        primary = settings.engines["primary"]
        assert (primary.model.model, primary.options) == ("123", ("top_k",))
        assert primary.price is not None
        assert (primary.price.input, primary.price.output) == (3, 2.5)
        assert {name: route.engines for name, route in settings.routes.items()} == {
            "default": ("primary",),
            "fast": ("primary",),
        }
        assert settings.limits.messages == 5

    def test_a_variable_can_extend_a_route_that_is_a_list(self) -> None:
        here = ENGINE + '[routes]\ndefault = ["primary"]'
        settings = load(here, PORTICO__ROUTES__DEFAULT__ON_CONTENT_FAILURE="next")
        assert settings.routes == {"default": RouteSettings(engines=("primary",), on_content_failure="next")}
        settings = load(
            ENGINE,
            PORTICO__ROUTES__FAST='["primary"]',
            PORTICO__ROUTES__FAST__ON_CONTENT_FAILURE="next",
            PORTICO__ROUTES__SLOW='{"engines": ["primary"]}',
        )
        assert {name: route.on_content_failure for name, route in settings.routes.items()} == {
            "default": "stay",
            "fast": "next",
            "slow": "stay",
        }

    def test_a_variable_finds_an_engine_of_the_file_regardless_of_case_and_punctuation(self) -> None:
        settings = load(
            '[engines."GPT-4o.mini"]\nmodel = "rehearsal://"\n', PORTICO__ENGINES__GPT_4O_MINI__MODEL="openai://x"
        )
        assert list(settings.engines) == ["GPT-4o.mini"]
        assert settings.engines["GPT-4o.mini"].model.scheme == "openai"

    def test_an_empty_variable_counts_as_unset(self) -> None:
        file = '[server]\nport = 9\n[engines.a]\nmodel = "rehearsal://"\n'
        settings = load(file, PORTICO__SERVER__PORT="", PORTICO__STORAGE__URL="", PORTICO__SERVER__PROT="", PATH="")
        assert (settings.server.port, settings.storage, settings.child_environment) == (9, load().storage, {})

    def test_a_key_without_its_table_is_named_with_the_table(self) -> None:
        assert refusal("port = 1") == "port is not known; did you mean [server] port?"
        assert refusal("prot = 1").startswith("prot is not known; did you mean p")

    @pytest.mark.parametrize(
        ("variable", "value", "expected"),
        [
            ("PORTICO__SERVER__PORT", "high", "PORTICO__SERVER__PORT: server.port must be JSON, of type integer"),
            ("PORTICO__SERVER__ALLOWED_HOSTS", "a,b", "server.allowed_hosts must be JSON, of type array"),
            ("PORTICO__LIMITS", "[" * 100_000, "limits must be JSON, of type object"),
            ("PORTICO__SERVER__PORT", "true", "server.port: must be a whole number"),
            ("PORTICO__SERVER__PORT", '"80"', "server.port: must be a whole number"),
            ("PORTICO__LIMITS__TIMEOUT", "NaN", "limits.timeout: must be"),
            ("PORTICO__SERVER", "3", "server: must be a table"),
            ("PORTICO__SERVER__PROT", "1", "PORTICO__SERVER__PROT: server.prot is not known; did you mean server.port"),
            ("PORTICO__SERVR__PORT", "1", "PORTICO__SERVR__PORT: servr.port is not known; did you mean server.port?"),
            ("PORTICO__ENGINES__A__MODLE", "x", "engines.a.modle is not known; did you mean engines.a.model?"),
            ("PORTICO__ENGINES__A__PRICE__OUTPT", "x", "did you mean engines.a.price.output?"),
            ("PORTICO__SERVER__LOG_LEVEL", "x", "server.log_level is not known; did you mean telemetry.log_level?"),
            ("PORTICO__STORAGE__URL", "x", "storage.url: must be sqlite:///path/to/a/file"),
            ("PORTICO__STORAGE__URL", "sqlite:///", "storage.url: must be sqlite:///path/to/a/file"),
            ("PORTICO__STORAGE__URL", "postgresql://u@h", "storage.url: must be sqlite:///path/to/a/file or postgresql://"),
            ("PORTICO__STORAGE__EVENT_RETENTION_DAYS", "0", "storage.event_retention_days: must be"),
            ("PORTICO__", "x", "is not known; did you mean"),
        ],
    )  # fmt: skip
    def test_an_invalid_variable_is_refused_by_name(self, variable: str, value: str, expected: str) -> None:
        assert expected in refusal(**{variable: value})

    @pytest.mark.parametrize("variable", ["PORTICO_SERVER_PORT", "PORTICO_SERVER__PORT"])
    def test_a_variable_with_one_underscore_is_a_warning_with_the_right_name(self, variable: str) -> None:
        settings = load(**{variable: "tcp://10.0.0.1:80"})
        assert settings.server.port == 8080
        assert settings.warnings == (f"the variable {variable} is ignored; PORTICO__SERVER__PORT sets server.port",)

    def test_other_variables_of_kubernetes_are_no_warning(self) -> None:
        settings = load(PORTICO_SERVICE_HOST="10.0.0.1", PORTICO_PORT="tcp://10.0.0.1:80", PORTICO__SERVER__PORT="9")
        assert settings.warnings == ()

    def test_a_stop_that_takes_longer_than_ten_minutes_is_a_warning(self) -> None:
        lame_duck = {"PORTICO__SERVER__LAME_DUCK_SECONDS": "300"}
        assert load(**lame_duck, PORTICO__SERVER__DRAIN_SECONDS="298").warnings == ()
        long = load(**lame_duck, PORTICO__SERVER__DRAIN_SECONDS="299").warnings
        assert long == ("a stop takes up to 601 s: server.lame_duck_seconds, server.drain_seconds and 2 more",)
        assert "server.lame_duck_seconds: must be at most 300" in refusal(PORTICO__SERVER__LAME_DUCK_SECONDS="301")

    def test_variables_without_the_prefix_are_ignored(self) -> None:
        assert load(PORTICO_HOME="/x", portico__server__prot="1", HOME="/bin") == load()


class TestUnknownKeys:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("[servr]\nport = 1", "servr is not known; did you mean server?"),
            ("prot = 1", "prot is not known; did you mean"),
            ("[server]\nprot = 1", "server.prot is not known; did you mean server.port?"),
            ("[failover]\nmax_retry = 1", "failover.max_retry is not known; did you mean failover.max_retries?"),
            ("[limits]\nbody = 1", "limits.body is not known; did you mean limits.body_bytes?"),
            ("[auth]\nmod = 1", "auth.mod is not known; did you mean auth.mode?"),
            (f"{ENGINE}base = 1", "engines.primary.base is not known; did you mean engines.primary.base_url?"),
            (
                f"{ENGINE}[engines.primary.deployments.x]\nwieght = 2",
                "did you mean engines.primary.deployments.x.weight?",
            ),
            ("[webhooks.endpoints.team]\nevnts = []", "did you mean webhooks.endpoints.team.events?"),
            (f"{ENGINE}price = {{ input = 1, output = 1, outptu = 1 }}", "did you mean engines.primary.price.output?"),
        ],
    )
    def test_an_unknown_key_is_refused_with_the_most_similar_known_one(self, text: str, expected: str) -> None:
        assert expected in refusal(text)

    def test_a_misspelt_key_has_one_error(self) -> None:
        assert refusal('[engines.primary]\nmodle = "openai://x"').split("; ") == [
            "engines.primary.model: is required",
            "engines.primary.modle is not known", "did you mean engines.primary.model?",
        ]  # fmt: skip

    def test_all_errors_are_reported_at_once(self) -> None:
        with pytest.raises(ConfigurationFailure) as caught:
            load("[server]\nport = -1\nprot = 2\n")
        expected = caught.value.details["errors"]
        assert [error.split()[0] for error in expected] == ["server.port:", "server.prot"]

    @pytest.mark.parametrize(
        ("setting", "error"),
        [
            ('otlp_endpoint = "collector:4318"', "otlp_endpoint: must be an http or https URL"),
            ('otlp_endpoint = "http://c?key=1"', "otlp_endpoint: must be an http or https URL"),
            ('otlp_protocol = "udp"', "otlp_protocol: must be 'http' or 'grpc'"),
            ('otlp_headers_file = "/nowhere"', "otlp_headers_file: names a file that cannot be read"),
            ("sample_ratio = 1.01", "sample_ratio: must be at most 1"),
            ("sample_ratio = -0.1", "sample_ratio: must be at least 0"),
        ],
    )
    def test_a_wrong_setting_of_traces_is_refused_by_name(self, setting: str, error: str) -> None:
        assert f"telemetry.{error}" in refusal(f"[telemetry]\n{setting}")

    def test_a_whole_number_is_a_ratio_of_samples(self) -> None:
        assert load("[telemetry]\nsample_ratio = 1").telemetry.sample_ratio == 1

    def test_a_currency_is_its_iso_code(self) -> None:
        assert load('[telemetry]\ncurrency = "EUR"').telemetry.currency == "EUR"
        assert "telemetry.currency: must match the pattern" in refusal('[telemetry]\ncurrency = "euro"')


PLANNER = '[planner]\nkind = "static"\n[[planner.steps]]\nname = "a"\ntype = "infer"\n'


class TestPlanner:
    def test_the_static_plan_has_the_steps_of_the_file(self) -> None:
        text = PLANNER + 'attempts = 2\n[[planner.steps]]\nname = "b"\ntype = "tool"\ndepends_on = []\n'
        settings = load(text + 'input = { name = "roll_dice", arguments = { count = 1 } }')
        first, second = settings.planner.steps
        assert (first.name, first.type, first.model_extra) == ("a", "infer", {"attempts": 2})
        assert (second.depends_on, second.input) == ([], {"name": "roll_dice", "arguments": {"count": 1}})

    def test_the_steps_of_a_plan_may_come_from_a_variable(self) -> None:
        given = {"PORTICO__PLANNER__KIND": "static", "PORTICO__PLANNER__STEPS": '[{"name": "a", "type": "infer"}]'}
        assert [step.name for step in load(**given).planner.steps] == ["a"]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ('[planner]\nkind = "static"', "planner.steps: must be at least 1"),
            ('[planner]\nkind = "fixed"', "planner.kind: must be 'model', 'static' or 'module'"),
            (PLANNER.replace("static", "model"), 'planner.steps: has no meaning while planner.kind is "model"'),
            (
                '[planner]\nkind = "module"',
                'planner.name: must name a planner if planner.kind is "module", and only then',
            ),
            (
                '[planner]\nname = "mine"',
                'planner.name: must name a planner if planner.kind is "module", and only then',
            ),
            (PLANNER.replace('"infer"', '"zork"'), "planner.steps.0.type: must be one of infer, tool, retrieve"),
            (PLANNER.replace('name = "a"\n', ""), "planner.steps.0.name: is required"),
            (PLANNER + "attempts = 4", "planner.steps.0.attempts: must be at most 3"),
            (PLANNER + 'depends_on = ["b"]', "planner.steps.0.depends_on: there is no step 'b'"),
            (PLANNER + "input = 1", "planner.steps.0.input: must be a string, or an object with messages"),
            (PLANNER + '[[planner.steps]]\nname = "b"\ntype = "tool"', "planner.steps.1.input: must be an object with"),
            (PLANNER + '[[planner.steps]]\nname = "a"\ntype = "infer"', "planner.steps.1.name: stands twice"),
            (
                PLANNER + '[[planner.steps]]\nname = "b"\ntype = "infer"\n[limits]\nplan_steps = 1',
                "planner.steps: must",
            ),
            (PLANNER + "input = { at = 2026-11-22 }", "planner.steps.0.input"),
            (PLANNER + "input = { at = [nan] }", "planner.steps: must be JSON; steps.0 is not"),
            (PLANNER + f"input = {{ at = {10**30} }}", "planner.steps: must be JSON; steps.0 is not"),
            ("[limits]\nplan_steps = 0", "limits.plan_steps: must be at least 1"),
        ],
    )
    def test_a_plan_that_cannot_run_is_refused_by_its_step(self, text: str, expected: str) -> None:
        assert expected in refusal(text)

    def test_an_error_of_the_planner_does_not_quote_the_value(self) -> None:
        text = PLANNER + f'attempts = "{CANARY}"\ncolour = 1\n[[planner.steps]]\nname = "b"\ntype = "{CANARY}"'
        assert CANARY not in refusal(text)


class TestContradictions:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (
                ENGINE + '[routes]\ndefault = ["primry"]',
                "routes.default.engines.0: must name an engine; did you mean primary?",
            ),
            (
                ENGINE + '[routes]\ndefault = ["primary", "primary"]',
                "routes.default.engines: must not name an engine twice",
            ),
            (
                '[engines.a]\nmodel = "gemini://gemini-2.5-flash"\nprompt_cache = "auto"',
                "engines.a.prompt_cache: has no meaning for gemini://",
            ),
            (
                '[engines.a]\nmodel = "openai://m"\ndeployments = {}',
                "engines.a.deployments: must have a table for each deployment, as [engines.NAME.deployments.KEY]",
            ),
            (
                '[engines.a]\nmodel = "openai://m"\nbalance = "priority"',
                "engines.a.balance: has no meaning without engines.a.deployments",
            ),
            (
                '[engines.a]\nmodel = "openai://m"\n[engines.a.deployments.b]\n[engines.a.deployments.c]\nweight = 2',
                "engines.a.deployments.c: must differ from engines.a.deployments.b in its model, address, key",
            ),
            (
                '[engines.a]\nmodel = "rehearsal://"\n[engines.a.deployments.b]',
                "engines.a.deployments: has no meaning for rehearsal://",
            ),
            (
                '[engines.a]\nmodel = "rehearsal://"\nrequests = "1/1"',
                "engines.a.requests: has no meaning for rehearsal://",
            ),
            (
                '[engines.a]\nmodel = "openai://m"\n[engines.a.deployments.b]\nmodel = "rehearsal://"',
                "engines.a.deployments.b.model: must be the model of a provider, not rehearsal://",
            ),
            (
                '[engines.a]\nmodel = "gemini://m"\n[engines.a.deployments.b]\napi = "responses"',
                "engines.a.deployments.b.api: has no meaning for gemini://",
            ),
            (
                '[engines.a]\nmodel = "openai://m"\n[engines.a.deployments.b]\nwieght = 2',
                "engines.a.deployments.b.wieght",
            ),
            (
                '[engines.a]\nmodel = "gemini://gemini-2.5-flash"\nvendor = "groq"',
                "engines.a.vendor: has no meaning for gemini://",
            ),
            (
                '[engines.a]\nmodel = "openai://m"\nauth = "entra"',
                "engines.a.auth: has no meaning for openai://",
            ),
            (
                '[engines.a]\nmodel = "openai://m"\nvendor = "grok"',
                "engines.a.vendor: is not known; did you mean groq?",
            ),
            (
                '[engines.a]\nmodel = "openai://m"\nknown_as = "anthropic://claude-opus-4-55"',
                "engines.a.known_as: is not a known model; did you mean anthropic://claude-opus-4-5",
            ),
            (
                '[engines.a]\nmodel = "openai://m"\nknown_as = "ollama:///m"',
                "engines.a.known_as: is not a known model; none of ollama:// is known",
            ),
            (ENGINE + "[routes]\ndefault = []", "routes.default.engines: must name an engine"),
            (ENGINE + '[routes]\ndefault = "primary"', "routes.default: must be a list of engines"),
            (ENGINE + "[routes]\ndefault = 3", "routes.default: must be a list of engines"),
            (ENGINE + "[routes]\ndefault = [3]", "routes.default.engines.0: must be a string"),
            (ENGINE + '[routes.default]\non_content_failure = "next"', "routes.default.engines: is required"),
            (
                ENGINE + '[routes]\ndefault = { engines = ["primary"], on_content_failure = "move" }',
                "routes.default.on_content_failure: must be 'stay' or 'next'",
            ),
            (
                ENGINE + '[routes]\nfast = { engines = ["primary"], on_content = "next" }',
                "routes.fast.on_content is not known; did you mean routes.fast.on_content_failure?",
            ),
            (
                ENGINE + '[routes]\nfast = { engines = ["primary"], on = { context_exceded = ["primary"] } }',
                "routes.fast.on.context_exceded is not known; did you mean routes.fast.on.context_exceeded?",
            ),
            (
                ENGINE + '[routes]\nfast = { engines = ["primary"], on = { content_filtered = ["primry"] } }',
                "routes.fast.on.content_filtered.0: must name an engine; did you mean primary?",
            ),
            (
                ENGINE + '[routes]\nfast = { engines = ["primary"], on = { context_exceeded = [] } }',
                "routes.fast.on.context_exceeded: must name an engine",
            ),
            (ENGINE + '[routes]\nprimary = ["primary"]', "routes.primary: must not have the name of engines.primary"),
            ('[engines.default]\nmodel = "rehearsal://"', "routes.default: must not have the name of engines.default"),
            (ENGINE + '[routes]\n"a b" = ["primary"]', "routes.a b: must match the pattern"),
            ('[engines."a b"]\nmodel = "rehearsal://"', "engines.a b: must match the pattern"),
            (f'[engines.{"a" * 65}]\nmodel = "rehearsal://"', "must match the pattern"),
            (ENGINE + "response_reserve = 128000", "engines.primary.response_reserve: must be less than"),
            (ENGINE + 'options = ["a", "a"]', "engines.primary.options: must not name an option twice"),
            (ENGINE + "price = { input = 1 }", "engines.primary.price.output: is required"),
            (ENGINE + "price = { input = -1, output = 1 }", "engines.primary.price.input: must be at least"),
            (ENGINE + "price = { input = nan, output = 1 }", "engines.primary.price.input: must be a finite number"),
            ("[engines.primary]\noptions = []", "engines.primary.model: is required"),
            ('[engines.a]\nmodel = "rehearsal://"\nbase_url = "http://x"', "engines.a.base_url: has no meaning for"),
            (ENGINE + "capabilities = { schemas = true }", "is not known; did you mean schema?"),
            (ENGINE + "capabilities = { schema = 1 }", "engines.primary.capabilities.schema: must be true or false"),
            (ENGINE + 'api = "completions"', "engines.primary.api: must be 'chat_completions' or 'responses'"),
            ('[engines.a]\nmodel = "gemini://x"\napi = "responses"', "engines.a.api: has no meaning for gemini://"),
            ("engines = 3", "engines: must be a table"),
            ("[server]\nport = 70000", "server.port: must be at most 65535"),
            ('[server]\nport = "80"', "server.port: must be a whole number"),
            ("[server]\nmax_in_flight = 0", "server.max_in_flight: must be at least 1"),
            ('[server]\nallowed_hosts = ["a*"]', "server.allowed_hosts.0: must match the pattern"),
            ("[limits]\ntools = 129", "limits.tools: must be at most 128"),
            ("[limits]\ntimeout = 0", "limits.timeout: must be more than 0"),
            ("[failover]\nretry_budget = 1.5", "failover.retry_budget: must be at most 1"),
        ],
    )
    def test_a_contradiction_is_refused_by_name(self, text: str, expected: str) -> None:
        assert expected in refusal(text)

    @pytest.mark.parametrize("host", ["0.0.0.1", "::", "192.168.0.1", "example.org", ""])
    def test_without_authentication_only_loopback_is_allowed(self, host: str) -> None:
        for engines in (ENGINE, "", "[engines]\n"):
            assert refusal(f'{engines}[server]\nhost = "{host}"').startswith("server.host: must be loopback")

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1"])  # noqa: S104 - that is the point
    def test_with_authentication_a_public_listener_is_allowed_and_needs_an_engine(self, host: str) -> None:
        text = f'[server]\nhost = "{host}"\n[auth]\nmode = "keys"\n'
        assert load(text + ENGINE).allowed_hosts == ("*",)
        with pytest.raises(ConfigurationFailure) as caught:
            load(text)
        assert caught.value.code is Code.CONFIG_NO_ENGINE

    def test_hosts_that_are_named_stay_the_only_ones_with_authentication(self) -> None:
        text = '[server]\nallowed_hosts = ["example.org"]\n[auth]\nmode = "keys"\n'
        assert load(text).allowed_hosts == ("example.org",)
        assert load("").allowed_hosts == ("localhost", "127.0.0.1", "[::1]")

    @pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
    def test_loopback_is_accepted(self, host: str) -> None:
        assert load(f'[server]\nhost = "{host}"').server.host == host

    def test_by_default_only_the_names_of_loopback_are_accepted_as_host(self) -> None:
        names = ("localhost", "127.0.0.1", "[::1]")
        for host in ("127.0.0.1", "::1", "localhost"):
            assert load(f'[server]\nhost = "{host}"').server.allowed_hosts == names
        assert load('[server]\nhost = "127.1.2.3"').server.allowed_hosts == (*names, "127.1.2.3")
        assert load('[server]\nallowed_hosts = ["*"]').server.allowed_hosts == ("*",)


class TestNamesOfAccess:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ('[tenants.a]\nmodels = ["rehearsl"]', "tenants.a.models.0: must name one of default, rehearsal"),
            ('[tenants.a]\nagents = ["x"]', "tenants.a.agents.0: must name one of none"),
            ('[policy]\ndeny = [{ tool = "a", agent = "x" }]', "policy.deny.0.agent: must name one of none"),
        ],
    )
    def test_a_model_or_an_agent_that_is_not_there_is_refused(self, text: str, message: str) -> None:
        assert message in refusal(text)

    def test_a_prefix_stands_for_what_may_come(self) -> None:
        load('[tenants.a]\nmodels = ["x*"]\nagents = ["*"]\n[policy]\ndeny = [{ tool = "a", agent = "x*" }]')


class TestDefaultEngine:
    def test_an_openai_credential_selects_an_openai_engine(self) -> None:
        settings = load(OPENAI_API_KEY=CANARY, ANTHROPIC_API_KEY="x", GEMINI_API_KEY="x")
        engine = settings.engines["openai"]
        assert engine.model == ModelUrl("openai", "gpt-4o-mini")
        assert engine.api_key.read() == CANARY
        assert settings.routes["default"].engines == ("openai",)
        assert settings.model_of("openai") == "gpt-4o-mini (from OPENAI_API_KEY)"
        assert not settings.is_rehearsal

    @pytest.mark.parametrize(
        ("given", "name"),
        [
            ({"ANTHROPIC_API_KEY": CANARY, "GEMINI_API_KEY": "x", "OPENAI_API_KEY": ""}, "anthropic"),
            ({"GEMINI_API_KEY": CANARY}, "gemini"),
        ],
    )
    def test_otherwise_the_credential_of_another_provider_selects_the_engine(
        self, given: dict[str, str], name: str
    ) -> None:
        settings = load(**given)
        assert list(settings.engines) == [name]
        assert settings.engines[name].model.scheme == name
        assert settings.engines[name].api_key.read() == CANARY

    def test_without_a_credential_an_ollama_server_is_used_and_otherwise_rehearsal(self) -> None:
        found = load_settings({}, local_model=lambda: "qwen3:8b")
        assert found.engines["ollama"].model == ModelUrl("ollama", "qwen3:8b")
        assert found.model_of("ollama") == "qwen3:8b (from the Ollama server of this machine)"
        assert not found.is_rehearsal
        assert load().is_rehearsal
        with_key = load_settings({"GEMINI_API_KEY": "x"}, local_model=lambda: "qwen3:8b")
        assert list(with_key.engines) == ["gemini"]

    def test_no_engine_is_added_to_the_configured_ones(self) -> None:
        settings = load('[engines.b]\nmodel = "rehearsal://"\n[engines.a]\nmodel = "rehearsal://"', OPENAI_API_KEY="x")
        assert settings.routes["default"].engines == ("b", "a")
        assert not settings.is_rehearsal

    def test_rehearsal_is_not_chosen_with_an_engines_table(self) -> None:
        with pytest.raises(ConfigurationFailure) as caught:
            load("[engines]")
        assert caught.value.code is Code.CONFIG_NO_ENGINE


class TestModelUrls:
    @pytest.mark.parametrize(
        ("text", "url"),
        [
            ("openai://gpt-4o-mini", ModelUrl("openai", "gpt-4o-mini")),
            ("openai://openai/gpt-oss-120b", ModelUrl("openai", "openai/gpt-oss-120b")),
            ("openai://qwen3:8b", ModelUrl("openai", "qwen3:8b")),
            ("openai://@cf/meta/llama?x#y", ModelUrl("openai", "@cf/meta/llama?x#y")),
            ("rehearsal://", ModelUrl("rehearsal", "rehearsal")),
            ("rehearsal://twin", ModelUrl("rehearsal", "twin")),
            ("scripted:///a/replies.json", ModelUrl("scripted", "/a/replies.json")),
            ("anthropic://claude-sonnet-4-5", ModelUrl("anthropic", "claude-sonnet-4-5")),
            ("gemini://gemini-2.5-flash", ModelUrl("gemini", "gemini-2.5-flash")),
            ("ollama://localhost:11434/qwen3:8b", ModelUrl("ollama", "qwen3:8b", "localhost:11434")),
            ("ollama://[::1]:11434/hf.co/a/b:Q4", ModelUrl("ollama", "hf.co/a/b:Q4", "[::1]:11434")),
            ("ollama:///qwen3:8b", ModelUrl("ollama", "qwen3:8b")),
            ("llamacpp:///models/tiny.gguf", ModelUrl("llamacpp", "/models/tiny.gguf")),
        ],
    )
    def test_a_model_url_names_scheme_and_model(self, text: str, url: ModelUrl) -> None:
        engine = EngineSettings.model_validate({"model": text})
        assert engine.model == url
        assert ModelUrl.parse(str(engine.model)) == url

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("gpt-4o", "must be a model URL"),
            (
                "://x",
                "must begin with one of openai://, anthropic://, gemini://, azure://, bedrock://, vertex://, ollama://",
            ),
            ("openia://x", "must begin with one of"),
            ("azure://mine", "must be azure://RESOURCE/MODEL"),
            ("azure://evil.example/mine", "must be azure://RESOURCE/MODEL"),
            ("azure:///mine", "must be azure://RESOURCE/MODEL"),
            ("bedrock://amazon.nova-pro-v1:0", "must be bedrock://REGION/MODEL"),
            ("vertex://project/gemini-3-flash", "must be vertex://PROJECT/LOCATION/MODEL"),
            ("vertex://project/us@evil.example/gemini-3-flash", "must be vertex://PROJECT/LOCATION/MODEL"),
            ("vertex://project/global/", "must be vertex://PROJECT/LOCATION/MODEL"),
            ("OPENAI://x", "must begin with one of"),
            ("openai://", "must name a model"),
            ("openai://a b", "visible ASCII"),
            ("openai://gpt-4о", "visible ASCII"),  # noqa: RUF001 - the last letter is Cyrillic
            ("openai://" + "x" * 257, "at most 256"),
            ("scripted://replies.json", "absolute path"),
            ("scripted:///", "absolute path"),
            ("anthropic://", "must name a model after anthropic://"),
            ("gemini://", "must name a model after gemini://"),
            ("ollama://qwen3:8b", "must be ollama://host:port/model"),
            ("ollama://host:99999/x", "must be ollama://host:port/model"),
            ("ollama://u:p@host:1/x", "must be ollama://host:port/model"),
            ("ollama://host:11434/", "must be ollama://host:port/model"),
            ("llamacpp://x.gguf", "must be llamacpp:// and the absolute path"),
        ],
    )
    def test_other_urls_are_refused_by_name(self, text: str, expected: str) -> None:
        message = refusal(f'[engines.a]\nmodel = "{text}"')
        assert message.startswith("engines.a.model: ")
        assert expected in message

    @pytest.mark.parametrize(
        "url",
        ["ftp://x", "//x", "http://", "http://x:y", "http://x/?k=v", "http://x/#f", "http://x/a b", "http://u:p@x"],
    )
    def test_a_base_url_is_plain(self, url: str) -> None:
        assert refusal(f'{ENGINE}base_url = "{url}"').startswith("engines.primary.base_url: must ")


class TestSecrets:
    def load_file(self, path: Path) -> Secret:
        return load(f'{ENGINE}api_key_file = "{path}"').engines["primary"].api_key

    def test_a_credential_is_read_from_the_named_variable(self) -> None:
        secret = load(f'{ENGINE}api_key_env = "MY_KEY"', MY_KEY=f" {CANARY}\n").engines["primary"].api_key
        assert secret.read() == CANARY

    def test_without_a_source_the_credential_is_empty(self) -> None:
        assert load(ENGINE).engines["primary"].api_key.read() is None

    def test_a_rotated_file_is_read_again(self, tmp_path: Path) -> None:
        path = tmp_path / "key"
        path.write_text("first\n")
        secret = self.load_file(path)
        assert secret.read() == "first"
        path.write_text("other\n")
        os.utime(path, ns=(1, 1))
        assert secret.read() == "other"

    def test_a_file_replaced_by_a_link_swap_is_read_again(self, tmp_path: Path) -> None:
        for number in (1, 2):
            (tmp_path / f"key{number}").write_text(f"key-{number}")
            os.utime(tmp_path / f"key{number}", ns=(1, 1))
        link = tmp_path / "key"
        link.symlink_to("key1")
        secret = self.load_file(link)
        assert secret.read() == "key-1"
        (tmp_path / "new").symlink_to("key2")
        (tmp_path / "new").rename(link)
        assert secret.read() == "key-2"

    @pytest.mark.parametrize("halfway", [None, "", "two words", "\xff"])
    def test_the_previous_secret_is_used_during_a_rotation(self, tmp_path: Path, halfway: str | None) -> None:
        path = tmp_path / "key"
        path.write_text("first")
        secret = self.load_file(path)
        path.unlink()
        if halfway is not None:
            path.write_bytes(halfway.encode("latin-1"))
        assert secret.read() == "first"
        path.unlink(missing_ok=True)
        path.write_text("second-one")
        assert secret.read() == "second-one"

    @pytest.mark.parametrize(
        ("key", "environ", "expected"),
        [
            (f'api_key_env = "{CANARY}"', {}, "api_key_env: the variable of that name is not set"),
            ('api_key_env = "SK7F3A9D12BEEF4C5D"', {}, "api_key_env: the variable of that name is not set"),
            ('api_key_env = "OPENAI_API_KEY"', {}, "api_key_env: the variable OPENAI_API_KEY is not set"),
            ('api_key_env = "KEY"', {"KEY": ""}, "api_key_env: the variable KEY is not set"),
            (
                'api_key_env = "KEY"',
                {"KEY": f"{CANARY}\nX-Evil: 1"},
                "api_key_env: the variable KEY must contain one word",
            ),
            ("api_key_env = 3", {}, "api_key_env: must be the name of a variable"),
            (f'api_key_file = "{CANARY}"', {}, "api_key_file: names a file that cannot be read"),
            ('api_key_file = "."', {}, "api_key_file: names a file that cannot be read: Is a directory"),
            ('api_key_file = ""', {}, "api_key_file: must be the path of a file"),
            ('api_key_file = "\\u0000"', {}, "api_key_file: must be the path of a file"),
            (f'api_key = "{CANARY}"', {}, "api_key: must not contain a secret; name its variable in api_key_env"),
            (f'base_url = "https://user:{CANARY}@example.org"', {}, "base_url: must not contain a user or a password"),
            (f'model = "{CANARY}"', {}, "model: must be a model URL"),
        ],
    )
    def test_an_error_of_a_secret_names_the_key_and_never_the_value(
        self, key: str, environ: Mapping[str, str], expected: str
    ) -> None:
        text = key if key.startswith("model") else f'model = "openai://x"\n{key}'
        with pytest.raises(ConfigurationFailure) as caught:
            load(f"[engines.primary]\n{text}", **environ)
        shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value.details)
        assert f"engines.primary.{expected}" in shown
        assert CANARY not in shown

    def test_a_secret_in_a_portico_variable_is_refused_without_its_value(self) -> None:
        message = refusal(ENGINE, PORTICO__ENGINES__PRIMARY__API_KEY=CANARY)
        assert "PORTICO__ENGINES__PRIMARY__API_KEY: engines.primary.api_key: must not contain a secret" in message
        assert CANARY not in message

    @pytest.mark.parametrize(
        "url",
        [
            f"postgresql://u:{CANARY}@h/d",
            f"postgresql://u:@h/d?password={CANARY}",
            f"postgresql:///d?password={CANARY}",
        ],
    )
    def test_a_password_of_the_database_does_not_stand_in_the_file(self, url: str) -> None:
        message = refusal(f'[storage]\nurl = "{url}"')
        assert message.startswith("storage.url: must not contain a password; set PORTICO__STORAGE__URL, PGPASSWORD or")
        assert CANARY not in message
        assert load(PORTICO__STORAGE__URL=url).storage.url == url
        assert load('[storage]\nurl = "postgresql://u@h/d"', PGPASSWORD=CANARY).storage.url == "postgresql://u@h/d"

    def test_two_sources_of_a_credential_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "key").write_text("x")
        text = f'{ENGINE}api_key_env = "KEY"\napi_key_file = "{tmp_path / "key"}"'
        assert (
            refusal(text, KEY="x")
            == "engines.primary.api_key_file: must not be set together with engines.primary.api_key_env"
        )

    def test_no_view_of_the_settings_shows_a_secret(self, tmp_path: Path) -> None:
        (tmp_path / "key").write_text(CANARY)
        text = f'[engines.a]\nmodel = "openai://x"\napi_key_file = "{tmp_path / "key"}"\n{ENGINE}api_key_env = "KEY"'
        settings = load(text, KEY=CANARY)
        views: list[Any] = [settings, settings.engines, settings.model_dump(), settings.engines["a"].api_key]
        for view in views:
            assert CANARY not in f"{view!r} {view!s}"
        assert CANARY not in settings.model_dump_json()
