"""RedundantLoop, the pattern of mode `redundant`: several structured answers at once, and a vote between them.

Each replica is a branch that runs the specialized loop with one attempt, for voting replaces retry. A replica that
fails has no vote. When those still outstanding can no longer change the outcome, they are called off.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import orjson
from pydantic import JsonValue

from app.capabilities.answer_contract import AnswerContract
from app.capabilities.output.voting import Ballots, ElectedAnswer, check_ballot_size, electing, is_settled, reporting
from app.domain.contract.constrained_types import ConfidenceSource
from app.domain.contract.request import RedundancyOptions
from app.domain.contract.response import VoteReport
from app.domain.failures import Failure
from app.domain.journal.events import VoteCast, VoteDecided
from app.domain.lifecycle import State
from app.domain.pattern_result import PatternResult
from app.domain.pausing import Pausing
from app.orchestration.execution.context import RunContext
from app.orchestration.patterns.specialized_loop import specialized_loop
from app.orchestration.patterns.validated_answer import validate_answer

VERSION = 2
"""Raised by hand with every change of effects or their order; golden journals guard it."""


async def redundant_loop(run: RunContext) -> PatternResult:
    """The answer that won, with the vote; a vote without a winner is the draft.

    Raises: the replicas' own failure when all of them failed; OrchestrationFailure (ORCHESTRATION_NO_CONSENSUS) when
    too few agree; ConstraintFailure (CONSTRAINT_SCHEMA_INVALID) when the fields that won make no valid answer; what
    `judged` raises, ValidationFailure, when its judge finds fault with that.
    """
    options = run.redundancy
    contract = await run.compute(AnswerContract.compiling(run.output))
    answers = await run.gather(
        [partial(_replica, number=number, options=options) for number in range(options.n)],
        until=lambda finished: is_settled(options, _ballots(finished)),
    )
    run.transition_to(State.VALIDATE, "output_ready")
    ballots = _ballots(answers)
    elected = await run.compute(electing(options, ballots, partial(_violations, contract)))
    vote = await run.compute(reporting(options, ballots))
    run.emit(_told(options, ballots, elected))
    if isinstance(elected, Failure):
        run.set_partial_result(PatternResult(None, vote=vote))
        raise elected
    won = None if elected.replica is None else answers[elected.replica]
    return replace(
        won if isinstance(won, PatternResult) else await _put_together(run, elected.value, contract, vote),
        structured_output=elected.value,
        confidence=elected.confidence,
        confidence_source=ConfidenceSource.VOTING,
        vote=vote,
    )


async def _replica(run: RunContext, *, number: int, options: RedundancyOptions) -> PatternResult:
    run.replica = number
    if options.models is not None:
        run.model = options.models[number]
    try:
        produced = await specialized_loop(run, attempts=1)
        check_ballot_size(options, produced.structured_output)
    except Failure as failure:
        run.emit(VoteCast(number, "failed", failure.code))
        raise
    run.emit(VoteCast(number, "voted", None))
    return produced


def _ballots(answers: Mapping[int, PatternResult | Failure]) -> Ballots:
    return {
        number: answer if isinstance(answer, Failure) else answer.structured_output
        for number, answer in answers.items()
    }


async def _put_together(run: RunContext, value: JsonValue, contract: AnswerContract, vote: VoteReport) -> PatternResult:
    """An answer that no replica gave, judged as one that was given."""

    def draft(produced: PatternResult) -> None:
        run.set_partial_result(replace(produced, vote=vote))

    found = await validate_answer(run, contract, _text(value), 1, draft=draft)
    if found.failure is not None:
        raise found.failure
    return found.pattern_result


def _violations(contract: AnswerContract, value: JsonValue) -> Pausing[Sequence[JsonValue]]:
    failure = (yield from contract.validating(_text(value), 1)).failure
    if failure is None:
        return ()
    found: Sequence[JsonValue] = failure.details.get("violations") or [{"path": "$", "message": failure.message}]
    return found


def _text(value: JsonValue) -> str:
    return orjson.dumps(value).decode()


def _told(options: RedundancyOptions, ballots: Ballots, elected: ElectedAnswer | Failure) -> VoteDecided:
    failed = sum(isinstance(ballot, Failure) for ballot in ballots.values())
    won = None if isinstance(elected, Failure) else elected
    return VoteDecided(
        replicas=options.n,
        voted=len(ballots) - failed,
        failed=failed,
        stopped_early=len(ballots) < options.n,
        votes=None if won is None else won.votes,
        confidence=None if won is None else won.confidence,
        replica=None if won is None else won.replica,
        error_code=elected.code if isinstance(elected, Failure) else None,
    )
