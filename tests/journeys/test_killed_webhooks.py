"""A process that is killed around the commits of ends with webhooks: the next one delivers every end."""

from collections import defaultdict
from pathlib import Path

import anyio
import orjson

from tests.support.http_server import RunningServer
from tests.support.replica_processes import get_execution, run_replicas, wait_until
from tests.support.webhook_receiver import Receiver, file_endpoint, webhook_receiver

COUNT = 6


def write_configuration(folder: Path, receiver: Receiver) -> None:
    table = file_endpoint(folder, receiver.url)
    lines = [f"{key} = {orjson.dumps(value).decode()}" for key, value in table.items()]
    (folder / "portico.toml").write_text("\n".join(["[webhooks.endpoints.orders]", *lines, ""]))


async def send(served: RunningServer, name: str) -> None:
    question = {"request_id": name, "messages": [{"role": "user", "content": "Is it?"}], "background": True}
    answer = await served.post(orjson.dumps(question))
    assert answer.status == 202, answer.body


async def test_every_end_is_delivered_though_the_process_is_killed_between_commit_delivery_and_record(
    empty_database_url: str, tmp_path: Path
) -> None:
    """Kill the process as the first message arrives, while other executions end."""
    names = [f"q{number}" for number in range(COUNT)]
    async with webhook_receiver() as receiver:
        write_configuration(tmp_path, receiver)
        async with run_replicas(empty_database_url, tmp_path, 1) as fleet:
            [replica] = fleet.replicas
            for name in names:
                await send(replica.served, name)
            await receiver.wait_for(1)
            replica.kill()
        async with run_replicas(empty_database_url, tmp_path, 1) as fleet:
            served = fleet.replicas[0].served

            async def are_delivered() -> bool:
                return {each.json["data"]["request_id"] for each in receiver.received} == set(names)

            await wait_until(are_delivered)
            await anyio.sleep(0.2)
            states = [(await get_execution(served, name))["state"] for name in names]
            listed = (await served.get("/v1/webhooks/deliveries")).json["data"]
    assert states == ["COMPLETE"] * COUNT
    assert len(listed) == COUNT
    ids: dict[str, set[str]] = defaultdict(set)
    for message in receiver.received:
        ids[message.json["data"]["request_id"]].add(message.headers["webhook-id"])
    assert {name: len(found) for name, found in ids.items()} == dict.fromkeys(names, 1)
    assert len(set().union(*ids.values())) == COUNT
