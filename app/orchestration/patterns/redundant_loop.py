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
from app.domain.boundary import ConfidenceSource, RedundancyOptions
from app.domain.events import VoteCast, VoteDecided
from app.domain.failures import Failure
from app.domain.lifecycle import State
from app.domain.pausing import Pausing
from app.domain.produced import Produced
from app.orchestration.patterns.specialized_loop import specialized_loop
from app.orchestration.run import Run

VERSION = 1
"""Raised by hand with every change of effects or their order; golden journals guard it."""


async def redundant_loop(run: Run) -> Produced:
    """The answer that won, with the vote; a vote without a winner is the draft.

    Raises: the replicas' own failure when all of them failed; OrchestrationFailure (ORCHESTRATION_NO_CONSENSUS) when
    too few agree; ConstraintFailure (CONSTRAINT_SCHEMA_INVALID) when the fields that won make no valid answer.
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
    return replace(
        await run.work(_winner(elected, answers, contract)),
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


def _winner(elected: Elected, answers: Mapping[int, Produced | Failure], contract: Contract) -> Pausing[Produced]:
    """The answer as its replica gave it; one that was put together from fields as it would have been given."""
    given = None if elected.replica is None else answers[elected.replica]
    if isinstance(given, Produced):
        return given
    return (yield from contract.judging(_text(elected.value), 1)).produced


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
