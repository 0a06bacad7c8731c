"""Voting among the answers of replicas, and the point from which outstanding replicas cannot change the result.

Theory of operation

1. Each of N replicas gives a ballot: its JSON value, which is its vote, or its failure. A replica without a ballot is
   outstanding or was cancelled. N is constant, so votes / N is a lower bound if replicas failed or are missing.
2. In a race the choice with the most votes wins; a tie goes to the choice of the lowest replica.
3. `majority` is one race between whole values, compared as canonical JSON. `unanimity` is that race with N votes
   required, so a failure breaks it as a dissent does.
4. `field_majority` is a race at every path. A replica that takes part votes for what it has there: nothing, a scalar,
   an object, or a list of that length; only voters for the winner take part in the races at the paths within. The
   answer has the votes of its weakest field, and a member that was voted out is a field too: confidence is 1 only if
   all replicas agree.
5. Outstanding replicas harm a leader most by all voting for one rival, and help an answer most by all giving it. So a
   race is `safe` if no rival would win with all of them, including a rival that has no vote yet, and `reach` is the
   number of votes that the best answer could still get. Both are exact, so a settled race stays settled.

Refused: a race between whole sets of keys (one odd key would cost its replica the vote on all others), and aligning
lists of different length (it would be a guess which elements were added and which were changed).
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import chain
from math import inf
from typing import Any, Final, TypeAlias

import orjson
from pydantic import JsonValue

from portico.capabilities.output.canonical_json import canonical_json
from portico.domain.contract.request import RedundancyOptions
from portico.domain.contract.response import VoteReport
from portico.domain.failures import Code, ConstraintFailure, Failure, OrchestrationFailure, failure
from portico.domain.json_path import PathStep, format_path
from portico.domain.value import value

Ballots: TypeAlias = Mapping[int, JsonValue | Failure]
"""Results of the replicas, by number from 0. A value is strict JSON: finite, of 64 bits, of Unicode text."""
MAX_BALLOT_NODES: Final = 24_576
MAX_BALLOT_BYTES: Final = 1_048_576
"""Limits of all ballots together; a node is a position with a value of its own."""

_NOTHING: Final[Any] = object()
"""The value of an answer at a path that it does not have."""
_MAX_COST_TO_SETTLE: Final = 1_000
_PATH_TAKES: Final = 4
"""Cost of finding out if a vote is settled, and of one path, in about microseconds."""
_BYTES_AT_ONCE: Final = 128
"""Bytes of ballots that are made canonical in about a microsecond."""
_QUICK_BYTES: Final = 8_192
_UNCUT: Final = 1 << 31
"""Characters of a name in a path: names are not cut, since two cut names could look alike."""


@value
class ElectedAnswer:
    """The winning answer; `replica` is the lowest that gave it, None if it was put together from fields."""

    value: JsonValue
    votes: int
    confidence: float
    replica: int | None


@value
class _Count:
    """The count of a race and of those within: the value, the votes of its weakest field, and what may still change."""

    value: JsonValue
    votes: int
    reach: int
    safe: bool
    within: Mapping[PathStep, "_Count"] = field(default_factory=dict)


class _CostlyCountError(Exception):
    """The count costs more than its budget."""


class _CountBudget:
    """The cost that a count may still have."""

    def __init__(self, limit: float = inf) -> None:
        self._left = limit

    def spend(self, cost: int) -> None:
        """Subtract the cost. Raises: _CostlyCountError."""
        self._left -= cost
        if self._left < 0:
            raise _CostlyCountError


def check_ballot_size(options: RedundancyOptions, value: JsonValue) -> None:
    """Raise ConstraintFailure (CONSTRAINT_SCHEMA_INVALID) for a value that is too large for a vote."""
    data = orjson.dumps(value)
    places = data.count(b",") + data.count(b"[") + data.count(b"{")
    if places * options.n > MAX_BALLOT_NODES or len(data) * options.n > MAX_BALLOT_BYTES:
        message = f"the answer is too large for a vote among {options.n} replicas"
        details = {"violations": [{"path": "$", "message": message}]}
        raise ConstraintFailure(Code.CONSTRAINT_SCHEMA_INVALID, message, details)


def elects_quickly(options: RedundancyOptions, ballots: Ballots) -> bool:
    """Return True if `elect` and `report` take less than about a millisecond: few whole values are counted."""
    votes = list(_votes(ballots).values())
    return options.voting != "field_majority" and len(orjson.dumps(votes)) <= _QUICK_BYTES


def elect(options: RedundancyOptions, ballots: Ballots) -> ElectedAnswer | Failure:
    """Return the winner, or the failure that ends the vote.

    The failure is the replicas' own if all failed, ORCHESTRATION_NO_CONSENSUS if too few agree. A winner that was put
    together from fields may be invalid.
    """
    votes = _votes(ballots)
    if not votes:
        return _all_failed(ballots)
    count = _count(options, votes, (), _CountBudget())
    if count.votes < required_votes(options):
        return _no_consensus(options, ballots, count.votes)
    text = canonical_json(count.value)
    alike = (replica for replica, value in votes.items() if canonical_json(value) == text)
    return ElectedAnswer(count.value, count.votes, count.votes / options.n, next(alike, None))


def invalid_election(violations: Sequence[JsonValue]) -> ConstraintFailure:
    """Return the failure of a vote whose winner is invalid for these reasons."""
    message = "the fields that won do not make a valid answer together"
    return ConstraintFailure(Code.CONSTRAINT_SCHEMA_INVALID, message, {"violations": list(violations)})


def is_settled(options: RedundancyOptions, ballots: Ballots) -> bool:
    """Return True if `elect` gives the same value or code whichever ballots are still to come.

    True stays true. Without `early_stop`, without any vote, and if it takes long to find out, a vote is settled only
    when no replica is outstanding.
    """
    late = [replica for replica in range(options.n) if replica not in ballots]
    votes = _votes(ballots)
    if not late or not votes or not options.early_stop:
        return not late
    try:
        count = _count(options, votes, late, _CountBudget(_MAX_COST_TO_SETTLE))
    except _CostlyCountError:
        return False
    needed = required_votes(options)
    return count.reach < needed or (count.safe and count.votes >= needed)


def required_votes(options: RedundancyOptions) -> int:
    """Return the fewest votes that `quorum`, `min_confidence` and unanimity accept, at least 1.

    If that is more than N, no number of votes is enough.
    """
    shares = (votes for votes in range(1, options.n + 1) if votes / options.n >= (options.min_confidence or 0))
    return max(options.quorum or 1, options.n if options.voting == "unanimity" else next(shares))


def report(options: RedundancyOptions, ballots: Ballots) -> VoteReport:
    """Return the vote as a response shows it: candidates by replica, whole values by rank, fields by path."""
    votes = _votes(ballots)
    standing = _standing({replica: canonical_json(value) for replica, value in votes.items()})
    fields: dict[str, JsonValue] | None = None
    if votes and options.voting == "field_majority":
        fields = {}
        for path, shown in _fields(_by_field(votes, (), _CountBudget())):
            fields[path] = shown
    return VoteReport(
        candidates=[_candidate(replica, ballots) for replica in range(options.n)],
        tally=[{"value": votes[each[0]], "votes": len(each), "replicas": list(each)} for each in standing],
        fields=fields,
        stopped_early=len(ballots) < options.n,
    )


def _votes(ballots: Ballots) -> dict[int, JsonValue]:
    """Return the values by replica, the lowest first."""
    return {replica: each for replica, each in sorted(ballots.items()) if not isinstance(each, Failure)}


def _count(
    options: RedundancyOptions, votes: Mapping[int, JsonValue], late: Sequence[int], budget: _CountBudget
) -> _Count:
    if options.voting == "field_majority":
        return _by_field(votes, late, budget)
    leader, *rivals = _contenders({replica: canonical_json(value) for replica, value in votes.items()}, late)
    return _Count(votes[leader[0]], len(leader), len(leader) + len(late), safe=not rivals)


def _by_field(votes: Mapping[int, Any], late: Sequence[int], budget: _CountBudget) -> _Count:
    """Count the race at one path among those who take part, and the races within."""
    budget.spend(_PATH_TAKES + 2 * len(votes))
    contenders = _contenders({replica: _outline(value) for replica, value in votes.items()}, late)
    leader, *rivals = [{replica: votes[replica] for replica in each} for each in contenders]
    reach = 0
    for rival in filter(None, rivals):
        reach = max(reach, _agreed(rival, late, budget).reach)
    return _agreed(leader, late, budget, reach=reach, safe=not rivals)


def _outline(value: JsonValue) -> Hashable:
    match value:
        case dict():
            return "object"
        case list():
            return len(value)
        case _:
            return "nothing" if value is _NOTHING else canonical_json(value)


def _agreed(
    votes: Mapping[int, Any], late: Sequence[int], budget: _CountBudget, *, reach: int = 0, safe: bool = True
) -> _Count:
    """Count values of one outline: their number, or fewer votes if they differ within."""
    value, *others = votes.values()
    texts = [canonical_json(each) for each in votes.values()] if others and isinstance(value, dict | list) else []
    budget.spend(sum(map(len, texts)) // _BYTES_AT_ONCE)
    if len(set(texts)) <= 1:
        return _Count(value, len(votes), len(votes) + len(late), safe)
    inner: dict[PathStep, _Count] = {}
    for step, there in _steps(votes, value):
        inner[step] = _by_field(there, late, budget)
    counts = inner.values()
    agreed: dict[Any, Any] = {step: count.value for step, count in inner.items() if count.value is not _NOTHING}
    return _Count(
        value=agreed if isinstance(value, dict) else list(agreed.values()),
        votes=min(count.votes for count in counts),
        reach=max(reach, min(count.reach for count in counts)),
        safe=safe and all(count.safe for count in counts),
        within=inner,
    )


def _steps(votes: Mapping[int, Any], example: object) -> Iterator[tuple[Any, Mapping[int, Any]]]:
    """Yield every path one step within, with the value of each replica there."""
    if isinstance(example, dict):
        for key in dict.fromkeys(chain.from_iterable(votes.values())):
            yield key, {replica: value.get(key, _NOTHING) for replica, value in votes.items()}
    elif isinstance(example, list):
        for index in range(len(example)):
            yield index, {replica: value[index] for replica, value in votes.items()}


def _contenders(choices: Mapping[int, Hashable], late: Sequence[int]) -> list[Sequence[int]]:
    """Return the leader's voters, then those of each rival that would win with all `late` ones; () for a new rival."""
    leader, *rivals = _standing(choices)
    return [leader, *(each for each in (*rivals, ()) if late and _rank(sorted((*each, *late))) < _rank(leader))]


