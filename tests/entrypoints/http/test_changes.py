"""The live list over HTTP: its beginning, what follows, what each reader sees, and its end."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import orjson

from tests.support.callers import callers
from tests.support.http_server import ClientConnection, RunningServer, request_bytes
from tests.support.portico import ASK_PERSON, JSON_BODY, RESPOND_ASYNC, chat, portico, resume, send_command
from tests.support.server_state import wait_for_disconnect, wait_for_running

Frame = tuple[str, dict[str, Any]]


class Reader:
    """A client that reads a live list."""

    def __init__(self, client: ClientConnection) -> None:
        self._client = client
        self._rest = b""
        self.raw = b""

    async def begin(self, query: str = "", headers: Mapping[str, str] | None = None) -> list[Frame]:
        """Open the list and return what it begins with."""
        await self._client.send(request_bytes("GET", f"/v1/events{query}", headers or {}))
        status, found = await self._client.head()
        assert (status, found["content-type"]) == (200, "text/event-stream")
        return await self.until(lambda name, _: name == "ready")

    async def until(self, is_last: Any) -> list[Frame]:
        """Return the frames up to the first one that is the last."""
        frames: list[Frame] = []
        with anyio.fail_after(30):
            while True:
                while b"\n\n" in self._rest:
                    frame, _, self._rest = self._rest.partition(b"\n\n")
                    fields = dict(line.split(": ", 1) for line in frame.decode().split("\n") if ": " in line)
                    if "event" in fields:
                        frames.append((fields["event"], orjson.loads(fields["data"])))
                        if is_last(*frames[-1]):
                            return frames
                chunk = await self._client.chunk()
                assert chunk, "the list has ended"
                self._rest += chunk
                self.raw += chunk

    async def until_state(self, request_id: str, state: str) -> list[Frame]:
        """Return the frames up to the one that shows the execution in that state."""
        return await self.until(lambda _, data: (data.get("request_id"), data.get("state")) == (request_id, state))

    async def until_end(self) -> bytes:
        """Return what comes before the end of the list."""
        with anyio.fail_after(30):
            while chunk := await self._client.chunk():
                self.raw += chunk
        return self.raw


@asynccontextmanager
async def reading(served: RunningServer) -> AsyncIterator[Reader]:
    async with served.connect() as client:
        yield Reader(client)


def names(frames: list[Frame]) -> list[tuple[str, Any]]:
    """Return each frame in short."""
    return [
        (
            name,
            data.get("state") or data.get("request_id")
            if name != "suspension"
            else (data["suspension"]["request_id"], data["open"]),
        )
        for name, data in frames
    ]


async def test_a_list_begins_with_what_is_unfinished_and_goes_on_with_what_changes() -> None:
    async with portico() as (served, service), reading(served) as reader, served.connect() as client:
        await served.post(chat("Hello", request_id="over"))
        await served.post(chat(ASK_PERSON, request_id="q"))
        await client.send(
            request_bytes("POST", "/v1/execute", JSON_BODY, chat("[[slow:2]] Hello", request_id="memory"))
        )
        await wait_for_running(service)
        begin = await reader.begin()
        assert names(begin) == [
            ("execution", "EXECUTE"),
            ("execution", "SUSPENDED"),
            ("suspension", ("q", True)),
            ("ready", None),
        ]
        assert begin[0][1]["request_id"] == "memory"
        assert begin[-1][1] == {"truncated": False}
        ended = (await reader.until_state("memory", "COMPLETE"))[-1][1]
        await client.answer()
        assert (await served.get("/v1/executions/memory")).status == 200
        (listed,) = (await served.get("/v1/executions?q=memory&view=summary")).json["data"]
        assert ended == listed
        await resume(served)
        frames = names(await reader.until(lambda name, _: name == "suspension"))
        assert frames[-1] == ("suspension", ("q", False))
        if ("execution", "COMPLETE") not in frames:
            await reader.until_state("q", "COMPLETE")
        deleted = await served.ask(request_bytes("DELETE", "/v1/executions/q", {}))
        assert deleted.status == 204
        assert names(await reader.until(lambda name, _: name == "removed"))[-1] == ("removed", "q")


async def test_of_one_execution_comes_the_latest_state_at_most_once_in_250_ms_and_its_end_at_once() -> None:
    async with portico() as (served, _), reading(served) as reader:
        await reader.begin()
        began = anyio.current_time()
        text = "[[slow:3]] " + " ".join(["word"] * 40)
        await served.post(chat(text, request_id="q"), RESPOND_ASYNC)
        frames = [data for _, data in await reader.until_state("q", "COMPLETE")]
        seconds = anyio.current_time() - began
        assert [frame["events"] for frame in frames] == sorted({frame["events"] for frame in frames})
        assert len(frames) <= seconds / 0.25 + 2


async def test_what_no_list_has_is_not_in_the_live_list_either() -> None:
    async with portico() as (served, service), reading(served) as reader, served.connect() as client:
        body = chat("[[slow:2]] Hello", request_id="hidden", store=False)
        await client.send(request_bytes("POST", "/v1/execute", JSON_BODY, body))
        await wait_for_running(service)
        assert names(await reader.begin()) == [("ready", None)]
        await client.answer()
        await served.post(chat("Hello", request_id="seen"))
        assert {data["request_id"] for _, data in await reader.until_state("seen", "COMPLETE")} == {"seen"}


async def test_a_running_execution_that_is_deleted_is_removed_after_its_end() -> None:
    async with portico() as (served, service), reading(served) as reader:
        await reader.begin()
        await served.post(chat("[[slow:60]] Hello", request_id="q"), RESPOND_ASYNC)
        await wait_for_running(service)
        assert (await served.ask(request_bytes("DELETE", "/v1/executions/q", {}))).status == 202
        await reader.until(lambda name, data: (name, data) == ("removed", {"request_id": "q"}))
        await served.post(chat("Hello", request_id="next"))
        later = await reader.until_state("next", "COMPLETE")
        assert {data["request_id"] for _, data in later} == {"next"}


async def test_a_session_is_a_filter_and_its_deletion_removes_its_executions() -> None:
    async with portico() as (served, _), reading(served) as reader:
        await served.post(chat(ASK_PERSON, request_id="q", session_id="s"))
        await served.post(chat(ASK_PERSON, request_id="other"))
        begin = await reader.begin("?session_id=s")
        assert names(begin) == [("execution", "SUSPENDED"), ("suspension", ("q", True)), ("ready", None)]
        await served.post(chat("Hello", request_id="outside"))
        await send_command(served, "cancel")
        await served.ask(request_bytes("DELETE", "/v1/sessions/s", {}))
        frames = await reader.until(lambda name, _: name == "removed")
        assert {data.get("request_id", "q") for _, data in frames} == {"q"}
        refused = await served.get("/v1/events?session_id=a%0Ab")
        assert (refused.status, refused.json["code"]) == (422, "REQUEST_INVALID")


GRANTS = {
    "ada": ("red", "ada", None),
    "approver": ("red", "approver", ["can_approve"]),
    "viewer": ("red", "viewer", ["can_view_tenant"]),
    "bob": ("blue", "bob", None),
}
SECRET = "my token: hunter2hunter2"


async def test_each_reader_sees_what_its_rights_show(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _), AsyncExitStack() as stack:
        readers = {}
        for name, caller in by_name.items():
            readers[name] = await stack.enter_async_context(reading(caller.served))
            assert names(await readers[name].begin(headers=caller.headers)) == [("ready", None)]
        ask = f"{SECRET} {ASK_PERSON}"
        await by_name["ada"].execute(chat(ask, request_id="q"))
        for name in ("ada", "viewer"):
            frames = await readers[name].until(lambda frame, _: frame == "suspension")
            assert names(frames)[-2:] == [("execution", "SUSPENDED"), ("suspension", ("q", True))]
        await by_name["bob"].execute(chat("Hello", request_id="own"))
        assert {data["request_id"] for _, data in await readers["bob"].until_state("own", "COMPLETE")} == {"own"}
        deleted = await by_name["ada"].send("DELETE", "/v1/executions/q")
        assert deleted.status == 204
        for name in ("ada", "viewer"):
            await readers[name].until(lambda frame, _: frame == "removed")
        await by_name["ada"].execute(chat("Hello", request_id="last"))
        await readers["viewer"].until_state("last", "COMPLETE")
        for name in ("approver", "bob"):
            assert b'"q"' not in readers[name].raw
            assert b'"last"' not in readers[name].raw
        assert b"hunter2hunter2" not in b"".join(reader.raw for reader in readers.values())


async def test_an_approver_sees_the_call_that_waits_and_not_the_execution(tmp_path: Path) -> None:
    policy = {"approve": [{"tool": "roll_dice"}]}
    async with callers(tmp_path, GRANTS, policy=policy) as (by_name, _), reading(by_name["ada"].served) as reader:
        await reader.begin(headers=by_name["approver"].headers)
        body = chat("Roll two dice with roll_dice, count 2, sides 6.", request_id="q")
        assert (await by_name["ada"].execute(body)).status == 202
        ((name, data),) = await reader.until(lambda name, _: name == "suspension")
        assert (name, data["open"], data["suspension"]["kind"]) == ("suspension", True, "approval")
        assert set(data["suspension"]["value"]) <= {"tool", "arguments", "node"}


async def test_a_user_has_at_most_eight_lists(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _), AsyncExitStack() as stack:
        ada = by_name["ada"]
        for _number in range(8):
            reader = await stack.enter_async_context(reading(ada.served))
            await reader.begin(headers=ada.headers)
        refused = await ada.get("/v1/events")
        assert (refused.status, refused.json["code"]) == (429, "REQUEST_RATE_LIMITED")
        assert refused.headers["retry-after"] == "5"
        async with reading(ada.served) as other:
            await other.begin(headers=by_name["viewer"].headers)
        await stack.aclose()
        await wait_for_disconnect(ada.served)
        async with reading(ada.served) as reader:
            await reader.begin(headers=ada.headers)


async def test_a_stopping_service_ends_the_list_with_a_retry_line() -> None:
    async with portico() as (served, service), reading(served) as reader:
        await reader.begin()
        await service.drain()
        assert (await reader.until_end()).endswith(b"retry: 1000\n\n")
