"""Rules of modules: checked by a worker over HTTP, recorded, and not needed by a replay."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from portico.bootstrap.service import open_history_reader, open_service
from portico.domain.access.principal import LOCAL
from portico.domain.failures import ConfigurationFailure
from portico.domain.ids import RequestId
from portico.settings import Settings
from tests.support.portico import chat, portico

RULES = '''
from portico import rule

@rule
def begins_with(answer, options):
    """Reject an answer that begins otherwise."""
    return None if answer.text.startswith(options.get("text", "Dear")) else "begins otherwise"

@rule
def ends_the_process(answer, options):
    raise SystemExit(3)

@rule
def returns_a_number(answer, options):
    return 7

@rule
def never_returns(answer, options):
    while True:
        pass
'''


@pytest.fixture
def rules(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Return the configuration of a service with a module of rules, and a database file."""
    tmp_path.joinpath("acme_rules.py").write_text(RULES)
    path = list(sys.path)
    sys.path.append(str(tmp_path))
    yield {"rules": {"modules": ["acme_rules"]}, "storage": {"url": f"sqlite:///{tmp_path}/portico.db"}}
    sys.path[:] = path
    sys.modules.pop("acme_rules", None)


def named(rule: object, **fields: Any) -> bytes:
    """Return a request with a rule, which is answered once."""
    return chat("Hello", request_id="q", output={"rules": [rule], **fields}, limits={"attempts": 1})


async def test_a_rule_of_a_module_is_named_and_its_outcome_is_replayed_without_the_module(
    rules: dict[str, Any], tmp_path: Path
) -> None:
    async with portico(**rules) as (served, _):
        broken = await served.post(named("begins_with"))
        kept = await served.post(
            chat(
                "Hello",
                request_id="k",
                output={"rules": [{"type": "custom", "name": "begins_with", "options": {"text": ""}}]},
            )
        )
        unknown = await served.post(chat("Hello", output={"rules": ["ends_with"]}))
    assert (kept.status, kept.json["validation_result"]["valid"]) == (200, True)
    assert broken.json["error"]["code"] == "VALIDATION_RULE_FAILED"
    assert (unknown.status, unknown.json["code"]) == (422, "REQUEST_INVALID")

    tmp_path.joinpath("acme_rules.py").unlink()
    sys.modules.pop("acme_rules", None)
    async with open_history_reader(Settings.model_validate(rules)) as reader:
        for request_id in "qk":
            assert (await reader.replay(LOCAL.tenant, RequestId(request_id))).identical
    with pytest.raises(ConfigurationFailure, match=r"rules\.modules: acme_rules cannot be imported: "):
        async with open_service(Settings.model_validate(rules)):
            pass


@pytest.mark.parametrize("name", ["ends_the_process", "returns_a_number", "never_returns"])
async def test_a_rule_that_misbehaves_fails_its_answer_and_nothing_else(rules: dict[str, Any], name: str) -> None:
    async with portico(**rules) as (served, _):
        broken = await served.post(named(name))
        after = await served.post(chat("Hello"))
    assert broken.json["error"]["code"] in {"VALIDATION_RULE_FAILED", "CONSTRAINT_SCHEMA_INVALID"}
    assert after.status == 200


async def test_a_plan_of_the_configuration_may_name_a_rule_of_a_module(rules: dict[str, Any]) -> None:
    step = {"name": "check", "type": "validate", "rules": ["begins_with"], "input": "Dear Ada"}
    planner = {"kind": "static", "steps": [step]}
    async with portico(**rules, planner=planner) as (served, _):
        done = await served.post(chat("Hello", mode="plan"))
    assert (done.status, done.json["content"]) == (200, "Dear Ada")
    broken = planner | {"steps": [step | {"rules": ["ends_with"]}]}
    with pytest.raises(ConfigurationFailure, match="there is no rule of that name"):
        async with open_service(Settings.model_validate(rules | {"planner": broken})):
            pass
