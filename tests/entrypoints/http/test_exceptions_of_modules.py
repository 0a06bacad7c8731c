"""Exceptions of tools, steps, rules, planners and nodes of a deployment: found in the log, and nowhere else."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from portico.domain.access.principal import KEY_DEFAULT, Permission
from portico.domain.raised_exception import CodeKind
from tests.support.broken_modules import SECRET
from tests.support.callers import callers
from tests.support.portico import EVENTS, chat, events, portico

MODULE = "tests.support.broken_modules"
MODULES = {
    "tools": {"modules": [MODULE]},
    "plan": {"modules": [MODULE]},
    "rules": {"modules": [MODULE]},
    "flows": {"modules": [MODULE]},
    "telemetry": {"log_level": "warning"},
}
CANARY = "amount-canary"
RAISED: dict[CodeKind, tuple[str, str, dict[str, Any]]] = {
    CodeKind.TOOL: ("look_up", "look_up", {"tools": ["look_up"]}),
    CodeKind.STEP: (
        "find_order",
        "find_order",
        {"mode": "plan", "plan": {"steps": [{"name": "a", "type": "find_order", "input": "7"}]}},
    ),
    CodeKind.RULE: (
        "has_amount",
        "has_amount",
        {"tools": [], "output": {"rules": ["has_amount"]}, "limits": {"attempts": 1}},
    ),
    CodeKind.PLANNER: ("by_amount", "by_amount", {"mode": "plan"}),
    CodeKind.NODE: ("Order", "charge", {"mode": "flow", "flow": {"name": "pay", "input": {"number": 7}}}),
}
"""By kind of code: the name in the log, the function that raises, and a request that runs it."""


def logged(capture: pytest.CaptureFixture[str], name: str) -> list[dict[str, Any]]:
    lines = [orjson.loads(line) for line in capture.readouterr().err.splitlines() if line.startswith("{")]
    assert [line for line in lines if CANARY in str(line) and line["event"] != name] == []
    return [line for line in lines if line["event"] == name]


@pytest.mark.parametrize("kind", CodeKind)
@pytest.mark.parametrize("store", [True, False])
async def test_an_exception_is_one_line_of_the_log_and_its_text_is_nowhere_else(
    capfd: pytest.CaptureFixture[str], kind: CodeKind, *, store: bool
) -> None:
    name, function, request = RAISED[kind]
    planner = {"planner": {"kind": "module", "name": "by_amount"}} if kind is CodeKind.PLANNER else {}
    async with portico(**MODULES, **planner) as (served, _):
        answer = await served.post(chat('Use look_up: order="7"', request_id="q", store=store, **request), EVENTS)
        paths = [f"/v1/executions/q{part}" for part in ("", "/events", "/trace", "/transcript")]
        shown = [answer.body, *[(await served.get(path)).body for path in (*paths, "/metrics")]]
    assert all(CANARY.encode() not in body for body in shown)
    [line] = logged(capfd, f"{kind}_exception")
    response = events(answer)[-1]["response"]
    assert (line["level"], line[kind], line["type"]) == ("error", name, "KeyError")
    assert line["frames"].startswith(f"KeyError in {function} ")
    assert (line["request_id"], line["trace_id"]) == ("q", response["trace_id"])
    text = line["text"]
    if store:
        assert text.startswith(f"'{CANARY} [redacted:")
        assert len(text) == 300
    else:
        assert text is None
    assert SECRET not in str(line)


@pytest.mark.parametrize("kind", CodeKind)
async def test_the_step_shows_what_its_code_raised_to_who_may_view_the_full_history(
    tmp_path: Path, kind: CodeKind
) -> None:
    _, function, request = RAISED[kind]
    grants = {
        "ada": ("red", "ada", [*KEY_DEFAULT.names, Permission.VIEW_FULL_HISTORY]),
        "viewer": ("red", "viewer", ["can_view_tenant", "can_send_messages", "model:*"]),
    }
    planner = {"planner": {"kind": "module", "name": "by_amount"}} if kind is CodeKind.PLANNER else {}
    async with callers(tmp_path, grants, **MODULES, **planner) as (by_name, _):
        await by_name["ada"].execute(chat('Use look_up: order="7"', request_id="q", **request))
        whole, redacted = [await by_name[name].get("/v1/executions/q/steps") for name in ("ada", "viewer")]
    raised, *_ = [each["exception"] for each in whole.json["data"] if "exception" in each]
    assert raised["type"] == "KeyError"
    assert raised["message"].startswith(f"'{CANARY}")
    assert len(raised["message"]) <= 2_000
    assert raised["frames"][-1].startswith(f"{function} ")
    assert all(CANARY not in str(each["outcome"]) for each in whole.json["data"])
    assert redacted.status == 200
    assert CANARY.encode() not in redacted.body


@pytest.mark.parametrize("shown", [True, False])
async def test_a_model_reads_the_text_of_an_exception_only_if_that_is_configured(shown: bool) -> None:
    tools = {**MODULES["tools"], "show_exceptions": shown}
    async with portico(**{**MODULES, "tools": tools}) as (served, _):
        answer = await served.post(chat('Use look_up: order="7"', tools=["look_up"]))
    [call] = answer.json["tool_calls_made"]
    assert call["result"].startswith("The tool failed: KeyError")
    assert (CANARY in call["result"]) is shown


async def test_a_rule_for_the_input_is_logged_with_the_id_that_the_client_gave(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with portico(**MODULES) as (served, _):
        answer = await served.post(chat("Hello", request_id="q", input={"rules": ["has_amount"]}))
    assert answer.status == 422
    assert CANARY.encode() not in answer.body
    [line] = logged(capfd, "rule_exception")
    assert (line["rule"], line["request_id"], line["trace_id"]) == ("has_amount", "q", None)


async def test_a_tool_error_is_for_the_model_and_no_line_of_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    async with portico(**MODULES) as (served, _):
        answer = await served.post(chat('Use look_up: order="path"', tools=["look_up"]))
    [call] = answer.json["tool_calls_made"]
    assert call["result"] == f"The tool failed: {CANARY}"
    assert logged(capfd, "tool_exception") == []
