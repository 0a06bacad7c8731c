"""Judges of the input: models that are asked beside the first inference if the input does what it must not do.

1. A judge reads the texts of the request, and apart from them each answer to a suspension that was sent since.
2. The judges run from the beginning, each in a branch under `guard`, so that the steps of the pattern have the keys
   that they have without judges. An offline replay, which runs branches in turn, runs the judges first.
3. Until every judge that may refuse has passed the input, no tool, no agent and no function of a node starts, deltas
   are held, and the execution does not end. Only new effects wait: those of an earlier run are replayed at once.
4. A judge that refuses ends the execution: first that decision is recorded, then all else is cancelled. If it fails, it
   ends the execution with its own failure. A judge that only flags ends nothing; without its judgement the answer has
   the flag `guardrail_failed`.
5. What is withheld is not shown: neither the text so far nor calls. The record has what was done, as always.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.prompt_call import PromptCall
from portico.capabilities.prompting.prompts.assessment import InputJudgementInput, InputJudgementOutput
from portico.domain.context.guards import (
    GUARDRAIL_FAILED,
    InputText,
    RequestedJudge,
    refused_input,
    texts_of_hints,
    texts_of_messages,
    texts_of_request,
    texts_of_value,
)
from portico.domain.failures import Failure
from portico.domain.journal.events import INIT_ANCHOR, GuardEnd
from portico.domain.journal.step_key import GUARD_KEY, ROOT, StepKey
from portico.domain.pattern_result import PatternResult
from portico.domain.value import replace
from portico.orchestration.execution.branches import EarlyStop, InputGate, has_diverged
from portico.orchestration.execution.context import RunContext
from portico.orchestration.execution.effect import BranchStopped
from portico.orchestration.execution.execution import Execution
from portico.orchestration.execution.position import Position
from portico.orchestration.execution.progress import Conversation, RunProgress

T = TypeVar("T")


async def run_judged(
    execution: Execution, progress: RunProgress, context: RunContext, run: Callable[[], Awaitable[PatternResult]]
) -> PatternResult:
    """Return the result of `run` if the judges of the execution pass its input, which they judge meanwhile.

    Raises: ValidationFailure (VALIDATION_INPUT_REFUSED); the failure of a judge that refuses; else what `run` raises.
    """
    questions, branches = _questions(execution), execution.branches
    refusing = sum(judge.action == "refuse" for judge, _ in questions)
    gate = InputGate(refusing)
    branches.input_gate = gate if refusing else None

    async def judge(index: int) -> None:
        judge, texts = questions[index]
        begun_at = execution.header.begins_at
        aside = Position(execution, progress, branch=GUARD_KEY.child(index), anchor=INIT_ANCHOR, now=begun_at)
        aside.conversation = Conversation()
        try:
            await _judge(RunContext(aside, context.settings), execution, judge, texts)
        except BranchStopped:
            gate.shut()
            raise
        if judge.action == "refuse":
            gate.pass_one()

    runs: list[Callable[[], Awaitable[PatternResult | None]]] = [partial(judge, each) for each in range(len(questions))]
    decision = _Refusal(GUARD_KEY, len(runs) + 1, partial(_has_refusal, len(runs)))
    results = await branches.gather([*runs, run], decision)
    failures = (results[index] for index in sorted(results))
    failure = next((each for each in failures if isinstance(each, Failure)), None)
    if failure is not None:
        raise failure
    result = results[len(runs)]
    assert isinstance(result, PatternResult)  # noqa: S101 - without a failure, the pattern has a result
    return result


async def _judge(context: RunContext, execution: Execution, judge: RequestedJudge, texts: tuple[str, ...]) -> None:
    """Ask the judge, and record and flag its judgement. Raises: the failure that ends the execution."""
    context = context.with_settings(replace(context.settings, model=judge.model or context.settings.model))
    question = PromptCall(
        PromptId.INPUT_JUDGEMENT_USER, InputJudgementInput(intent=judge.intent, texts=texts), InputJudgementOutput
    )
    try:
        judgement = await context.ask(question)
    except Failure as failure:
        if judge.action == "refuse" or has_diverged(failure):
            raise
        execution.ledger.flags.add(GUARDRAIL_FAILED)
        return
    context.emit(GuardEnd(judge.guard, judge.action, judgement.refused))
    if judgement.refused and judge.action == "refuse":
        raise refused_input(judge.guard)
    if judgement.refused:
        execution.ledger.flags.add(judge.guard)


@dataclass(slots=True)
class _Refusal(EarlyStop[PatternResult | None]):
    """The rule by which a judge ends all else."""

    @property
    def cancelled_branches(self) -> tuple[StepKey, ...]:
        """Everything but the judges that have ended; nothing without a decision."""
        return () if self.winners is None else (ROOT,)

    @property
    def spared_branches(self) -> tuple[StepKey, ...]:
        """The judges that have ended."""
        return tuple(GUARD_KEY.child(index) for index in self.winners or ())


def _has_refusal(judges: int, results: Mapping[int, PatternResult | Failure | None]) -> bool:
    """Return True if one of the judges, which are the first branches, ended with a failure."""
    return any(isinstance(results.get(index), Failure) for index in range(judges))


def _questions(execution: Execution) -> list[tuple[RequestedJudge, tuple[str, ...]]]:
    """Return what each judge is asked: the texts of the request and of forks, then those of each answer."""
    header = execution.header
    texts = [*texts_of_request(header.request, header.instructions)]
    for fork in () if header.fork is None else header.fork.chain:
        texts += texts_of_messages(fork.messages)
        texts += () if fork.hints is None else texts_of_hints(fork.hints)
        texts += [InputText(edit.content) for edit in fork.edits]
    inputs = [_prose(texts)]
    inputs += filter(None, (_prose(texts_of_value(answer.payload)) for answer in execution.recorder.cursor.answers()))
    return [(judge, texts) for texts in inputs for judge in header.judges]


def _prose(texts: Iterable[InputText]) -> tuple[str, ...]:
    """Return the texts that say something: no numbers, no names, and no decisions, of which there are only a few."""
    return tuple(each.text for each in texts if each.is_prose and each.text and each.key != "decision")
