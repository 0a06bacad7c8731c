"""A background answer of the Responses API, whose replica is killed: its stream is read on at another one."""

from pathlib import Path
from typing import Any, Final

import anyio
import orjson

from tests.support.http_server import RunningServer, request_bytes
from tests.support.open_responses import check_frame, check_numbers, fold, frames_of
from tests.support.postgres import postgres_server
from tests.support.replica_processes import run_replicas

PATH: Final = "/v1/responses"
BODY: Final = orjson.dumps(
    {
        "model": "default",
        "input": "[[slow:1]] Please calculate 17*3",
        "tools": [{"type": "mcp", "server_label": "portico", "allowed_tools": ["calculate"]}],
        "background": True,
        "stream": True,
    }
)


async def read_until_call_ended(served: RunningServer) -> list[dict[str, Any]]:
    """Start the answer and return its frames up to the end of its call; what came later is not read."""
    async with served.connect() as connection:
        await connection.send(request_bytes("POST", PATH, {"Content-Type": "application/json"}, BODY))
        status, _ = await connection.head()
        assert status == 200
        received = b""
        while b"response.output_item.done" not in received:
            received += await connection.chunk()
    whole = received[: received.rindex(b"\n\n") + 2]
    return frames_of(whole + b"data: [DONE]\n\n")


async def test_no_frame_is_lost_or_doubled_when_a_replica_is_killed(tmp_path: Path) -> None:
    with postgres_server() as server:
        async with run_replicas(server.url, tmp_path, 2) as fleet:
            killed, other = fleet.replicas
            first = await read_until_call_ended(killed.served)
            killed.kill()
            name, last = first[0]["response"]["id"], first[-1]["sequence_number"]
            rest = await read_on(other.served, name, last)
            whole = frames_of((await other.served.get(f"{PATH}/{name}?stream=true")).body)
            answer = (await other.served.get(f"{PATH}/{name}")).json
    check_numbers([*first, *rest])
    for frame in rest:
        check_frame(frame)
    assert [*first, *rest] == whole
    assert fold(whole) == answer["output"]
    assert [item["type"] for item in answer["output"]] == ["mcp_call", "message"]
    assert [frame["type"] for frame in whole].count("response.completed") == 1


async def read_on(served: RunningServer, name: str, after: int) -> list[dict[str, Any]]:
    """Return the frames behind that number."""
    with anyio.fail_after(40):
        return frames_of((await served.get(f"{PATH}/{name}?stream=true&starting_after={after}")).body)
