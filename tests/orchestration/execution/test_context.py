"""The run context: branches, questions, non-idempotent calls, misuse, and settings that cannot leak."""

from dataclasses import replace

import pytest

from portico.capabilities.models.context_window import measure
from portico.capabilities.models.tokens import UNCORRECTED
from portico.capabilities.tools.definition import tool
from portico.domain.failures import Code, InferenceFailure
from portico.domain.lifecycle import State
from portico.domain.tools import SideEffects
from portico.orchestration.execution.context import RunContext
from portico.orchestration.execution.position import PatternMisuse
from tests.support.harness import chat_request, make_harness, replay_offline, response_of, scripted_engine
from tests.support.virtual_time import VirtualClock


async def infer(context: RunContext) -> str:
    return (await context.infer(context.settings.messages)).text


async def both(context: RunContext) -> str:
    return " ".join(str(each) for each in await context.gather([infer, infer]))


async def test_branches_run_at_once_and_answer_in_branch_order(clock: VirtualClock) -> None:
    began = clock.monotonic()
    engine = scripted_engine(clock, "a", {"text": "first", "delay": 2}, {"text": "second", "delay": 1})
    response, record = await make_harness(clock, engine).run(chat_request(), both)
    assert response.content == "first second"
    assert clock.monotonic() - began == pytest.approx(2)
    assert sorted(record.steps) == ["0/0/0", "0/0/0/0", "0/1/0", "0/1/0/0", "prepare"]
    assert replay_offline(record, both) == len(record.steps)


@pytest.mark.parametrize(("surplus", "code"), [(0, None), (1, Code.INFERENCE_CONTEXT_EXCEEDED)])
async def test_a_context_of_exactly_the_window_is_accepted_and_one_token_more_is_not(
    clock: VirtualClock, surplus: int, code: Code | None
) -> None:
    """Both PREPARE and the inference measure it."""
    request = chat_request("word " * 100)
    used = measure(request.messages, (), UNCORRECTED).used
    engine = scripted_engine(clock, "a", {"text": "hi"}, context_window=used + 10 - surplus, response_reserve=10)
    response, _ = await make_harness(clock, engine).run(request)
    assert (response.error and response.error.code) == code
    assert response.state is (State.COMPLETE if code is None else State.ERROR)


async def test_a_failed_branch_is_its_failure_as_a_value_and_never_fails_fast(clock: VirtualClock) -> None:
    async def tolerant(context: RunContext) -> str:
        results = await context.gather([infer, infer])
        return " ".join(each.code if isinstance(each, InferenceFailure) else each for each in results)

    engine = scripted_engine(clock, "a", {"fault": "refused"}, {"text": "fine", "delay": 3})
    response, record = await make_harness(clock, engine).run(chat_request(), tolerant)
    assert response.content == "INFERENCE_ENGINE_ERROR fine"
    assert replay_offline(record, tolerant) == len(record.steps)


async def test_the_parents_run_is_shut_while_its_branches_run(clock: VirtualClock) -> None:
    raised: list[str] = []

    async def greedy(context: RunContext) -> str:
        async def steal(_: RunContext) -> str:
            try:
                return await infer(context)
            except PatternMisuse as misuse:
                raised.append(str(misuse))
                return ""

        await context.gather([steal])
        return "ok"

    await make_harness(clock, scripted_engine(clock, "a")).run(chat_request(), greedy)
    assert raised == ["use the context you were given; the parent's is closed meanwhile"]


async def test_what_one_reply_asks_for_goes_into_one_call_tools(clock: VirtualClock) -> None:
    raised: list[str] = []

    async def partial(context: RunContext) -> str:
        reply = await context.infer(context.settings.messages)
        try:
            await context.call_tools(reply.tool_calls[:1])
        except PatternMisuse as misuse:
            raised.append(str(misuse))
        return "ok"

    await make_harness(clock, scripted_engine(clock, "a", {"tool_calls": [{"name": "x"}, {"name": "y"}]})).run(
        chat_request(), partial
    )
    assert raised == ["all calls of one reply belong in one call_tools"]


async def question(context: RunContext) -> str:
    answer = await context.suspend({"prompt": "go on?"}, "gate")
    return f"{answer} {(await context.infer(context.settings.messages)).text}"


async def test_a_question_suspends_and_its_recorded_answer_continues_from_there(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "a", {"text": "on"}))
    response, record = await here.run(chat_request(), question)
    assert response.state is State.SUSPENDED
    [open_question] = response.suspensions
    assert (open_question.tool_id, open_question.value) == ("gate", {"prompt": "go on?"})
    assert record.events[-1].event.type == "execution.suspended"
    assert replay_offline(record, question) == len(record.steps)

    elsewhere = make_harness(clock, scripted_engine(clock, "a", {"text": "on"}))
    response, after = await elsewhere.resume(record, "yes", pattern=question)
    assert (response.state, response.content) == (State.COMPLETE, "yes on")
    assert replay_offline(after, question) == len(after.steps)


async def test_siblings_settle_before_the_suspension_and_all_questions_are_shown_at_once(clock: VirtualClock) -> None:
    async def gate(context: RunContext) -> str:
        return str(await context.suspend("?", "gate"))

    async def mixed(context: RunContext) -> str:
        return str(await context.gather([gate, infer, gate]))

    here = make_harness(clock, scripted_engine(clock, "a", {"text": "finished", "delay": 5}))
    response, record = await here.run(chat_request(), mixed)
    assert [each.suspension_id for each in response.suspensions] == ["0/0/0", "0/2/0"]
    assert "0/1/0/0" in record.steps
    assert replay_offline(record, mixed) == len(record.steps)


