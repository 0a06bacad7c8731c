"""RedundantLoop, the pattern of mode `redundant`: several structured answers at once, and a vote between them.

Each replica is a branch that runs the specialized loop with one attempt, for voting replaces retry. A replica that
fails has no vote. When those still outstanding can no longer change the outcome, they are called off.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import orjson
from pydantic import JsonValue

from app.capabilities.contracts import Contract
from app.capabilities.voting import Ballots, Elected, decided, electing, refuse_size, reporting
from app.domain.boundary import RedundancyOptions, VoteReport
from app.domain.events import VoteCast, VoteDecided
from app.domain.failures import Failure
from app.domain.fields import ConfidenceSource
from app.domain.lifecycle import State
from app.domain.pausing import Pausing
from app.domain.produced import Produced
from app.orchestration.patterns.judging import judged
from app.orchestration.patterns.specialized_loop import specialized_loop
from app.orchestration.run import Run

VERSION = 2
"""Raised by hand with every change of effects or their order; golden journals guard it."""


async def redundant_loop(run: Run) -> Produced:
    """The answer that won, with the vote; a vote without a winner is the draft.

    Raises: the replicas' own failure when all of them failed; OrchestrationFailure (ORCHESTRATION_NO_CONSENSUS) when
    too few agree; ConstraintFailure (CONSTRAINT_SCHEMA_INVALID) when the fields that won make no valid answer; what
    `judged` raises, ValidationFailure, when its judge finds fault with that.
    """
    options = run.redundancy
    contract = await run.work(Contract.making(run.output))
    answers = await run.gather(
        [partial(_replica, number=number, options=options) for number in range(options.n)],
        until=lambda finished: decided(options, _ballots(finished)),
    )
    run.enter(State.VALIDATE, "output_ready")
    ballots = _ballots(answers)
    elected = await run.work(electing(options, ballots, partial(_violations, contract)))
    vote = await run.work(reporting(options, ballots))
    run.emit(_told(options, ballots, elected))
    if isinstance(elected, Failure):
        run.draft(Produced(None, vote=vote))
        raise elected
    won = None if elected.replica is None else answers[elected.replica]
    return replace(
        won if isinstance(won, Produced) else await _put_together(run, elected.value, contract, vote),
        structured_output=elected.value,
        confidence=elected.confidence,
        confidence_source=ConfidenceSource.VOTING,
        vote=vote,
    )


async def _replica(run: Run, *, number: int, options: RedundancyOptions) -> Produced:
    run.replica = number
    if options.models is not None:
        run.model = options.models[number]
    try:
        produced = await specialized_loop(run, attempts=1)
        refuse_size(options, produced.structured_output)
    except Failure as failure:
        run.emit(VoteCast(number, "failed", failure.code))
        raise
    run.emit(VoteCast(number, "voted", None))
    return produced


def _ballots(answers: Mapping[int, Produced | Failure]) -> Ballots:
    return {
        number: answer if isinstance(answer, Failure) else answer.structured_output
        for number, answer in answers.items()
    }


async def _put_together(run: Run, value: JsonValue, contract: Contract, vote: VoteReport) -> Produced:
    """An answer that no replica gave, judged as one that was given."""

    def draft(produced: Produced) -> None:
        run.draft(replace(produced, vote=vote))

    found = await judged(run, contract, _text(value), 1, draft=draft)
    if found.failure is not None:
        raise found.failure
    return found.produced


def _violations(contract: Contract, value: JsonValue) -> Pausing[Sequence[JsonValue]]:
    failure = (yield from contract.judging(_text(value), 1)).failure
    if failure is None:
        return ()
    found: Sequence[JsonValue] = failure.details.get("violations") or [{"path": "$", "message": failure.message}]
    return found


def _text(value: JsonValue) -> str:
    return orjson.dumps(value).decode()


def _told(options: RedundancyOptions, ballots: Ballots, elected: Elected | Failure) -> VoteDecided:
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
