"""Both clients against a service: what they return, and what they make of connections that break."""

import asyncio
import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

import portico_client
from portico_client import AsyncClient, Client, ConnectionFailure, PorticoError
from tests.clients.faulty_proxy import faulty_proxy
from tests.clients.journey import STEPS, Shown, check_journey, journey_service
from tests.support.portico import ASK_PERSON
from tests.support.scripted_provider import ScriptedService, answered, scripted_service, streamed
from tests.support.upstream import UpstreamAction, closed_port

TEXT = "One two three, 👋 four."
TOOLS = ["calculate", "ask_person"]
ASKED = ("call_1", "ask_person", {"question": "May I?"})


def counting() -> AbstractAsyncContextManager[ScriptedService]:
    """Run a service that answers with the text."""
    return scripted_service(streamed(TEXT), failover={"max_retries": 0})


def read(parts: Any) -> str:
    shown = ""
    for part in parts:
        shown = shown[: len(shown) - part.replaces] + part.text
    return shown


async def in_thread(play: Callable[[], Any]) -> Any:
    """Play a program of the blocking client beside the service."""
    return await asyncio.to_thread(play)


def play_journey(client: Client) -> Shown:
    """Play the journey with the blocking client."""
    shown = []
    for step in STEPS:
        if step["do"] == "stream":
            with client.stream(step["text"], tools=TOOLS) as stream:
                text, request_id = read(stream.text()), stream.request_id or ""
        else:
            answers = (lambda _: "yes") if step["do"] == "answer" else None
            response = client.execute(step["text"], tools=TOOLS, on_suspension=answers)
            text, request_id = response["content"] or "", response["request_id"]
        shown.append((text, [each.get("sequence_number", 0) for each in client.events(request_id)]))
    return shown


async def play_journey_async(client: AsyncClient) -> Shown:
    """Play the journey with the asynchronous client."""
    shown = []
    for step in STEPS:
        if step["do"] == "stream":
            async with client.stream(step["text"], tools=TOOLS) as stream:
                text, request_id = read([part async for part in stream.text()]), stream.request_id or ""
        else:
            answers = (lambda _: "yes") if step["do"] == "answer" else None
            response = await client.execute(step["text"], tools=TOOLS, on_suspension=answers)
            text, request_id = response["content"] or "", response["request_id"]
        shown.append((text, [each.get("sequence_number", 0) async for each in client.events(request_id)]))
    return shown


async def test_the_blocking_client_plays_the_journey_over_cuts() -> None:
    async with journey_service() as (scripted, proxy):
        with Client(proxy.url) as client:
            shown = await in_thread(lambda: play_journey(client))
    check_journey(shown, scripted, proxy)


async def test_the_asynchronous_client_plays_the_journey_over_cuts() -> None:
    async with journey_service() as (scripted, proxy), AsyncClient(proxy.url) as client:
        check_journey(await play_journey_async(client), scripted, proxy)


async def test_an_answer_that_was_lost_is_fetched_and_the_request_does_not_run_twice() -> None:
    async with counting() as scripted, faulty_proxy(scripted.served, swallowed=1) as proxy:
        with Client(proxy.url) as client:
            response = await in_thread(lambda: client.execute("Count"))
    assert response["content"] == TEXT
    assert proxy.connections == 2
    assert len(scripted.provider.requests) == 1


async def test_an_answer_that_was_lost_without_a_key_is_a_failure() -> None:
    async with (
        counting() as scripted,
        faulty_proxy(scripted.served, swallowed=1) as proxy,
        AsyncClient(proxy.url) as client,
    ):
        with pytest.raises(ConnectionFailure):
            await client.execute("Count", store=False)
    assert len(scripted.provider.requests) == 1


async def test_a_stream_that_is_not_stored_cannot_be_read_on() -> None:
    async with counting() as scripted, faulty_proxy(scripted.served) as proxy, AsyncClient(proxy.url) as client:
        with pytest.raises(ConnectionFailure, match="not stored"):
            async for _ in client.stream("Count", store=False):
                pass


async def test_closing_a_stream_cancels_its_execution_and_detaching_does_not() -> None:
    chunks = streamed("One two three", broken=UpstreamAction.HANG)
    async with scripted_service(chunks) as scripted, AsyncClient(scripted.served.url) as client:
        for ends_by_closing in (True, False):
            stream = client.stream("Count")
            async for _ in stream.text():
                break
            await (stream.close() if ends_by_closing else stream.detach())
            view = await client.get(stream.request_id or "")
            assert (view["state"] == "CANCELLED") is ends_by_closing
        await client.cancel(stream.request_id or "")
        with pytest.raises(PorticoError) as caught:
            await client.wait(stream.request_id or "")
    assert (caught.value.category, caught.value.status) == ("Cancellation", 0)


