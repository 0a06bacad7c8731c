"""A process that is killed with `kill -9` while executions wait: the next one on its SQLite file goes on from there."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from tests.support.http_server import RunningServer
from tests.support.replica_processes import read_event_log, run_replicas, wait_until

NEVER_S: Final = 600.0
"""Delay of what an engine of the first process says; the process is killed long before."""
ENGINES: Final = {"narrow": 1, "wide": 9, "acting": 9, "judge": 9}
"""The connections of each engine."""
CONFIGURATION: Final = """
[routes]
default = ["wide"]
judged = ["acting"]

[limits]
concurrent_inferences = 2

[guardrails.careful]
type = "judge"
intent = "Ask for secrets."
model = "judge"
routes = ["judged"]
"""
SCHEMA: Final = {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}}
CALL: Final = {"tool_calls": [{"name": "calculate", "arguments": {"expression": "17*3"}}]}
JUDGEMENT: Final = {"text": '{"refused": false}'}
REQUESTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "connected": {"model": "narrow"},
    "behind-a-connection": {"model": "narrow"},
    "behind-a-slot": {"mode": "redundant", "redundancy": {"n": 3, "early_stop": False}, "output": {"schema": SCHEMA}},
    "behind-the-judges": {"model": "judged", "tools": ["calculate"]},
}
RATE: Final = 20_000


def write_configuration(folder: Path, tables: str = "") -> None:
    """Write the configuration of engines that say what their scripts in this folder contain."""
    engines = [
        f'[engines.{name}]\nmodel = "scripted://{folder}/{name}.json"\nmax_connections = {connections}\n'
        for name, connections in ENGINES.items()
    ]
    (folder / "portico.toml").write_text("".join(engines) + CONFIGURATION + tables)


def write_scripts(folder: Path, delay: float) -> None:
    """Write what the engines say, after that delay; the tool is called at once, and before the process is killed."""
    for name in ("narrow", "wide"):
        (folder / f"{name}.json").write_bytes(orjson.dumps([{"text": '{"ok": true}', "delay": delay}] * 4))
    (folder / "judge.json").write_bytes(orjson.dumps([JUDGEMENT | {"delay": delay}]))
    (folder / "acting.json").write_bytes(orjson.dumps([CALL] if delay else [{"text": "51"}]))


async def send(served: RunningServer, name: str, **fields: Any) -> None:
    """Send the request of that id, which is answered in the background."""
    question = {"request_id": name, "messages": [{"role": "user", "content": "Is it?"}], "background": True}
    answer = await served.post(orjson.dumps(question | fields))
    assert answer.status == 202, answer.body


async def is_stored(served: RunningServer, name: str, *, key: str = "prepare") -> bool:
    """Return whether the execution is in EXECUTE and has the step of that key."""
    found, steps = await served.get(f"/v1/executions/{name}"), await served.get(f"/v1/executions/{name}/steps")
    return bool(found.json["state"] == "EXECUTE" and key in [each["key"] for each in steps.json["data"]])


async def logs_of(served: RunningServer, *names: str) -> dict[str, Counter[str]]:
    """Return how many events of each type the executions have at their ends; they are numbered without a gap."""
    logs = {}
    for name in names:
        log = await read_event_log(served, name)
        assert [event["sequence_number"] for event in log] == list(range(1, len(log) + 1))
        assert log[-1]["type"] == "execution.completed", log[-1]
        logs[name] = Counter(event["type"] for event in log)
    return logs


async def test_executions_that_wait_when_their_process_is_killed_go_on_from_there(tmp_path: Path) -> None:
    write_configuration(tmp_path)
    write_scripts(tmp_path, NEVER_S)
    async with run_replicas(f"sqlite:///{tmp_path}/portico.db", tmp_path, 1) as fleet:
        [replica] = fleet.replicas
        for name, fields in REQUESTS.items():
            await send(replica.served, name, **fields)
            key = "0/0" if name == "behind-the-judges" else "prepare"
            await wait_until(lambda name=name, key=key: is_stored(replica.served, name, key=key))
        replica.kill()
    write_scripts(tmp_path, 0)
    async with run_replicas(f"sqlite:///{tmp_path}/portico.db", tmp_path, 1) as fleet:
        logs = await logs_of(fleet.replicas[0].served, *REQUESTS)
    assert {name: types["inference.end"] for name, types in logs.items()} == {
        "connected": 1,
        "behind-a-connection": 1,
        "behind-a-slot": 3,
        "behind-the-judges": 3,
    }
    started_again = {name: types["inference.start"] - types["inference.end"] for name, types in logs.items()}
    assert started_again == {"connected": 1, "behind-a-connection": 0, "behind-a-slot": 2, "behind-the-judges": 1}
    tools = logs["behind-the-judges"]
    assert (tools["tool.start"], tools["tool.end"]) == (1, 1)


async def test_an_execution_that_waits_for_a_reservation_when_its_process_is_killed_goes_on_from_there(
    tmp_path: Path,
) -> None:
    write_configuration(tmp_path, f'[tenants.default]\ntokens = "{RATE}/3"\n')
    write_scripts(tmp_path, NEVER_S)
    greedy = {"hints": {"max_tokens": RATE * 3 // 4}}
    async with run_replicas(f"sqlite:///{tmp_path}/portico.db", tmp_path, 1) as fleet:
        [replica] = fleet.replicas
        for name in ("reserved", "behind-a-reservation"):
            await send(replica.served, name, **greedy)
            await wait_until(lambda name=name: is_stored(replica.served, name))
        replica.kill()
    write_scripts(tmp_path, 0)
    async with run_replicas(f"sqlite:///{tmp_path}/portico.db", tmp_path, 1) as fleet:
        logs = await logs_of(fleet.replicas[0].served, "reserved", "behind-a-reservation")
    assert [(each["inference.start"], each["inference.end"]) for each in logs.values()] == [(2, 1), (1, 1)]
