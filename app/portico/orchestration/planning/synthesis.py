"""Phase E: the final answer of an execution, written by a model or, where that fails, by the service itself [003].

Theory of operation

1. There is an answer in every case. If the model's cannot be used, the answer says so and shows what was found.
2. The service alone says how far the execution got. The model writes the text, its confidence, the names of the steps
   that it used, and notes; what it writes into our members of `metadata` is dropped.
3. A degraded answer has one of the reasons of `_reasons`, the first that holds. What was found goes with it, under the
   names of the input; parts that are too long are cut and end in a mark.
4. Salvage is the same for an execution without passes that a limit ended: its only reason is `limit_reached`, and it
   misses nothing that it should have had. A draft takes the place of the text that no model wrote.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from pydantic import BaseModel, JsonValue

from portico.capabilities.guards.sensitive_text import beginning
from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.prompts.answer import AnswerSynthesisInput, FinalAnswer, FinalAnswerOutput
from portico.capabilities.prompting.registry import default_registry
from portico.domain.contract.final_answer import PhaseEInput
from portico.domain.contract.response import AnswerPart
from portico.domain.failures import Code, Failure
from portico.domain.pattern_result import PatternResult
from portico.domain.value import replace, value
from portico.orchestration.execution.branches import has_diverged

__all__ = [
    "FinalAnswer",
    "PhaseEInput",
    "SynthesizedAnswer",
    "answer_in_passes",
    "answer_without_model",
    "execute_phase_e",
    "salvage_answer",
]

Ask: TypeAlias = Callable[[PromptId, AnswerSynthesisInput], Awaitable[object]]
"""Asks a model and returns its output: a `FinalAnswerOutput`, its JSON, or its members."""
ARTIFACTS: Final = (
    "plan_state",
    "execution_results",
    "convergence_assessment",
    "execution_passes",
    "semantic_validation",
    "task_profile",
)
"""The parts of the input that an execution may not have reached."""
MAX_ARTIFACT_BYTES: Final = 256 * 1024
CUT_MARK: Final = "… [cut]"
_SHOWN_CHARACTERS: Final = 4000
"""Most characters of the results that stand in an answer which no model wrote."""
_OWN_METADATA: Final = frozenset({"degraded", "reason", "missing_fields", "limit", *ARTIFACTS})
_WHY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "incomplete_state": "the work ended before all of its parts were reached",
        "ttl_expiration": "no pass was left",
        "zero_passes": "no pass ran",
        "non_convergent": "the result was not found complete and consistent",
        "limit_reached": "a limit of the request ended the work",
        "synthesis_failed": "no model could write it",
    }
)


@value
class SynthesizedAnswer:
    """A final answer, and if a model wrote its text. The service's own text shows what was found."""

    answer: FinalAnswer
    is_by_model: bool

    def added_to(self, result: PatternResult) -> PatternResult:
        """Return the result with this final answer, whose text takes the place of its own."""
        of_text: tuple[AnswerPart, ...] = () if self.is_by_model else ("text",)
        repeated = (*of_text, *(part for part in result.repeated if part != "text"))
        return replace(result, content=self.answer.answer_text, final_answer=self.answer, repeated=repeated)


