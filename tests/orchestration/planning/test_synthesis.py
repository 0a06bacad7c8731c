"""Phase E: there is a valid final answer in every case, and it says how far the execution got."""

import itertools
import json
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import Any, cast

import anyio
import pytest
from pydantic import ValidationError

from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.prompts.answer import AnswerSynthesisInput, FinalAnswer, FinalAnswerOutput
from portico.capabilities.prompting.registry import default_registry
from portico.domain.failures import Code, OrchestrationFailure
from portico.orchestration.execution.effect import BranchStopped, BranchSuspended
from portico.orchestration.planning.synthesis import (
    ARTIFACTS,
    CUT_MARK,
    MAX_ARTIFACT_BYTES,
    PhaseEInput,
    answer_without_model,
    execute_phase_e,
)

Ask = Callable[[PromptId, Any], Awaitable[object]]
WHOLE: dict[str, Any] = {
    "plan_state": {"steps": [{"name": "look", "type": "retrieve", "status": "completed"}]},
    "execution_results": {"look": "Tom is grey."},
    "convergence_assessment": {"converged": True, "completeness_score": 0.99},
    "execution_passes": [{"pass": 1, "converged": False}, {"pass": 2, "converged": True}],
    "semantic_validation": {"issues": []},
    "task_profile": {"reasoning_depth": 3},
}
WRITTEN = {"answer_text": "Tom is grey.", "confidence": 0.9, "used_step_ids": ["look", "ghost"], "notes": "Short."}


def phase_e_input(**changed: Any) -> PhaseEInput:
    return PhaseEInput(
        **{
            "request": "What colour is Tom?",
            "correlation_id": "0" * 32,
            "execution_start_timestamp": datetime(2026, 1, 1, tzinfo=UTC),
            "convergence_status": "converged",
            "total_passes": 2,
            "total_refinements": 1,
            "ttl_remaining": 5,
            **WHOLE,
            **changed,
        }
    )


def answering(output: object) -> Ask:
    async def ask(prompt_id: PromptId, given: Any) -> object:
        assert prompt_id is PromptId.ANSWER_SYNTHESIS_USER
        assert isinstance(given, AnswerSynthesisInput)
        return output

    return ask


def raising(error: BaseException) -> Ask:
    async def ask(prompt_id: PromptId, given: Any) -> object:
        raise error

    return ask


async def missing_prompt(_prompt_id: PromptId, given: Any) -> object:
    return default_registry().get_prompt(cast("PromptId", "NOTHING"), given)


MODELS: dict[str, Ask] = {
    "answers": answering(FinalAnswerOutput.model_validate(WRITTEN)),
    "answers with extra keys": answering(
        {**WRITTEN, "mood": "good", "ttl_exhausted": True, "metadata": {"degraded": True, "reason": "lie", "mine": 1}}
    ),
    "answers garbage": answering("Tom {is"),
    "raises": raising(OrchestrationFailure(Code.ORCHESTRATION_BUDGET_EXCEEDED, "nothing is left")),
    "prompt missing": missing_prompt,
}
WORKING = ("answers", "answers with extra keys")
STATUSES = ("converged", "not_converged", "ttl_expired")


def all_states() -> Iterator[tuple[frozenset[str], PhaseEInput]]:
    for mask, ttl, passes, status in itertools.product(range(64), (0, 5), (0, 2), STATUSES):
        missing = frozenset(name for bit, name in enumerate(ARTIFACTS) if mask & 1 << bit)
        changed = dict.fromkeys(missing)
        yield missing, phase_e_input(total_passes=passes, ttl_remaining=ttl, convergence_status=status, **changed)


def expected_reason(missing: frozenset[str], data: PhaseEInput, model: str) -> str | None:
    if missing:
        return "incomplete_state"
    if data.ttl_remaining == 0:
        return "ttl_expiration"
    if data.total_passes == 0:
        return "zero_passes"
    if data.convergence_status != "converged":
        return "non_convergent"
    return None if model in WORKING else "synthesis_failed"


@pytest.mark.parametrize("model", MODELS)
async def test_every_state_and_every_model_gives_a_valid_answer_with_the_reason_of_the_highest_priority(
    model: str,
) -> None:
    count = 0
    for missing, data in all_states():
        answer = await execute_phase_e(data, MODELS[model])
        metadata, reason = answer.metadata, expected_reason(missing, data, model)
        assert FinalAnswer.model_validate(json.loads(answer.model_dump_json())) == answer
        assert answer.answer_text.strip()
        assert answer.ttl_exhausted is (True if data.ttl_remaining == 0 else None)
        assert answer.is_degraded is metadata["degraded"] is (reason is not None)
        assert metadata.get("reason") == reason
        assert metadata.get("missing_fields") == (None if reason is None else [m for m in ARTIFACTS if m in missing])
        assert ("degraded" in answer.answer_text) == (reason is not None)
        for name in ARTIFACTS:
            is_attached = reason is not None and name not in missing
            assert metadata.get(name) == (WHOLE[name] if is_attached else None)
        if model in WORKING:
            assert answer.answer_text.startswith("Tom is grey.")
            assert answer.used_step_ids == (["look"] if not {"plan_state", "execution_results"} <= missing else [])
        else:
            assert "No model wrote this answer" in (answer.notes or "")
            assert ("Tom is grey." in answer.answer_text) == ("execution_results" not in missing)
        count += 1
    assert count == 64 * 2 * 2 * 3


