"""A principal uses only the tools and models of its rights, at every depth, and a resume does not widen them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest

from portico.bootstrap.service import Service, open_service
from portico.domain.access.principal import LOCAL, Permissions, Principal
from portico.domain.contract.request import SystemRequest
from portico.domain.failures import Code, Failure
from portico.orchestration.facade import ExecutionHandle
from portico.orchestration.runtime.fork import ForkRequest
from portico.orchestration.runtime.resume import ResumeRequest
from portico.orchestration.sessions import SessionChanges
from portico.settings import Settings

TABLES = {
    "storage": {"url": "sqlite://"},
    "telemetry": {"log_level": "error"},
    "engines": {"one": {"model": "rehearsal://one"}, "two": {"model": "rehearsal://two"}},
    "routes": {"default": ["one"], "both": ["one", "two"]},
}
SEND = "can_send_messages"
CALCULATE = "Please calculate 17*3"


@asynccontextmanager
async def service() -> AsyncIterator[Service]:
    async with open_service(Settings.model_validate(TABLES)) as opened:
        yield opened


def caller(*names: str) -> Principal:
    return replace(LOCAL, permissions=Permissions.of(names))


def request(text: str = "Hello", **fields: Any) -> SystemRequest:
    return SystemRequest.model_validate({"messages": [{"role": "user", "content": text}], **fields})


async def finished(handle: object) -> ExecutionHandle:
    assert isinstance(handle, ExecutionHandle)
    with anyio.fail_after(60):
        await handle.wait()
    return handle


async def missing(service: Service, asked: SystemRequest, principal: Principal) -> Any:
    """Return the permission for which the request is refused."""
    with pytest.raises(Failure) as refused:
        await service.facade.execute(asked, principal)
    assert refused.value.code is Code.ACCESS_DENIED
    return refused.value.details["permission"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model": "two"}, "model:two"),
    ({"model": "nowhere"}, "model:nowhere"),
    ({"tools": ["roll_dice", "calculate"]}, "tool:calculate"),
    ({"tools": ["unknown"]}, "tool:unknown"),
    ({"hints": {"tool_choice": {"name": "calculate"}}}, "tool:calculate"),
    (
        {"mode": "redundant", "output": {"schema": {"type": "object"}}, "redundancy": {"models": ["one", "two"]}},
        "model:two",
    ),
    (
        {
            "mode": "plan",
            "plan": {"steps": [{"name": "a", "type": "tool", "input": {"name": "calculate", "arguments": {}}}]},
        },
        "tool:calculate",
    ),
    ({"mode": "plan", "plan": {"steps": [{"name": "a", "type": "infer", "tools": ["calculate"]}]}}, "tool:calculate"),
]


@pytest.mark.parametrize(("fields", "permission"), REFUSED, ids=lambda each: str(each)[:40])
async def test_a_request_that_names_what_its_principal_lacks_is_refused(
    fields: dict[str, Any], permission: str
) -> None:
    async with service() as here:
        assert (
            await missing(here, request(**fields), caller(SEND, "tool:roll_dice", "model:one", "model:default"))
            == permission
        )


async def test_without_a_permission_for_the_default_route_a_request_without_a_model_is_refused() -> None:
    async with service() as here:
        assert await missing(here, request(), caller(SEND, "model:two")) == "model:default"


async def test_the_permission_for_a_route_covers_its_engines() -> None:
    async with service() as here:
        both = caller(SEND, "model:both")
        for model in ("both", "one", "two"):
            handle = await finished(await here.facade.execute(request(model=model), both))
            assert handle.response is not None
        assert await missing(here, request(model="default"), both) == "model:default"


async def test_only_permitted_tools_are_offered_to_a_request_that_names_none() -> None:
    async with service() as here:
        narrow = caller(SEND, "tool:roll_*", "model:*")
        handle = await finished(await here.facade.execute(request(CALCULATE), narrow))
        assert handle.response is not None
        assert handle.response.tool_calls_made == []
        [setup, *_] = (await here.facade.records.steps(narrow, handle.request_id)).steps
        assert "'tools': ['roll_dice']" in str(setup)


async def test_a_plan_of_the_model_calls_only_permitted_tools() -> None:
    async with service() as here:
        narrow = caller(SEND, "tool:roll_dice", "model:*")
        handle = await finished(await here.facade.execute(request(CALCULATE, mode="plan"), narrow))
        assert handle.response is not None
        assert {call.name for call in handle.response.tool_calls_made} <= {"roll_dice"}
        steps = (await here.facade.records.steps(narrow, handle.request_id)).steps
        assert "ask_person" not in str(steps)


async def test_the_model_of_a_session_and_the_overrides_of_a_fork_need_their_rights() -> None:
    async with service() as here:
        await finished(await here.facade.execute(request(session_id="s", request_id="q"), LOCAL))
        await here.facade.sessions.update(LOCAL, "s", SessionChanges(model="two"))
        narrow = caller(SEND, "model:default")
        assert await missing(here, request(session_id="s"), narrow) == "model:two"
        for overrides, permission in (({"model": "two"}, "model:two"), ({"tools": ["calculate"]}, "tool:calculate")):
            with pytest.raises(Failure) as refused:
                await here.facade.fork(
                    "q", ForkRequest.model_validate({"from_step": 0, "overrides": overrides}), narrow
                )
            assert refused.value.details["permission"] == permission
        with pytest.raises(Failure) as refused:
            await here.facade.sessions.update(narrow, "s", SessionChanges(model="both"))
        assert refused.value.details["permission"] == "model:both"


async def test_a_fork_by_a_narrower_principal_replays_what_it_inherits_and_is_offered_less_from_there_on() -> None:
    async with service() as here:
        await finished(await here.facade.execute(request(CALCULATE, request_id="q"), LOCAL))
        narrow = caller(SEND, "model:*", "tool:roll_dice")
        asked = ForkRequest.model_validate(
            {"from_step": 2, "overrides": {"messages": [{"role": "user", "content": "Please calculate 2+2"}]}}
        )
        handle = await finished(await here.facade.fork("q", asked, narrow))
        assert handle.response is not None
        assert handle.response.error is None
        assert (await here.facade.executions.replay(narrow, handle.request_id)).identical
        assert "2+2" not in str(handle.response.tool_calls_made)


async def test_a_resumed_execution_goes_on_under_the_rights_of_its_admission() -> None:
    async with service() as here:
        narrow = caller(SEND, "tool:ask_person", "model:*")
        await finished(await here.facade.execute(request('Use ask_person: "May I?"', request_id="q"), narrow))
        answer = ResumeRequest(tool_id="ask_person", payload="yes")
        handle = await finished(await here.facade.executions.resume(LOCAL, "q", answer, subscribe=False))
        assert handle.response is not None
        history = await here.facade.executions.load_at_rest(LOCAL.own, "q")
        assert history.header.permissions == narrow.permissions


@pytest.mark.parametrize("command", ["execute", "fork", "cancel", "delete", "delete session", "change session"])
async def test_a_command_needs_the_permission_to_send_messages(command: str) -> None:
    reader = caller("can_view_full_history", "model:*", "tool:*")
    async with service() as here:
        await finished(await here.facade.execute(request(session_id="s", request_id="q"), LOCAL))
        facade = here.facade
        work = {
            "execute": lambda: facade.execute(request(), reader),
            "fork": lambda: facade.fork("q", ForkRequest(from_step=0), reader),
            "cancel": lambda: facade.executions.cancel(reader, "q"),
            "delete": lambda: facade.erasure.delete_execution(reader, "q", with_forks=False),
            "delete session": lambda: facade.erasure.delete_session(reader, "s", with_forks=False),
            "change session": lambda: facade.sessions.update(reader, "s", SessionChanges(state=1)),
        }[command]
        with pytest.raises(Failure) as refused:
            await work()
        assert (refused.value.status, refused.value.details) == (403, {"permission": SEND})
        assert (await facade.executions.show(reader, "q")).response is not None


async def test_the_catalogue_shows_only_what_the_principal_may_use() -> None:
    async with service() as here:
        narrow, views = Permissions.of(("tool:roll_dice", "model:both")), here.facade.introspection
        assert [tool.name for tool in await views.tools(narrow)] == ["roll_dice"]
        assert [(engine.name, engine.routes) for engine in views.engines(narrow)] == [
            ("one", ["both"]),
            ("two", ["both"]),
        ]
        assert views.engines(Permissions()) == await views.tools(Permissions()) == []
