"""Salvage: a limit ends an execution with a degraded answer from what it has done, in every mode and after a crash."""

import json
from typing import Any

import anyio
import pytest

from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.bootstrap.service import PATTERNS
from portico.capabilities.context.repair import is_whole
from portico.capabilities.tools.definition import tool
from portico.domain.contract.final_answer import FinalAnswer
from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code, RequestFailure
from portico.domain.journal.events import LifecycleTransition
from portico.domain.journal.step_key import StepKey
from portico.domain.lifecycle import State
from portico.domain.model_call import EngineCall, Reply
from portico.domain.tools import SideEffects
from portico.orchestration.planning.synthesis import CUT_MARK
from portico.orchestration.runtime.fork import inherited_steps
from portico.orchestration.runtime.step_list import step_page
from portico.ports.journal import ExecutionHistory
from portico.ports.model import Progress
from portico.ports.tool import ToolContext
from tests.support.harness import Harness, chat_request, make_harness, replay_offline, response_of, watch_commits
from tests.support.recovery import TERMINAL_TYPES, cancel_after, is_complete_log, open_starts, open_steps
from tests.support.salvage import LIMITED, SYNTHESIS, Limited, RespondingEngine, pattern_of, rolls, salvaging_harness
from tests.support.virtual_time import VirtualClock

BY_NAME = pytest.mark.parametrize("limited", LIMITED.values(), ids=LIMITED)


async def run(here: Harness, limited: Limited) -> tuple[SystemResponse, ExecutionHistory]:
    response, record = await here.run(chat_request(on_limit="salvage", **limited.request), *pattern_of(limited))
    assert replay_offline(record, *pattern_of(limited)) == len(record.steps)
    assert is_complete_log(record)
    assert open_starts(record.events) == open_steps(record.events) == []
    return response, record


def check_degraded(response: SystemResponse, limited: Limited) -> FinalAnswer:
    answer = response.final_answer
    assert answer is not None
    assert (response.state, response.error, response.content) == (State.COMPLETE, None, answer.answer_text)
    assert response.structured_output is None
    assert response.messages[-1].text == answer.answer_text
    assert is_whole(response.messages)
    assert answer.is_degraded
    assert {key: answer.metadata.get(key) for key in ("reason", "limit")} == {
        "reason": "limit_reached",
        "limit": limited.limit,
    }
    assert "missing_fields" not in answer.metadata
    assert answer.ttl_exhausted is None
    assert f"a limit of the request ended the work ({limited.limit})" in answer.answer_text
    found: Any = answer.metadata.get("execution_results") or {}
    assert {key: found[key] for key in limited.found} == limited.found
    return answer


@BY_NAME
async def test_a_limit_ends_the_execution_with_an_answer_from_what_it_found(
    clock: VirtualClock, limited: Limited
) -> None:
    began = clock.monotonic()
    here = salvaging_harness(clock, limited)
    response, record = await run(here, limited)
    answer = check_degraded(response, limited)
    assert answer.answer_text.startswith("It is grey.\n\nThis answer is degraded")
    states = [item.event.to_state for item in record.events if isinstance(item.event, LifecycleTransition)]
    assert states == limited.states.split()
    assert clock.monotonic() - began <= here.limits.timeout
    engine: Any = here.environment.catalogue.engines["default"]
    [question] = engine.questions
    assert all(json.dumps(value, ensure_ascii=False) in question for value in limited.found.values())


@BY_NAME
async def test_without_salvage_the_limit_is_a_failure(clock: VirtualClock, limited: Limited) -> None:
    here = salvaging_harness(clock, limited)
    response, _ = await here.run(chat_request(**limited.request), *pattern_of(limited))
    assert response.state in {State.ERROR, State.CANCELLED}
    assert response.error is not None
    assert (response.error.code, response.final_answer) == (limited.limit, None)