async def test_a_converged_answer_is_the_models_and_says_nothing_more() -> None:
    answer = await execute_phase_e(phase_e_input(), MODELS["answers with extra keys"])
    assert answer == FinalAnswer(
        answer_text="Tom is grey.",
        confidence=0.9,
        used_step_ids=["look"],
        notes="Short.",
        metadata={"mine": 1, "degraded": False},
    )


async def test_the_model_is_asked_with_everything_that_there_is() -> None:
    asked: list[object] = []

    async def ask(prompt_id: PromptId, given: Any) -> object:
        asked.append(given)
        return WRITTEN

    data = phase_e_input(task_profile=None)
    await execute_phase_e(data, ask)
    assert asked == [AnswerSynthesisInput.model_validate(dict(data))]


@pytest.mark.parametrize(
    "output",
    [
        None,
        7,
        "",
        [],
        {},
        {"text": "no"},
        {"answer_text": ""},
        {"answer_text": " \n"},
        {"answer_text": None},
        {"answer_text": "Tom", "confidence": 95},
        {"answer_text": "Tom", "metadata": None},
        {"answer_text": "Tom", "metadata": {"x": float("nan")}},
        "```json\n[]\n```",
        default_registry().get_prompt(
            PromptId.ANSWER_SYNTHESIS_USER, AnswerSynthesisInput.model_validate(dict(phase_e_input()))
        ),
    ],
    ids=repr,
)
async def test_an_output_that_is_no_answer_is_replaced_and_the_notes_say_so(output: object) -> None:
    answer = await execute_phase_e(phase_e_input(), answering(output))
    assert answer.metadata["reason"] == "synthesis_failed"
    assert "No model wrote this answer" in (answer.notes or "")
    assert '{"look": "Tom is grey."}' in answer.answer_text


@pytest.mark.parametrize(
    "output", [json.dumps(WRITTEN), {"text": json.dumps(WRITTEN)}, f"```\n{json.dumps(WRITTEN)}\n```"]
)
async def test_an_answer_may_be_the_text_of_a_reply(output: object) -> None:
    answer = await execute_phase_e(phase_e_input(), answering(output))
    assert (answer.answer_text, answer.metadata) == ("Tom is grey.", {"degraded": False})


@pytest.mark.parametrize("signal", [BranchStopped(), BranchSuspended(), KeyboardInterrupt(), GeneratorExit()])
async def test_the_kernels_signals_pass(signal: BaseException) -> None:
    with pytest.raises(type(signal)):
        await execute_phase_e(phase_e_input(), raising(signal))


async def test_a_cancellation_passes() -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await execute_phase_e(phase_e_input(), lambda *_: anyio.sleep_forever())
        raise AssertionError("the cancellation was swallowed")
    assert scope.cancelled_caught


async def test_the_cause_is_named_and_its_words_are_not_quoted() -> None:
    answer = await execute_phase_e(phase_e_input(), raising(ValueError("the secret input")))
    assert "ValueError" in (answer.notes or "")
    assert "secret" not in answer.model_dump_json()


@pytest.mark.parametrize("size", [MAX_ARTIFACT_BYTES - 13, MAX_ARTIFACT_BYTES - 12, MAX_ARTIFACT_BYTES, 10**6])
def test_a_long_artifact_is_cut_and_marked(size: int) -> None:
    shown = answer_without_model(phase_e_input(execution_results={"look": "é" * (size // 2)})).answer.metadata
    results = shown["execution_results"]
    written = results if isinstance(results, str) else json.dumps(results, ensure_ascii=False)
    assert len(written.encode()) <= MAX_ARTIFACT_BYTES
    assert isinstance(results, str) == (size > MAX_ARTIFACT_BYTES - 12)
    assert written.endswith(CUT_MARK) == isinstance(results, str)


def hostile_values() -> Iterator[object]:
    cycle: list[object] = []
    cycle.append(cycle)
    yield cycle
    yield float("nan")
    yield 10**40
    yield {("a", "b"): 1}
    yield b"\xff"
    yield datetime(2026, 1, 1, tzinfo=UTC)
    yield "\ud800"
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]
    yield deep


@pytest.mark.parametrize("value", [*hostile_values()], ids=range(8))
async def test_results_that_json_does_not_have_do_not_keep_an_answer_back(value: object) -> None:
    data = phase_e_input(execution_results={"look": value}, ttl_remaining=0)
    for ask in (MODELS["answers"], MODELS["raises"]):
        answer = await execute_phase_e(data, ask)
        assert answer.metadata["reason"] == "ttl_expiration"
        assert answer.model_dump_json()


def test_the_answer_and_the_state_refuse_fields_that_they_do_not_have() -> None:
    with pytest.raises(ValidationError):
        FinalAnswer.model_validate({"answer_text": "Tom", "mood": "good"})
    with pytest.raises(ValidationError):
        PhaseEInput.model_validate({**dict(phase_e_input()), "mood": "good"})
    assert FinalAnswerOutput.model_validate({"answer_text": "Tom", "mood": "good"}).model_dump() == {
        "answer_text": "Tom",
        "confidence": None,
        "used_step_ids": None,
        "notes": None,
        "ttl_exhausted": None,
        "metadata": {},
    }


@pytest.mark.parametrize("field", ["total_passes", "total_refinements", "ttl_remaining"])
def test_counts_may_be_zero_and_not_less(field: str) -> None:
    assert getattr(phase_e_input(**{field: 0}), field) == 0
    with pytest.raises(ValidationError):
        phase_e_input(**{field: -1})