async def test_a_timeout_and_a_cancelled_task_cancel_the_execution() -> None:
    async with scripted_service([UpstreamAction.HANG]) as scripted:
        async with AsyncClient(scripted.served.url, timeout=0.3) as client:
            with pytest.raises(ConnectionFailure):
                await client.execute("Count", request_id="late")
        async with AsyncClient(scripted.served.url) as client:
            task = asyncio.create_task(client.execute("Count", request_id="left"))
            await scripted.provider.wait_for_requests(2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            states = [(await client.get(each))["state"] for each in ("late", "left")]
    assert states == ["CANCELLED", "CANCELLED"]


async def test_a_question_is_answered_and_an_open_one_is_returned() -> None:
    scripts = (answered("", ASKED), answered("Done."))
    async with scripted_service(*scripts, *scripts) as scripted, AsyncClient(scripted.served.url) as client:
        asked: list[Any] = []

        async def answer(suspension: Any) -> str:
            asked.append(suspension["kind"])
            return "yes"

        response = await client.execute("Ask", tools=["ask_person"], on_suspension=answer)
        assert (response["content"], asked) == ("Done.", ["question"])


async def test_a_suspended_execution_waits_and_is_answered_later() -> None:
    scripts = (answered("", ASKED), answered("Done."))
    async with scripted_service(*scripts) as scripted, AsyncClient(scripted.served.url) as client:
        running = await client.background("Ask", tools=["ask_person"])
        response = await running.wait()
        assert response["state"] == "SUSPENDED"
        assert [each["kind"] async for each in client.suspensions.list()] == ["question"]
        with pytest.raises(LookupError, match="approval"):
            await client.approve(running.request_id)
        resumed = await client.answer(running.request_id, "yes")
        assert resumed is not None
        assert resumed["content"] == "Done."
        events = [event["type"] async for event in running.events()]
        assert events[-1] == "execution.completed"
        assert events.count("execution.suspended") == 1


async def test_the_other_methods_reach_their_routes() -> None:
    async with counting() as scripted, AsyncClient(scripted.served.url) as client:
        for name in "abc":
            await client.execute("Count", request_id=name, session_id="s")
        assert [each["request_id"] async for each in client.list(limit=1)] == ["c", "b", "a"]
        assert [each["request_id"] async for each in client.list(session_id="s", limit=2, state=["COMPLETE"])] == [
            *"cba"
        ]
        assert len([each async for each in client.steps("a", limit=1)]) > 1
        assert len([each async for each in client.sessions.messages("s", limit=2)]) == 6
        assert (await client.input("a")).get("session_id") == "s"
        assert (await client.trace("a"))["request_id"] == "a"
        assert (await client.replay("a"))["identical"]
        assert (await client.quote("Count"))["inferences"]
        assert (await client.fork("c", from_step="end", overrides={"messages": [{"role": "user", "content": "Go"}]}))[
            "state"
        ]
        await client.memory.put("d", text="Portico keeps journals.")
        assert (await client.memory.get("d"))["text"] == "Portico keeps journals."
        assert [each["document_id"] async for each in client.memory.list()] == ["d"]
        assert (await client.memory.search(query="journals"))["data"]
        await client.memory.delete("d")
        assert [each["name"] for each in await client.catalogue.list("engines")] == ["primary"]
        assert (await client.usage.list(by="model"))[0]["executions"]
        assert (await client.sessions.get("s"))["session_id"] == "s"
        await client.sessions.delete("s", forks=True)
        with pytest.raises(PorticoError) as caught:
            await client.get("a")
        assert (caught.value.code, caught.value.status) == ("REQUEST_NOT_FOUND", 404)
        assert (await client.request("get", "/v1/me"))["user"] == "local"


async def test_the_key_and_the_address_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with counting() as scripted, faulty_proxy(scripted.served) as proxy:
        monkeypatch.setenv("PORTICO_URL", proxy.url + "/")
        monkeypatch.setenv("PORTICO_KEY", "ptk_secret")
        async with AsyncClient() as client:
            await client.request("GET", "/livez")
    assert b"authorization: Bearer ptk_secret" in proxy.requests[0].replace(b"Authorization", b"authorization")


async def test_a_service_that_is_not_there_is_a_connection_failure() -> None:
    async with closed_port() as url, AsyncClient(url, retries=0) as client:
        with pytest.raises(ConnectionFailure, match="ConnectError"):
            await client.execute(ASK_PERSON)


def test_both_clients_have_the_same_methods() -> None:
    def methods(kind: type[Any]) -> dict[str, list[str]]:
        found = inspect.getmembers(kind, callable)
        return {name: [*inspect.signature(each).parameters] for name, each in found if not name.startswith("_")}

    for name in ("Client", "Execution", "Stream"):
        assert methods(getattr(portico_client, name)) == methods(getattr(portico_client, f"Async{name}"))