@BY_NAME
@pytest.mark.parametrize(
    "writes",
    [{"text": "garbage"}, {"fault": "refused"}, {**SYNTHESIS, "delay": 10_000}, {"text": '{"answer_text": ""}'}],
    ids=["garbage", "refused", "too late", "empty"],
)
async def test_if_no_model_can_write_the_answer_the_service_does_in_time(
    clock: VirtualClock, limited: Limited, writes: dict[str, Any]
) -> None:
    began = clock.monotonic()
    here = salvaging_harness(clock, limited, writes)
    response, _ = await run(here, limited)
    answer = check_degraded(response, limited)
    assert "No model wrote this answer" in (answer.notes or "")
    draft = limited.found.get("draft")
    assert draft is None or answer.answer_text.startswith(draft)
    assert clock.monotonic() - began <= here.limits.timeout + 5


@BY_NAME
async def test_it_goes_on_after_a_crash_at_any_commit(clock: VirtualClock, limited: Limited) -> None:
    here = watch_commits(salvaging_harness(clock, limited))
    await run(here, limited)
    for record, _ in here.journal.commits:
        if record.events and record.events[-1].event.type in TERMINAL_TYPES:
            continue
        response, after = await salvaging_harness(clock, limited).recover(record, *pattern_of(limited))
        check_degraded(response, limited)
        assert tuple(after.events[: len(record.events)]) == tuple(record.events)
        assert all(after.steps[key] == step for key, step in record.steps.items())
        assert is_complete_log(after)
        assert open_starts(after.events) == open_steps(after.events) == []
        assert replay_offline(after, *pattern_of(limited)) == len(after.steps)


@pytest.mark.parametrize("seconds", [50.0, 95.0])
async def test_a_cancel_is_no_limit_not_even_while_the_answer_is_written(clock: VirtualClock, seconds: float) -> None:
    limited = LIMITED["chat, time"]
    here = salvaging_harness(clock, limited, {**SYNTHESIS, "delay": 8})
    execution = here.execution(chat_request(on_limit="salvage"))
    async with anyio.create_task_group() as group:
        group.start_soon(cancel_after, clock, seconds, execution)
        await here.drive(execution, *pattern_of(limited))
    response = response_of(execution)
    assert (response.state, response.final_answer) == (State.CANCELLED, None)
    assert response.error is not None
    assert response.error.code is Code.CANCELLED_SIGNAL
    assert replay_offline(here.record(execution), *pattern_of(limited))


@BY_NAME
async def test_its_steps_can_be_listed(clock: VirtualClock, limited: Limited) -> None:
    _, record = await run(salvaging_harness(clock, limited), limited)
    views = step_page(record, PATTERNS).steps
    assert len(views) == len(record.steps)
    assert [each.kind for each in views if each.key == "limit"] == ["stop"] * ("limit" in record.steps)


async def test_a_fork_inherits_what_ended_before_the_time_limit_and_nothing_else(clock: VirtualClock) -> None:
    limited = LIMITED["chat, time in a later round"]
    here = salvaging_harness(clock, limited)
    _, record = await run(here, limited)
    assert list(record.steps).index("limit") < list(record.steps).index("2/0")
    with pytest.raises(RequestFailure, match="must be at most 2"):
        inherited_steps(record, 3)
    assert {StepKey(step.key).step_number for step in inherited_steps(record, 2)} == {None, 0, 1}
    assert "limit" not in [step.key for step in inherited_steps(record, 2)]


async def test_a_question_that_waits_when_the_time_is_over_is_not_asked_any_more(clock: VirtualClock) -> None:
    def works(call: EngineCall) -> dict[str, Any]:
        calls = [{"name": "ask_person", "arguments": {"question": "Grey?"}}, {"name": "wait", "arguments": {}}]
        return {"tool_calls": calls}

    @tool(side_effects=SideEffects.NONE, idempotent=True)
    async def wait(context: ToolContext) -> str:
        """Waits."""
        await context.clock.sleep(10_000)
        return "done"

    engine = RespondingEngine(clock, works)
    here = make_harness(clock, engine, tools=[*BUILTIN_TOOLS, wait], timeout=100)
    response, record = await here.run(chat_request(on_limit="salvage"))
    assert (response.state, response.suspensions) == (State.COMPLETE, [])
    assert response.final_answer is not None
    assert "execution_results" not in response.final_answer.metadata
    assert is_complete_log(record)
    assert replay_offline(record) == len(record.steps)