@value
class _Ending:
    """The end of an execution, as its answer tells it; without a `reason` the answer is not degraded."""

    data: PhaseEInput
    reason: str | None
    limit: Code | None = None
    is_salvage: bool = False

    @property
    def ttl_exhausted(self) -> bool | None:
        """True if no pass was left; None if there is one, or there are none to count."""
        return True if self.data.ttl_remaining == 0 and not self.is_salvage else None

    @property
    def found(self) -> dict[str, object]:
        """The parts of the input that the execution reached, by name."""
        return {name: value for name in ARTIFACTS if (value := getattr(self.data, name)) is not None}

    @property
    def sentence(self) -> str:
        """The sentence about a degraded answer: why it is, what is missing, and what there is."""
        why = _WHY[self.reason or "synthesis_failed"] + (f" ({self.limit})" if self.limit else "")
        missing = "" if self.is_salvage else f"; missing: {_names(_missing(self.data))}"
        found = "" if self.is_salvage and not self.found else f"; available: {_names(self.found)}"
        return f"This answer is degraded: {why}{missing}{found}."

    def metadata(self, of_model: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return the members of the model's metadata that are not ours, and ours."""
        others = {name: value for name, value in of_model.items() if name not in _OWN_METADATA}
        if self.reason is None:
            return {**others, "degraded": False}
        own: dict[str, JsonValue] = {"degraded": True, "reason": self.reason}
        if not self.is_salvage:
            own["missing_fields"] = list(_missing(self.data))
        if self.limit is not None:
            own["limit"] = self.limit.value
        return {**others, **own, **{name: bounded_value(value) for name, value in self.found.items()}}


async def execute_phase_e(data: PhaseEInput, ask: Ask, *, limit: Code | None = None) -> FinalAnswer:
    """Return the final answer of an execution in passes, as `answer_in_passes` does."""
    return (await answer_in_passes(data, ask, limit=limit)).answer


async def answer_in_passes(data: PhaseEInput, ask: Ask, *, limit: Code | None = None) -> SynthesizedAnswer:
    """Return the final answer of an execution in passes; `limit` is the code of the limit that ended it, if one did.

    It never raises an Exception; cancellation and the kernel's own signals pass, that of a replay that diverged too.
    """
    return await _answer(_Ending(data, next(_reasons(data, limit), None), limit), ask)


async def salvage_answer(data: PhaseEInput, limit: Code, ask: Ask, draft: str = "") -> SynthesizedAnswer:
    """Return the final answer of an execution without passes that a limit ended. It raises as little as phase E."""
    return await _answer(_Ending(data, "limit_reached", limit, is_salvage=True), ask, draft)


def answer_without_model(data: PhaseEInput) -> SynthesizedAnswer:
    """Return the final answer that the service writes itself, because no model may be asked any more."""
    return _own_answer(_Ending(data, next(_reasons(data), None)), "none was asked")


async def _answer(ending: _Ending, ask: Ask, draft: str = "") -> SynthesizedAnswer:
    try:
        asked = AnswerSynthesisInput(**dict(ending.data), has_reached_limit=ending.limit is not None)
        written = _read(await ask(PromptId.ANSWER_SYNTHESIS_USER, asked))
    # An answer is owed even if the model, its provider, a prompt of the deployment or our own code fails.
    except Exception as cause:
        if has_diverged(cause):
            raise
        return _own_answer(ending, cause.code if isinstance(cause, Failure) else type(cause).__name__, draft)
    text = written.answer_text
    answer = FinalAnswer(
        answer_text=text if ending.reason is None else f"{text}\n\n{ending.sentence}",
        confidence=written.confidence,
        used_step_ids=_known_steps(written.used_step_ids, ending.data),
        notes=written.notes,
        ttl_exhausted=ending.ttl_exhausted,
        metadata=ending.metadata(written.metadata),
    )
    return SynthesizedAnswer(answer, is_by_model=True)


def _own_answer(ending: _Ending, cause: str, draft: str = "") -> SynthesizedAnswer:
    """Return the answer that no model wrote, for that cause, which does not quote what went wrong."""
    ending = replace(ending, reason=ending.reason or "synthesis_failed")
    parts = (draft, ending.sentence) if draft else (ending.sentence, _shown(ending.data.execution_results))
    answer = FinalAnswer(
        answer_text="\n\n".join(filter(None, parts)),
        used_step_ids=[],
        notes=f"No model wrote this answer: {cause}.",
        ttl_exhausted=ending.ttl_exhausted,
        metadata=ending.metadata({}),
    )
    return SynthesizedAnswer(answer, is_by_model=False)


def _read(output: object) -> FinalAnswerOutput:
    """Return the model's output with unknown fields dropped.

    Raises: JSONExtractionError; pydantic.ValidationError; TypeError for anything but text and members.
    """
    if isinstance(output, BaseModel):
        output = output.model_dump()
    if isinstance(output, str) or (isinstance(output, Mapping) and "answer_text" not in output and "text" in output):
        return default_registry().validate_output(PromptId.ANSWER_SYNTHESIS_USER, output, FinalAnswerOutput)
    if not isinstance(output, Mapping):
        raise TypeError("a model's output is a text or an object")
    return FinalAnswerOutput.model_validate(dict(output))


def _reasons(data: PhaseEInput, limit: Code | None = None) -> Iterator[str]:
    """Yield the reasons for which the answer is degraded, by priority."""
    if any(True for _ in _missing(data)):
        yield "incomplete_state"
    if data.ttl_remaining == 0:
        yield "ttl_expiration"
    if data.total_passes == 0:
        yield "zero_passes"
    if data.convergence_status != "converged":
        yield "non_convergent"
    if limit is not None:
        yield "limit_reached"


def _missing(data: PhaseEInput) -> Iterator[str]:
    return (name for name in ARTIFACTS if getattr(data, name) is None)


def _names(names: Iterable[str]) -> str:
    return ", ".join(name.replace("_", " ") for name in names) or "nothing"


def bounded_value(value: object) -> JsonValue:
    """Return the value as JSON; one of more than 256 KiB is the beginning of its text and ends in a mark."""
    written = _json(value).encode()
    if len(written) <= MAX_ARTIFACT_BYTES:
        found: JsonValue = json.loads(written, parse_constant=str)
        return found
    fitting = written[: MAX_ARTIFACT_BYTES - len(CUT_MARK.encode())].decode(errors="ignore")
    return beginning(written.decode(), len(fitting)) + CUT_MARK


def _json(value: object) -> str:
    """Return the value as JSON; what JSON does not have is text."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str).encode(errors="replace").decode()
    except (TypeError, ValueError, RecursionError):
        return '"[cannot be shown]"'


def _shown(value: object) -> str:
    """Return the beginning of what was found, as text; empty if nothing was."""
    if not value:
        return ""
    text = _json(value)
    return text if len(text) <= _SHOWN_CHARACTERS else beginning(text, _SHOWN_CHARACTERS) + CUT_MARK


def _known_steps(named: list[str] | None, data: PhaseEInput) -> list[str] | None:
    """Return those of the names that are steps of the plan or have a result."""
    if named is None:
        return None
    known = {*(data.execution_results or {}), *_step_names((data.plan_state or {}).get("steps"))}
    return [name for name in dict.fromkeys(named) if name in known]


def _step_names(steps: Any) -> Iterator[str]:
    """Yield the names of steps, listed or by name."""
    for step in steps if isinstance(steps, list | tuple | Mapping) else ():
        name = step.get("name", step.get("step_id", step.get("id"))) if isinstance(step, Mapping) else step
        if isinstance(name, str):
            yield name
