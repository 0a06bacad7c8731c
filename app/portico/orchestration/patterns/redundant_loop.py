"""RedundantLoop, the pattern of mode `redundant`: several structured answers at once, and a vote between them.

Each replica is a branch that runs the specialized loop with one attempt, because voting replaces retry. A replica that
fails has no vote. Replicas that can no longer change the outcome are stopped early. If validation is not strict, an
answer that breaks a rule has a vote if no answer keeps all rules.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

import orjson
from pydantic import JsonValue

from portico.capabilities.answer_contract import AnswerContract, ValidatedAnswer
from portico.capabilities.models.catalogue import EngineCatalogue
from portico.capabilities.output.voting import (
    Ballots,
    ElectedAnswer,
    check_ballot_size,
    elect,
    elects_quickly,
    invalid_election,
    is_settled,
    report,
)
from portico.domain.contract.constrained_types import ConfidenceSource
from portico.domain.contract.request import RedundancyOptions, SystemRequest
from portico.domain.contract.response import VoteReport
from portico.domain.failures import Code, Failure, ValidationFailure
from portico.domain.journal.events import VoteCast, VoteDecided
from portico.domain.journal.header import EffectiveLimits
from portico.domain.lifecycle import State
from portico.domain.pattern_result import PatternResult
from portico.domain.value import replace
from portico.orchestration.execution.branch_span import in_span, in_span_of_gather
from portico.orchestration.execution.context import RunContext, set_findings
from portico.orchestration.execution.pattern import BoundInputs, FieldError, Pattern, UpperBound, in_parallel
from portico.orchestration.patterns.specialized_loop import answers_bound, specialized_loop
from portico.orchestration.patterns.validated_answer import compiled_contract, validate_answer

VERSION = 1
"""Raised by hand with every change of effects or their order; golden journals guard it."""


async def redundant_loop(context: RunContext) -> PatternResult:
    """Return the answer that won, with the vote; a vote without a winner is the partial result.
    Raises: the failure of the replicas if all failed; OrchestrationFailure (ORCHESTRATION_NO_CONSENSUS) if too few
    agree; ConstraintFailure (CONSTRAINT_SCHEMA_INVALID) if the fields that won make no valid answer; as
    `validate_answer`.
    """
    options = context.settings.redundancy
    contract = await compiled_contract(context)
    ended: dict[int, JsonValue] = {}
    set_findings(context, lambda: {"votes": [{"replica": number, "value": ended[number]} for number in sorted(ended)]})
    answers = await context.gather(
        [partial(_replica, number=number, options=options, ended=ended) for number in range(options.n)],
        until=lambda results: is_settled(options, _ballots(results)),
    )
    vote_context = in_span_of_gather(context)
    context.transition_to(State.VALIDATE, "output_ready")
    ballots = _ballots(answers)
    if all(isinstance(ballot, Failure) for ballot in ballots.values()):
        ballots = _ballots(answers, are_rejected_counted=True)
    count = partial(_count, options, ballots)
    elected, vote = count() if elects_quickly(options, ballots) else await context.compute(count)
    validated = None
    if options.voting == "field_majority" and isinstance(elected, ElectedAnswer):
        validated = await context.validate(contract, _text(elected.value), 1)
        violations = _violations(validated, strict=context.settings.is_strict)
        elected = invalid_election(violations) if violations else elected
    vote_context.emit(_vote_decided(options, ballots, elected))
    if isinstance(elected, Failure):
        context.set_partial_result(PatternResult(None, vote=vote))
        raise elected
    winner = None if elected.replica is None else answers[elected.replica]
    if isinstance(winner, PatternResult):
        result = winner
    else:
        result = await _combined(context, contract, elected.value, vote, validated)
    result = replace(result, structured_output=elected.value, vote=vote)
    if not _is_valid(result):
        return result
    return replace(result, confidence=elected.confidence, confidence_source=ConfidenceSource.VOTING)


async def _replica(
    context: RunContext, *, number: int, options: RedundancyOptions, ended: dict[int, JsonValue]
) -> PatternResult:
    """Return the answer of a replica, which is also added to the answers of those that have `ended` with a vote."""
    model = context.settings.model if options.models is None else options.models[number]
    context = in_span(in_span_of_gather(context))
    context = context.with_settings(replace(context.settings, replica=number, model=model))
    try:
        result = await specialized_loop(context, attempts=1)
        check_ballot_size(options, result.structured_output)
    except Failure as failure:
        context.emit(VoteCast(number, "failed", failure.code))
        raise
    rejection = _rejection(result)
    context.emit(VoteCast(number, "failed", rejection.code) if rejection else VoteCast(number, "voted", None))
    if rejection is None:
        ended[number] = result.structured_output
    return result


def _ballots(answers: Mapping[int, PatternResult | Failure], *, are_rejected_counted: bool = False) -> Ballots:
    ballots: dict[int, JsonValue | Failure] = {}
    for number, answer in answers.items():
        failure = answer if isinstance(answer, Failure) else None if are_rejected_counted else _rejection(answer)
        ballots[number] = answer.structured_output if isinstance(answer, PatternResult) and failure is None else failure
    return ballots


def _rejection(result: PatternResult) -> ValidationFailure | None:
    """Return the failure that an answer which breaks a rule would be if validation was strict."""
    if _is_valid(result):
        return None
    errors = [] if result.validation is None else result.validation.errors
    is_judged = all(isinstance(error, dict) and error.get("rule") == "semantic" for error in errors)
    code = Code.VALIDATION_SEMANTIC_FAILED if is_judged else Code.VALIDATION_RULE_FAILED
    return ValidationFailure(code, "the answer was rejected", {"violations": errors})


def _is_valid(result: PatternResult) -> bool:
    return result.validation is None or result.validation.valid


async def _combined(
    context: RunContext, contract: AnswerContract, value: JsonValue, vote: VoteReport, validated: ValidatedAnswer | None
) -> PatternResult:
    """Return the validated answer of a winner that no replica gave as a whole."""

    def set_partial_result(result: PatternResult) -> None:
        context.set_partial_result(replace(result, vote=vote))

    validated = await validate_answer(
        context, contract, _text(value), 1, validated=validated, set_partial_result=set_partial_result
    )
    return validated.result_after_last_attempt(strict=context.settings.is_strict)


def _count(options: RedundancyOptions, ballots: Ballots) -> tuple[ElectedAnswer | Failure, VoteReport]:
    return elect(options, ballots), report(options, ballots)


def _violations(validated: ValidatedAnswer, *, strict: bool) -> Sequence[JsonValue]:
    """Return the reasons why the answer cannot be the result."""
    try:
        validated.result_after_last_attempt(strict=strict)
    except Failure as failure:
        found: Sequence[JsonValue] = failure.details.get("violations") or [{"path": "$", "message": failure.message}]
        return found
    return ()


def _text(value: JsonValue) -> str:
    return orjson.dumps(value).decode()


def _vote_decided(options: RedundancyOptions, ballots: Ballots, elected: ElectedAnswer | Failure) -> VoteDecided:
    failed = sum(isinstance(ballot, Failure) for ballot in ballots.values())
    winner = None if isinstance(elected, Failure) else elected
    return VoteDecided(
        replicas=options.n,
        voted=len(ballots) - failed,
        failed=failed,
        stopped_early=len(ballots) < options.n,
        votes=None if winner is None else winner.votes,
        confidence=None if winner is None else winner.confidence,
        replica=None if winner is None else winner.replica,
        error_code=elected.code if isinstance(elected, Failure) else None,
    )


def admit(request: SystemRequest, limits: EffectiveLimits, catalogue: EngineCatalogue) -> Iterator[FieldError]:
    """Yield the options of the vote that the limits or the configuration rule out."""
    options = request.redundancy or RedundancyOptions()
    if options.n > limits.replicas:
        yield FieldError("redundancy.n", f"must be at most {limits.replicas}")
    if options.quorum is not None and options.quorum > options.n:
        yield FieldError("redundancy.quorum", f"must be at most the {options.n} replicas")
    if options.models is not None and len(options.models) != options.n:
        yield FieldError("redundancy.models", f"must name {options.n} models, one for each replica")
    for index, model in enumerate(options.models or ()):
        if not catalogue.has(model):
            yield FieldError(f"redundancy.models.{index}", "must be a name from GET /v1/engines")


def replicas_bound(inputs: BoundInputs, count: int, tools: Collection[str]) -> UpperBound:
    """Return the bound of `count` replicas at the same time, all of the request's model."""
    return in_parallel([answers_bound(inputs, tools, 1)] * count)


def upper_bound(inputs: BoundInputs) -> UpperBound:
    """Return the bound of a vote; a winner that is put together from fields is judged once more."""
    options, judgements = inputs.request.redundancy or RedundancyOptions(), inputs.judgements
    models: Sequence[str | None] = options.models or [None] * options.n
    replicas = (answers_bound(inputs, inputs.tools, 1, judgements=judgements, model=model) for model in models)
    combined = inputs.inferences(judgements if options.voting == "field_majority" else 0)
    return in_parallel(replicas).then(combined).then(inputs.transitions())


PATTERN = Pattern(
    redundant_loop,
    VERSION,
    upper_bound,
    admit=admit,
    own_fields=frozenset({"redundancy"}),
    required_output=("schema",),
    replicates=True,
)
