"""A loop of `run_code` over five orders: it stops before the third refund, survives `kill -9`, and pays each once."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import orjson

from tests.support.replica_processes import get_execution, run_replicas, wait_until

CODE: Final = "for order in [1, 2, 3, 4, 5]:\n    await refund(order=order)\n'all'"
CALL: Final = {"tool_calls": [{"id": "c", "name": "run_code", "arguments": {"code": CODE}}]}
CONFIGURATION: Final = """
[engines.model]
model = "scripted://{folder}/model.json"

[tools]
modules = ["refunds"]

[tools.code]

[[policy.approve]]
tool = "refund"
arguments = {{ properties = {{ order = {{ const = 3 }} }} }}
"""
MODULE: Final = '''
from pathlib import Path

from portico import SideEffects, tool


@tool(side_effects=SideEffects.WRITE, idempotent=False)
async def refund(order: int) -> str:
    """Refund an order."""
    with Path(__file__).with_name("refunds.txt").open("a") as file:
        file.write(f"{order}\\n")
    return "refunded"
'''


async def test_a_loop_over_orders_stops_for_a_person_survives_a_kill_and_refunds_each_once(
    empty_database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "portico.toml").write_text(CONFIGURATION.format(folder=tmp_path))
    (tmp_path / "refunds.py").write_text(MODULE)
    script, url = tmp_path / "model.json", empty_database_url
    script.write_bytes(orjson.dumps([CALL]))
    question = {"request_id": "orders", "messages": [{"role": "user", "content": "Refund all."}], "background": True}
    async with run_replicas(url, tmp_path, 1) as fleet:
        [replica] = fleet.replicas
        assert (await replica.served.post(orjson.dumps(question))).status == 202

        async def is_suspended() -> bool:
            return bool((await get_execution(replica.served, "orders"))["state"] == "SUSPENDED")

        await wait_until(is_suspended)
        replica.kill()
    assert (tmp_path / "refunds.txt").read_text().split() == ["1", "2"]
    script.write_bytes(orjson.dumps([{"text": "All are refunded."}]))
    async with run_replicas(url, tmp_path, 1) as fleet:
        served = fleet.replicas[0].served
        answer = {"tool_id": "run_code::refund", "payload": {"decision": "approve"}}
        assert (await served.post(orjson.dumps(answer), path="/v1/executions/orders/resume")).status == 200

        async def is_complete() -> bool:
            return bool((await get_execution(served, "orders"))["state"] == "COMPLETE")

        await wait_until(is_complete)
        replayed = await served.post(b"", path="/v1/executions/orders/replay")
        assert replayed.json["identical"], replayed.json
    assert (tmp_path / "refunds.txt").read_text().split() == ["1", "2", "3", "4", "5"]
    assert "identical" in replayed_without_the_extra(url, tmp_path)


def replayed_without_the_extra(url: str, folder: Path) -> str:
    """Return what `portico replay` prints where the interpreter cannot be imported."""
    blocked, configuration = folder / "blocked", folder / "replay.toml"
    blocked.mkdir()
    (blocked / "pydantic_monty.py").write_text("raise ImportError")
    tables = CONFIGURATION.format(folder=folder).replace("[tools.code]", "")
    configuration.write_text(tables)
    command = [sys.executable, "-m", "portico", "replay", "orders", "--config", str(configuration)]
    environment = {**os.environ, "PYTHONPATH": f"{blocked}:{folder}", "PORTICO__STORAGE__URL": url}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return ended.stdout + ended.stderr