def writing(clock: VirtualClock, seconds: float, acts: list[str], timeout: float | None = None):
    @tool(side_effects=SideEffects.WRITE, idempotent=False, timeout=timeout)
    async def write() -> str:
        """Write slowly."""
        acts.append("began")
        await clock.sleep(seconds)
        acts.append("done")
        return "written"

    return write


WRITE = {"tool_calls": [{"name": "write"}]}


async def test_an_unsafe_call_is_shielded_from_a_cancel_and_its_outcome_recorded(clock: VirtualClock) -> None:
    acts: list[str] = []
    here = make_harness(clock, scripted_engine(clock, "a", WRITE), tools=[writing(clock, 3, acts)], timeout=2)
    response, record = await here.run(chat_request())
    assert acts == ["began", "done"]
    assert response.error is not None
    assert response.error.code is Code.CANCELLED_TIMEOUT
    assert response.tool_calls_made[0].result == "written"
    assert replay_offline(record) == len(record.steps)


async def test_an_unsafe_call_beyond_the_deadline_and_its_grace_is_unknown_and_the_end_in_time(
    clock: VirtualClock,
) -> None:
    acts: list[str] = []
    began = clock.monotonic()
    here = make_harness(clock, scripted_engine(clock, "a", WRITE), tools=[writing(clock, 100, acts)], timeout=2)
    response, record = await here.run(chat_request())
    assert clock.monotonic() - began <= 2 + 5
    assert response.state is State.CANCELLED
    [end] = [item.event for item in record.events if item.event.type == "tool.end"]
    assert end.error_code is Code.TOOL_OUTCOME_UNKNOWN
    assert replay_offline(record) == len(record.steps)


async def test_an_unsafe_call_that_timed_out_by_itself_waits_for_a_person(clock: VirtualClock) -> None:
    acts: list[str] = []
    here = make_harness(clock, scripted_engine(clock, "a", WRITE), tools=[writing(clock, 100, acts, timeout=1)])
    response, record = await here.run(chat_request())
    assert response.state is State.SUSPENDED
    [waiting] = response.suspensions
    assert (waiting.kind, waiting.tool_id, waiting.tool_call_id) == ("unknown_outcome", "write", "call_1")
    assert waiting.value == {"tool": "write", "arguments": {}}
    response, _ = await make_harness(clock, scripted_engine(clock, "a"), tools=[writing(clock, 0, acts)]).recover(
        record
    )
    assert response.state is State.SUSPENDED
    assert acts == ["began"]


async def test_a_bug_in_a_pattern_still_ends_the_execution_exactly_once(clock: VirtualClock) -> None:
    async def broken(context: RunContext) -> str:
        await context.infer(context.settings.messages)
        raise KeyError("our mistake")

    here = make_harness(clock, scripted_engine(clock, "a", {"text": "hi"}))
    execution = here.execution(chat_request())
    with pytest.raises(KeyError):
        await here.drive(execution, broken)
    assert response_of(execution).error is not None
    assert response_of(execution).error.code is Code.ORCHESTRATION_INVALID_TRANSITION
    assert [item.event.type for item in here.record(execution).events][-1] == "execution.failed"


SHARED = {"execution", "progress"}
"""What the positions of all branches refer to: the execution itself and what its run has come to."""


def changeable(context: RunContext) -> dict[str, object]:
    """Return the mutable objects of a position and its conversation, by name."""
    position = context._position
    conversation = {f"conversation.{name}": each for name, each in vars(position.conversation).items()}
    return {
        name: each
        for name, each in (vars(position) | conversation).items()
        if name not in SHARED and not isinstance(each, str | int | float | bool | tuple | frozenset | None)
    }


async def test_a_branch_shares_nothing_that_can_change_with_its_siblings_or_its_parent(clock: VirtualClock) -> None:
    contexts: list[RunContext] = []

    async def look(context: RunContext) -> str:
        contexts.append(context)
        return await infer(context)

    async def pattern(context: RunContext) -> str:
        contexts.append(context)
        await infer(context)
        await context.gather([look, look])
        return await context.with_timeout(5, look)

    engine = scripted_engine(clock, "a", *[{"text": text} for text in "abcd"])
    await make_harness(clock, engine).run(chat_request(), pattern)
    assert len(contexts) == 4
    for number, one in enumerate(contexts):
        for other in contexts[:number]:
            shared = {id(each) for each in changeable(one).values()} & {id(each) for each in changeable(other).values()}
            names = [name for name, each in changeable(one).items() if id(each) in shared]
            assert set(names) <= {"conversation._last_reply", "conversation.setup"}, names


async def test_settings_are_derived_and_never_changed(clock: VirtualClock) -> None:
    async def pattern(context: RunContext) -> str:
        derived = context.with_settings(replace(context.settings, model="b"))
        with pytest.raises(AttributeError):
            context.model = "b"
        assert (context.settings.model, derived.settings.model) == (None, "b")
        return await infer(derived)

    engines = [scripted_engine(clock, name, {"text": name}) for name in ("a", "b")]
    response, record = await make_harness(clock, *engines).run(chat_request(), pattern)
    assert response.content == "b"
    assert replay_offline(record, pattern) == len(record.steps)


async def test_a_branch_starts_with_the_settings_of_its_parent_at_that_time(clock: VirtualClock) -> None:
    async def model(context: RunContext) -> str:
        return str(context.settings.model)

    async def pattern(context: RunContext) -> str:
        derived = context.with_settings(replace(context.settings, model="b"))
        return " ".join(map(str, [*await derived.gather([model]), *await context.gather([model])]))

    response, _ = await make_harness(clock, scripted_engine(clock, "a")).run(chat_request(), pattern)
    assert response.content == "b None"


def test_a_context_offers_a_pattern_twenty_things_at_most() -> None:
    assert len([name for name in vars(RunContext) if not name.startswith("_")]) <= 20
