"""`run_code` over HTTP where its interpreter is not the recorded one: what is refused, what stays, and what goes on."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from portico.adapters.tools.code.installed import installed_interpreter
from portico.bootstrap.service import open_history_reader, open_service
from portico.domain.failures import ConfigurationFailure
from portico.domain.ids import TenantId
from portico.settings import Settings
from tests.support.callers import Grants, callers
from tests.support.portico import chat

GRANTS: Grants = {"ada": ("red", "ada", ["*"])}
CODE = {"tool_calls": [{"name": "run_code", "arguments": {"code": "await calculate(expression='6 * 7')"}}]}


@pytest.mark.usefixtures("real_time")
async def test_code_that_waits_stays_suspended_without_its_interpreter_and_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.json").write_bytes(orjson.dumps([CODE]))
    engines = {"model": {"model": f"scripted://{tmp_path}/model.json"}}
    tables: dict[str, Any] = {"engines": engines, "policy": {"approve": [{"tool": "calculate"}]}}
    answer = orjson.dumps({"tool_id": "run_code::calculate", "payload": {"decision": "approve"}})
    async with callers(tmp_path, GRANTS, tools={"code": {}}, **tables) as (by_name, _):
        assert (await by_name["ada"].execute(chat("go", request_id="q"))).json["state"] == "SUSPENDED"
    (tmp_path / "model.json").write_bytes(orjson.dumps([{"text": "It is 42."}]))
    async with callers(tmp_path, GRANTS, **tables) as (by_name, _):
        refused = await by_name["ada"].send("POST", "/v1/executions/q/resume", answer)
        assert (refused.status, refused.json["code"]) == (409, "STORAGE_SNAPSHOT_INVALID")
        assert (await by_name["ada"].get("/v1/executions/q")).json["state"] == "SUSPENDED"
    settings = Settings.model_validate({"storage": {"url": f"sqlite:///{tmp_path}/portico.db"}, **tables})
    recorded = installed_interpreter()
    newer = tmp_path / "newer/pydantic_monty-9.0.dist-info/METADATA"
    newer.parent.mkdir(parents=True)
    newer.write_text("Metadata-Version: 2.1\nName: pydantic-monty\nVersion: 9.0\n")
    with monkeypatch.context() as path:
        path.syspath_prepend(newer.parents[1])
        async with open_history_reader(settings) as reader:
            [found] = await reader.suspended_flows(TenantId("red"))
    assert (found.flow, found.obstacle) == (
        "run_code",
        f"its code ran in {recorded}, and monty 9.0 is installed here",
    )
    async with callers(tmp_path, GRANTS, tools={"code": {}}, **tables) as (by_name, _):
        ended = await by_name["ada"].send("POST", "/v1/executions/q/resume", answer)
        assert ended.status == 200
        [outer, inner] = (await by_name["ada"].get("/v1/executions/q")).json["response"]["tool_calls_made"]
        assert (outer["name"], inner["result"]) == ("run_code", "42")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"workers": 0}, "tools.code.workers"),
        ({"workers": 65}, "tools.code.workers"),
        ({"memory": 1}, "tools.code.memory"),
    ],
)
async def test_a_table_of_code_is_refused(table: dict[str, int], message: str, tmp_path: Path) -> None:
    storage = {"url": f"sqlite:///{tmp_path}/portico.db"}
    with pytest.raises((ConfigurationFailure, ValueError)) as refused:
        async with open_service(Settings.model_validate({"storage": storage, "tools": {"code": table}})):
            pass
    assert message in str(refused.value)
