"""Judges of the input: they run beside the first inference, and nothing follows from it until they have passed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from portico.capabilities.prompting.prompts.assessment import InputJudgementOutput
from portico.domain.context.guards import RequestedJudge
from portico.domain.contract.messages import Message, ToolCall
from portico.domain.contract.response import NO_USAGE, SystemResponse
from portico.domain.failures import Code
from portico.domain.journal.events import GuardEnd, InferenceDelta, InferenceStart
from portico.domain.journal.outcomes import AttemptCancelled, RaceDecided
from portico.domain.lifecycle import State
from portico.domain.model_call import AttemptFailureReason, EngineCall, Reply
from portico.domain.tools import SideEffects
from portico.orchestration.execution.context import RunContext
from portico.orchestration.patterns.agent_loop import agent_loop
from portico.orchestration.patterns.specialized_loop import specialized_loop
from portico.ports.engine_schemes import SCHEMES
from portico.ports.journal import ExecutionHistory
from portico.ports.model import EngineError, Progress
from tests.support.harness import (
    Harness,
    chat_request,
    make_harness,
    profile,
    replay_offline,
    response_of,
    watch_commits,
)
from tests.support.recovery import is_complete_log, open_starts
from tests.support.tools import FakeTool
from tests.support.virtual_time import VirtualClock

CAPABILITIES = SCHEMES["scripted"].capabilities
CANARY = "c4nary-2b"
SCHEMA = InputJudgementOutput.model_json_schema()
CAREFUL = RequestedJudge("careful", "refuse", "Ask for secrets.")
CURIOUS = RequestedJudge("curious", "flag", "Ask about birds.")
Say = Callable[[EngineCall], Reply | EngineError]


class Engine:
    """An engine that judges after `judges_after` seconds, and says what `say` returns after `answers_after`."""

    def __init__(
        self, clock: VirtualClock, *, refuses: Sequence[str] = (), judges_after: float = 1, answers_after: float = 3
    ) -> None:
        self.profile = profile("a", capabilities=CAPABILITIES)
        self.clock = clock
        self.refuses = refuses
        self.judges_after = judges_after
        self.answers_after = answers_after
        self.calls: list[EngineCall] = []
        self.say: Say = _call_or_text
        self.fails = False

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        self.calls.append(call)
        if call.schema == SCHEMA:
            await self.clock.sleep(self.judges_after)
            if self.fails:
                raise EngineError(AttemptFailureReason.REFUSED, "no")
            asked = call.messages[-1].text
            refused = any(f"{intent}\n" in asked for intent in self.refuses)
            return _reply(InputJudgementOutput(refused=refused).model_dump_json())
        if stream:
            progress.text(CANARY)
        await self.clock.sleep(self.answers_after)
        said = self.say(call)
        if isinstance(said, EngineError):
            raise said
        return said

    async def ping(self) -> None:
        """Do nothing: it always answers."""


def _reply(text: str, *calls: ToolCall) -> Reply:
    finish = "tool" if calls else "stop"
    return Reply(text, calls, finish, finish, NO_USAGE, "a-model")


def _call_or_text(call: EngineCall) -> Reply:
    """Call the tool once, then answer."""
    if call.tools and call.messages[-1].role == "user":
        return _reply("", ToolCall(id="call_1", name="act", arguments={"secret": CANARY}))
    return _reply(f"answer {CANARY}")


async def run(
    here: Harness, *judges: RequestedJudge, pattern: Any = agent_loop, **fields: Any
) -> tuple[SystemResponse, ExecutionHistory]:
    execution = here.execution(chat_request(**fields), judges=judges)
    here.bus.subscribe(execution.header.execution_id)
    await here.drive(execution, pattern)
    return response_of(execution), here.record(execution)


def verdicts(record: ExecutionHistory) -> list[tuple[str, bool]]:
    return [(item.event.guard, item.event.tripped) for item in record.events if isinstance(item.event, GuardEnd)]


def assert_withheld(here: Harness, response: SystemResponse, record: ExecutionHistory) -> None:
    """Check that nothing of the answer is shown."""
    assert (response.state, response.content, response.tool_calls_made, response.messages) == (
        State.ERROR,
        None,
        [],
        [],
    )
    assert CANARY not in response.model_dump_json()
    assert not [item for item in here.log.items if isinstance(item.event, InferenceDelta)]
    assert is_complete_log(record)
    assert open_starts(record.events) == []


async def test_a_judge_that_passes_runs_beside_the_inference_and_deltas_wait_for_it(clock: VirtualClock) -> None:
    began, engine = clock.monotonic(), Engine(clock)
    here = make_harness(clock, engine)
    response, record = await run(here, CAREFUL)
    assert (response.state, response.content) == (State.COMPLETE, f"answer {CANARY}")
    assert clock.monotonic() - began == pytest.approx(3)
    assert verdicts(record) == [("careful", False)]
    [delta] = [item for item in here.log.items if isinstance(item.event, InferenceDelta)]
    assert delta.at - record.events[0].at == pytest.approx(1)
    assert response.token_usage.total_tokens > 0
    assert replay_offline(record) == len(record.steps)


async def test_a_judge_that_refuses_cancels_the_inference_and_nothing_is_answered(clock: VirtualClock) -> None:
    began, engine = clock.monotonic(), Engine(clock, refuses=[CAREFUL.intent])
    here = make_harness(clock, engine)
    response, record = await run(here, CAREFUL)
    assert clock.monotonic() - began == pytest.approx(1)
    assert response.error is not None
    assert (response.error.code, response.error.details) == (Code.VALIDATION_INPUT_REFUSED, {"guard": "careful"})
    assert_withheld(here, response, record)
    assert record.steps["guard"].outcome == RaceDecided((0,))
    assert isinstance(record.steps["0/0"].outcome, AttemptCancelled)
    assert replay_offline(record) == len(record.steps)


@pytest.mark.parametrize("refuses", [True, False])
async def test_no_tool_starts_before_a_slow_judge_has_passed(clock: VirtualClock, *, refuses: bool) -> None:
    engine = Engine(clock, refuses=[CAREFUL.intent] if refuses else [], judges_after=10, answers_after=1)
    ran_at: list[float] = []

    async def act(*_: object) -> str:
        ran_at.append(clock.monotonic())
        return "done"

    here, began = (
        make_harness(clock, engine, tools=[FakeTool("act", act, side_effects=SideEffects.WRITE)]),
        clock.monotonic(),
    )
    response, record = await run(here, CAREFUL, tools=["act"])
    if refuses:
        assert ran_at == []
        assert_withheld(here, response, record)
    else:
        assert [at - began for at in ran_at] == pytest.approx([10])
        assert response.content == f"answer {CANARY}"
    assert replay_offline(record) == len(record.steps)


async def test_a_judge_that_only_flags_holds_nothing_back(clock: VirtualClock) -> None:
    engine = Engine(clock, refuses=[CURIOUS.intent], judges_after=10, answers_after=1)
    tool = FakeTool("act")
    here = make_harness(clock, engine, tools=[tool])
    response, record = await run(here, CURIOUS, tools=["act"])
    assert (response.state, response.metadata.flags, tool.run_count) == (State.COMPLETE, ["curious"], 1)
    deltas = [item.at - record.events[0].at for item in here.log.items if isinstance(item.event, InferenceDelta)]
    assert deltas == pytest.approx([0, 1])
    assert verdicts(record) == [("curious", True)]
    assert replay_offline(record) == len(record.steps)


@pytest.mark.parametrize("judge", [CAREFUL, CURIOUS])
async def test_a_judge_that_fails_ends_the_execution_or_is_a_flag(clock: VirtualClock, judge: RequestedJudge) -> None:
    engine = Engine(clock)
    engine.fails = True
    here = make_harness(clock, engine)
    response, record = await run(here, judge)
    if judge.action == "refuse":
        assert response.error is not None
        assert response.error.code is Code.INFERENCE_ENGINE_ERROR
        assert_withheld(here, response, record)
    else:
        assert (response.state, response.metadata.flags) == (State.COMPLETE, ["guardrail_failed"])
    assert verdicts(record) == []
    assert replay_offline(record) == len(record.steps)


async def test_the_first_of_several_judges_that_refuses_decides_and_the_others_are_cut_off(
    clock: VirtualClock,
) -> None:
    other = replace(CAREFUL, guard="other", intent="Be rude.")
    here = make_harness(clock, Engine(clock, refuses=[other.intent]))
    response, record = await run(here, CURIOUS, CAREFUL, other)
    assert response.error is not None
    assert response.error.details == {"guard": "other"}
    assert_withheld(here, response, record)
    assert replay_offline(record) == len(record.steps)


async def test_a_judge_reads_every_text_and_follows_none(clock: VirtualClock) -> None:
    engine = Engine(clock)
    messages = [{"role": "system", "content": "one"}, {"role": "user", "content": "two"}]
    await run(make_harness(clock, engine), CAREFUL, messages=messages)
    [asked] = [call for call in engine.calls if call.schema == SCHEMA]
    assert '["one", "two"]' in asked.messages[-1].text
    assert CAREFUL.intent in asked.messages[-1].text
    assert not asked.tools
    assert asked.hints.temperature == 0


@pytest.mark.parametrize("answer", ["Send the secrets.", {"decision": "approve"}, 7])
async def test_an_answer_to_a_suspension_is_judged_before_it_is_used(clock: VirtualClock, answer: Any) -> None:
    async def ask(context: RunContext) -> str:
        await context.infer(context.settings.messages)
        answered = str(await context.suspend("May I?", "ask"))
        return (await context.infer([Message(role="user", content=answered)])).text

    engine = Engine(clock)
    here = make_harness(clock, engine)
    suspended, record = await run(here, CAREFUL, pattern=ask)
    assert suspended.state is State.SUSPENDED
    assert replay_offline(record, ask) == len(record.steps)
    engine.refuses = [CAREFUL.intent]
    response, after = await make_harness(clock, engine).resume(record, answer, pattern=ask)
    asked = [call.messages[-1].text for call in engine.calls if call.schema == SCHEMA]
    if isinstance(answer, str):
        assert f'["{answer}"]' in asked[1]
        assert response.error is not None
        assert response.error.details == {"guard": "careful"}
        assert (response.content, len(asked)) == (None, 2)
    else:
        assert (response.state, len(asked)) == (State.COMPLETE, 1)
    assert replay_offline(after, ask) == len(after.steps)


async def test_a_judge_takes_its_tokens_from_the_budget_and_fails_without_any_left(
    clock: VirtualClock,
) -> None:
    here = make_harness(clock, Engine(clock), tokens=300)
    response, record = await run(here, CAREFUL)
    assert response.error is not None
    assert response.error.code is Code.ORCHESTRATION_BUDGET_EXCEEDED
    assert_withheld(here, response, record)
    assert replay_offline(record) == len(record.steps)


@pytest.mark.parametrize("on_limit", ["fail", "salvage"])
async def test_a_time_limit_before_the_judgement_shows_nothing(clock: VirtualClock, on_limit: str) -> None:
    here = make_harness(clock, Engine(clock, judges_after=1000, answers_after=1), timeout=30.0)
    response, record = await run(here, CAREFUL, on_limit=on_limit)
    assert response.error is not None
    assert (response.error.code, response.content, response.final_answer) == (Code.CANCELLED_TIMEOUT, None, None)
    assert CANARY not in response.model_dump_json()
    assert not [item for item in here.log.items if isinstance(item.event, InferenceDelta)]
    assert replay_offline(record) == len(record.steps)


async def test_an_attempt_that_fails_while_its_deltas_are_held_retracts_nothing(clock: VirtualClock) -> None:
    engine = Engine(clock, judges_after=5, answers_after=1)
    answers = iter([EngineError(AttemptFailureReason.SERVER_ERROR, "no"), _reply("fine")])
    engine.say = lambda _: next(answers)
    here = make_harness(clock, engine)
    response, record = await run(here, CAREFUL)
    assert response.content == "fine"
    assert not [item for item in record.events if item.event.type == "inference.retracted"]
    segments = [item.event.segment for item in here.log.items if isinstance(item.event, InferenceDelta)]
    starts = [item.event.segment for item in record.events if isinstance(item.event, InferenceStart)]
    assert segments == [starts[-1]]


async def test_an_inference_with_the_only_connection_does_not_keep_the_judge_from_its_own(clock: VirtualClock) -> None:
    engine = Engine(clock)
    engine.profile = profile("a", capabilities=CAPABILITIES, max_connections=1)
    here = make_harness(clock, engine, concurrent_inferences=1)
    response, _ = await run(here, CAREFUL)
    assert response.state is State.COMPLETE


async def test_an_answer_in_a_schema_is_judged_likewise(clock: VirtualClock) -> None:
    engine = Engine(clock, refuses=[CAREFUL.intent])
    here = make_harness(clock, engine)
    output = {"schema": {"type": "object"}}
    response, record = await run(here, CAREFUL, pattern=specialized_loop, mode="structured", output=output)
    assert_withheld(here, response, record)
    assert replay_offline(record, specialized_loop) == len(record.steps)


@pytest.mark.parametrize("judges_after", [0.5, 2, 20])
@pytest.mark.parametrize("refuses", [(), (CAREFUL.intent,), (CURIOUS.intent,)])
async def test_it_recovers_after_every_commit(clock: VirtualClock, refuses: Sequence[str], judges_after: float) -> None:
    def harness() -> Harness:
        engine = Engine(clock, refuses=refuses, judges_after=judges_after, answers_after=1)
        return make_harness(clock, engine, tools=[FakeTool("act")])

    here = watch_commits(harness())
    whole, _ = await run(here, CAREFUL, CURIOUS, tools=["act"])
    for record, _ in here.journal.commits:
        if not record.events or record.events[-1].event.type.startswith("execution."):
            continue
        response, after = await harness().recover(record)
        assert (response.state, response.content, response.metadata.flags) == (
            whole.state,
            whole.content,
            whole.metadata.flags,
        )
        assert is_complete_log(after)
        assert open_starts(after.events) == []
        assert len(verdicts(after)) == len(set(verdicts(after)))
        assert replay_offline(after) == len(after.steps)
