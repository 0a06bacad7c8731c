"""Delayed starts in processes of which one is killed as they begin: each runs, and each end is delivered."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest

from tests.journeys.test_killed_webhooks import write_configuration
from tests.support.http_server import RunningServer
from tests.support.postgres import own_database
from tests.support.replica_processes import get_execution, read_event_log, run_replicas, wait_until
from tests.support.webhook_receiver import Receiver, webhook_receiver

NAMES = [f"q{number}" for number in range(8)]
SECONDS_UNTIL_START = 1.5


async def send_all(served: RunningServer) -> datetime:
    """Send executions that begin together in a moment, and return when."""
    run_at = datetime.now(UTC) + timedelta(seconds=SECONDS_UNTIL_START)
    for name in NAMES:
        question = {"request_id": name, "messages": [{"role": "user", "content": "Is it?"}]}
        answer = await served.post(orjson.dumps({**question, "run_at": run_at.isoformat()}))
        assert (answer.status, answer.json["state"]) == (202, "INIT"), answer.body
    return run_at


async def check_ends(served: RunningServer, receiver: Receiver, run_at: datetime) -> None:
    """Check that each execution ran once and not before its time, and that its end arrived under one id."""

    async def are_delivered() -> bool:
        states = [each["state"] for each in (await served.get("/v1/webhooks/deliveries")).json["data"]]
        return states == ["delivered"] * len(NAMES)

    await wait_until(are_delivered)
    for name in NAMES:
        view = await get_execution(served, name)
        assert view["state"] == "COMPLETE", view
        assert datetime.fromisoformat(view["started_at"]) >= run_at
        log = await read_event_log(served, name)
        assert [event["sequence_number"] for event in log] == list(range(1, len(log) + 1))
        assert [event["type"] for event in log].count("execution.completed") == 1
    ids: dict[str, set[str]] = defaultdict(set)
    for message in receiver.received:
        ids[message.json["data"]["request_id"]].add(message.headers["webhook-id"])
    assert {name: len(found) for name, found in ids.items()} == dict.fromkeys(NAMES, 1)


async def test_what_had_begun_or_not_when_its_process_was_killed_runs_in_the_next_one(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/portico.db"
    async with webhook_receiver() as receiver:
        write_configuration(tmp_path, receiver)
        async with run_replicas(url, tmp_path, 1) as fleet:
            [replica] = fleet.replicas
            run_at = await send_all(replica.served)

            async def one_has_begun() -> bool:
                return bool((await get_execution(replica.served, NAMES[0]))["state"] != "INIT")

            await wait_until(one_has_begun)
            replica.kill()
        async with run_replicas(url, tmp_path, 1) as fleet:
            await check_ends(fleet.replicas[0].served, receiver, run_at)


@pytest.fixture
def shared_url(postgres_url: str) -> str:
    return own_database(postgres_url)


async def test_of_two_processes_the_other_starts_and_delivers_what_the_killed_one_had_claimed(
    shared_url: str, tmp_path: Path
) -> None:
    async with webhook_receiver() as receiver:
        write_configuration(tmp_path, receiver)
        async with run_replicas(shared_url, tmp_path, 2) as fleet:
            run_at = await send_all(fleet.proxy)
            await receiver.wait_for(1)
            fleet.replicas[0].kill()
            await check_ends(fleet.replicas[1].served, receiver, run_at)
