"""Views and resumes: a view is whole at any time; answers at the same time are recorded, and it continues once."""

from pathlib import Path
from typing import Any

import anyio

from portico.domain.access.principal import LOCAL
from portico.domain.contract.request import SystemRequest
from portico.domain.failures import Code, RequestFailure
from portico.domain.fingerprints import received_digest
from portico.domain.lifecycle import State
from portico.orchestration.executions import ResumeAccepted
from portico.orchestration.facade import DEFAULT_OPTIONS, CallOptions
from portico.orchestration.runtime.handle import ExecutionHandle
from portico.orchestration.runtime.resume import ResumeRequest
from tests.support.golden_journals import WHEN, WHO, open_service_on, wait_for_end


async def test_concurrent_answers_to_two_suspensions_continue_the_execution_once(tmp_path: Path) -> None:
    async with open_service_on(tmp_path / "portico.db") as service:
        executions = service.facade.executions
        request = {"messages": [{"role": "user", "content": "Ask"}], "mode": "plan", "plan": {"steps": [WHO, WHEN]}}
        handle = await service.facade.execute(SystemRequest.model_validate({"request_id": "q", **request}), LOCAL)
        await wait_for_end(handle)
        results: list[ExecutionHandle | ResumeAccepted | Code] = []

        async def answer(suspension_id: str) -> None:
            given = ResumeRequest(tool_id="ask_person", payload="yes", suspension_id=suspension_id)
            try:
                results.append(await executions.resume(LOCAL, "q", given, subscribe=False))
            except RequestFailure as failure:
                results.append(failure.code)

        suspensions = (await executions.show(LOCAL, "q")).suspensions
        async with anyio.create_task_group() as group:
            for each in suspensions * 2:
                group.start_soon(answer, each.suspension_id)
        handles = [each for each in results if isinstance(each, ExecutionHandle)]
        assert len(suspensions) == 2
        assert len(handles) == 1
        assert len([each for each in results if isinstance(each, ResumeAccepted)]) == 1
        assert {each for each in results if isinstance(each, Code)} <= {
            Code.REQUEST_RESUME_MISMATCH,
            Code.REQUEST_RESUME_UNEXPECTED,
        }
        await wait_for_end(handles[0])
        assert (await executions.show(LOCAL, "q")).state is State.COMPLETE
        assert (await executions.replay(LOCAL, "q")).identical


async def test_a_view_says_suspended_only_with_the_open_suspensions(tmp_path: Path) -> None:
    async with open_service_on(tmp_path / "portico.db") as service:
        executions = service.facade.executions
        request = {"messages": [{"role": "user", "content": "Ask"}], "mode": "plan", "plan": {"steps": [WHO]}}
        seen: list[tuple[State, int, bool]] = []

        async def watch(handle: ExecutionHandle) -> None:
            done = anyio.Event()
            handle.add_done_callback(done.set)
            while not done.is_set():
                await anyio.lowlevel.checkpoint()
                view = await executions.show(LOCAL, "q")
                seen.append((view.state, len(view.suspensions), view.response is not None))

        asked = await service.facade.execute(SystemRequest.model_validate({"request_id": "q", **request}), LOCAL)
        assert isinstance(asked, ExecutionHandle)
        await watch(asked)
        view = await executions.show(LOCAL, "q")
        seen.append((view.state, len(view.suspensions), view.response is not None))
        resumed = await executions.resume(
            LOCAL, "q", ResumeRequest(tool_id="ask_person", payload="yes"), subscribe=False
        )
        assert isinstance(resumed, ExecutionHandle)
        await watch(resumed)
        assert (State.SUSPENDED, 1, True) in seen
        assert {each for each in seen if each[0] is State.SUSPENDED} == {(State.SUSPENDED, 1, True)}
        assert {each for each in seen if each[0] is State.EXECUTE} <= {(State.EXECUTE, 0, False)}


async def test_the_header_holds_the_digest_of_what_a_client_with_tools_has_sent(tmp_path: Path) -> None:
    first = {"role": "user", "content": "Hello"}
    tools = {"client_tools": [{"name": "read_file"}]}
    async with open_service_on(tmp_path / "portico.db") as service:

        async def digest_of(options: CallOptions = DEFAULT_OPTIONS, **fields: Any) -> str | None:
            request = SystemRequest.model_validate({"messages": [first], **fields})
            handle = await service.facade.execute(request, LOCAL, options)
            assert isinstance(handle, ExecutionHandle)
            await wait_for_end(handle)
            return (await service.facade.executions.load_at_rest(LOCAL.own, handle.request_id)).header.received_digest

        sent = SystemRequest.model_validate({"messages": [first, {"role": "assistant", "content": "Hi"}]}).messages
        assert await digest_of() is None
        assert await digest_of(**tools) == received_digest(sent[:1])
        assert (
            await digest_of(CallOptions(received=sent), **tools) == received_digest(sent) != received_digest(sent[:1])
        )