def _standing(choices: Mapping[int, Hashable]) -> list[Sequence[int]]:
    """Return the voters of each choice, the winner's first."""
    groups: dict[Hashable, list[int]] = {}
    for replica, choice in choices.items():
        groups.setdefault(choice, []).append(replica)
    return sorted(groups.values(), key=_rank)


def _rank(ascending: Sequence[int]) -> tuple[int, int]:
    """Return a rank; the smaller wins: more votes, then the lowest replica."""
    return -len(ascending), ascending[0]


def _fields(count: _Count, path: tuple[PathStep, ...] = ()) -> Iterator[tuple[str, JsonValue]]:
    """Yield the votes of every leaf by path, with its value unless that was voted out."""
    members = _steps({0: count.value}, count.value)
    within = count.within or {step: _Count(there[0], count.votes, count.reach, count.safe) for step, there in members}
    if not within:
        value = {} if count.value is _NOTHING else {"value": count.value}
        yield format_path(path, _UNCUT), {"votes": count.votes, **value}
    for step, inner in within.items():
        yield from _fields(inner, (*path, step))


def _candidate(replica: int, ballots: Ballots) -> JsonValue:
    if replica not in ballots:
        return {"replica": replica, "status": "cancelled"}
    ballot = ballots[replica]
    if isinstance(ballot, Failure):
        return {"replica": replica, "status": "failed", "code": ballot.code.value}
    return {"replica": replica, "status": "voted", "value": ballot}


def _no_consensus(options: RedundancyOptions, ballots: Ballots, votes: int) -> OrchestrationFailure:
    needed, failed = required_votes(options), sum(isinstance(each, Failure) for each in ballots.values())
    missing = options.n - len(ballots)
    details = {"votes": votes, "needed": needed, "replicas": options.n, "failed": failed, "cancelled": missing}
    return OrchestrationFailure(Code.ORCHESTRATION_NO_CONSENSUS, f"{votes} votes, and {needed} are needed", details)


def _all_failed(ballots: Ballots) -> Failure:
    """Return the failure if no replica voted, with the code that all failures share, if they share one."""
    failures = [each for _, each in sorted(ballots.items()) if isinstance(each, Failure)]
    details = {"failures": [{"code": each.code.value, "message": each.message} for each in failures]}
    message, code, condition = "no replica gave an answer", Code.INFERENCE_MODEL_UNAVAILABLE, None
    if len({each.code for each in failures}) == 1:
        code, condition = failures[0].code, max(failures, key=lambda each: each.retryable).condition
    raised = failure(code, message, details=details, condition=condition)
    raised.retry_after = min((each.retry_after for each in failures if each.retry_after is not None), default=None)
    return raised