async def test_an_execution_that_reaches_no_limit_answers_as_usual(clock: VirtualClock) -> None:
    here = make_harness(clock, RespondingEngine(clock, lambda _: {"text": "Grey.", "delay": 89}), timeout=100)
    response, record = await here.run(chat_request(on_limit="salvage"))
    assert (response.state, response.content, response.final_answer) == (State.COMPLETE, "Grey.", None)
    assert list(record.steps) == ["prepare", "0", "0/0"]
    assert replay_offline(record) == len(record.steps)


@pytest.mark.parametrize(("timeout", "reserve"), [(100, 10), (300, 30), (600, 30)])
async def test_the_time_of_the_answer_is_a_tenth_and_at_most_half_a_minute(
    clock: VirtualClock, timeout: float, reserve: float
) -> None:
    began = clock.monotonic()
    limited = LIMITED["chat, time"]
    here = salvaging_harness(clock, Limited(limited.request, limited.works, limited.limit, bounds={"timeout": timeout}))
    await run(here, limited)
    assert clock.monotonic() - began == pytest.approx(timeout - reserve)


async def test_the_text_that_was_streamed_so_far_is_the_draft(clock: VirtualClock) -> None:
    class Stalling(RespondingEngine):
        async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
            progress.text("Tom is gr")
            return await super().attempt(call, progress, stream=stream)

    here = make_harness(clock, Stalling(clock, lambda _: {"delay": 1_000}, {"text": "garbage"}), timeout=100)
    response, record = await here.run(chat_request(on_limit="salvage"))
    assert response.content is not None
    assert response.content.startswith("Tom is gr\n\nThis answer is degraded")
    assert replay_offline(record) == len(record.steps)


async def test_the_answer_is_written_within_the_tokens_that_were_withheld(clock: VirtualClock) -> None:
    limited = LIMITED["chat, tokens"]
    here = salvaging_harness(clock, limited)
    response, _ = await run(here, limited)
    assert here.limits.tokens is not None
    assert response.token_usage.total_tokens <= here.limits.tokens
    assert response.metadata.tool_rounds == 5


async def test_a_budget_without_room_for_anything_is_answered_without_a_model(clock: VirtualClock) -> None:
    engine = RespondingEngine(clock, rolls)
    here = make_harness(clock, engine, tokens=5)
    response, record = await here.run(chat_request(on_limit="salvage"))
    assert response.final_answer is not None
    assert response.final_answer.metadata["limit"] == Code.ORCHESTRATION_BUDGET_EXCEEDED
    assert engine.questions == []
    assert replay_offline(record) == len(record.steps)


async def test_results_that_do_not_fit_the_context_window_are_cut_oldest_first(clock: VirtualClock) -> None:
    plan = {"steps": [{"name": name, "type": "infer", "input": f"Step {name}."} for name in ("one", "two", "slow")]}

    def works(call: Any) -> dict[str, Any]:
        text = call.messages[-1].text
        return {"text": f"{text} " + "long " * 1500, "delay": 10_000 if "slow" in text else 0}

    limited = Limited({"mode": "plan", "plan": plan}, works, Code.CANCELLED_TIMEOUT, bounds={"timeout": 100})
    here = salvaging_harness(clock, limited, context_window=4_000)
    response, _ = await run(here, limited)
    check_degraded(response, limited)
    engine: Any = here.environment.catalogue.engines["default"]
    [question] = engine.questions
    results = json.loads(question.split("<execution_results-")[1].split("\n")[1])
    assert results["one"].endswith(CUT_MARK)
    assert results["two"] == f"Step two. {'long ' * 1500}"
    assert len(results["one"]) < len(results["two"])
