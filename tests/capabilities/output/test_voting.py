"""Votes of replicas: winners, refusals, and early stops that never change the result."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from math import nextafter
from random import Random
from typing import Any, Literal, TypeAlias

import orjson
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pydantic import JsonValue

from portico.capabilities.output.canonical_json import canonical_json
from portico.capabilities.output.voting import (
    Ballots,
    ElectedAnswer,
    check_ballot_size,
    elect,
    invalid_election,
    is_settled,
    report,
    required_votes,
)
from portico.domain.contract.request import RedundancyOptions
from portico.domain.failures import Code, ConstraintFailure, Failure, InferenceFailure
from tests.support.equal_json import SPELLED_TWICE
from tests.support.seeds import randomised

Voting: TypeAlias = Literal["majority", "unanimity", "field_majority"]
Outcome: TypeAlias = Code | bytes
State: TypeAlias = tuple[int, ...]
Ballot: TypeAlias = JsonValue | Failure
Violations: TypeAlias = Callable[[JsonValue], Sequence[JsonValue]]

BOUNDED = randomised(300, suppress_health_check=[HealthCheck.too_slow])
VOTINGS: tuple[Voting, ...] = ("majority", "unanimity", "field_majority")
FAILED = InferenceFailure(Code.INFERENCE_ENGINE_ERROR, "the provider failed")

NUMBERS = st.integers(-2, 2) | st.sampled_from([-0.0, 0.0, 0.5, 1.0, 2.0])
SCALARS = st.none() | st.booleans() | NUMBERS | st.sampled_from(["", "1", "a", "é", "e\u0301"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
RECORDS = st.fixed_dictionaries({}, optional={key: st.sampled_from([1, 2, [1], [2], [1, 2], {"a": 1}]) for key in "ab"})
BALLOTS = st.lists(VALUES | RECORDS | RECORDS | st.just(FAILED), min_size=1, max_size=5)


def accept_all(_: JsonValue) -> list[JsonValue]:
    return []


def options(voting: Voting = "majority", n: int = 3, **rules: Any) -> RedundancyOptions:
    return RedundancyOptions(n=n, voting=voting, **rules)


def accept_odd_length(value: JsonValue) -> list[JsonValue]:
    return ["of even length"] if len(canonical_json(value)) % 2 == 0 else []


def outcome(rules: RedundancyOptions, ballots: Ballots, violations: Violations = accept_all) -> Outcome:
    """Return the invariant result: the canonical text of the winner, or the code."""
    ended = elect(rules, ballots)
    if isinstance(ended, ElectedAnswer) and rules.voting == "field_majority" and (found := violations(ended.value)):
        return invalid_election(found).code
    return canonical_json(ended.value) if isinstance(ended, ElectedAnswer) else ended.code


def winner_of(rules: RedundancyOptions, *ballots: Ballot) -> ElectedAnswer:
    ended = elect(rules, dict(enumerate(ballots)))
    assert isinstance(ended, ElectedAnswer)
    return ended


def failure_of(rules: RedundancyOptions, *ballots: Ballot) -> Failure:
    ended = elect(rules, dict(enumerate(ballots)))
    assert isinstance(ended, Failure)
    return ended


# What is one vote


@pytest.mark.parametrize(("one", "other"), SPELLED_TWICE)
def test_the_order_of_keys_and_the_spelling_of_a_number_do_not_make_another_vote(
    one: JsonValue, other: JsonValue
) -> None:
    assert winner_of(options(n=2, quorum=2), one, other).votes == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (0, False),
        (0, None),
        (1, "1"),
        ("é", "e\u0301"),
        ("a", "A"),
        ("a", "a "),
        ([], {}),
        ([1, 2], [2, 1]),
        ({"a": None}, {}),
        (2**63 - 1, float(2**63)),
        (1, 1.0000000000000002),
    ],
)
def test_different_values_are_different_votes(one: JsonValue, other: JsonValue) -> None:
    assert winner_of(options(n=2), one, other).votes == 1


# Majority and unanimity


def test_the_most_votes_win_and_confidence_is_their_share_of_all_replicas() -> None:
    ended = winner_of(options(n=5), "b", "a", FAILED, "a", "c")
    assert (ended.value, ended.votes, ended.confidence, ended.replica) == ("a", 2, 0.4, 1)


def test_a_tie_goes_to_the_value_of_the_lowest_replica() -> None:
    assert winner_of(options(n=4), "b", "a", "a", "b").value == "b"
    assert winner_of(options(n=5), FAILED, "a", "b", "b", "a").value == "a"
    assert winner_of(options(n=3), "c", "b", "a").value == "c"


def test_null_and_false_are_votes_like_any_other() -> None:
    assert winner_of(options(n=3), None, None, 1).value is None
    assert winner_of(options(n=3), False, 1, False).value is False


@BOUNDED
@given(BALLOTS, st.randoms(use_true_random=False))
def test_the_order_in_which_replicas_finish_changes_nothing(ballots: list[Ballot], chance: Random) -> None:
    in_order = dict(enumerate(ballots))
    shuffled = dict(chance.sample(list(in_order.items()), len(in_order)))
    for voting in VOTINGS:
        rules = options(voting, len(ballots))
        assert outcome(rules, shuffled) == outcome(rules, in_order)
        assert report(rules, shuffled) == report(rules, in_order)


@BOUNDED
@given(BALLOTS, st.randoms(use_true_random=False))
def test_the_order_of_replicas_decides_ties_and_nothing_else(ballots: list[Ballot], chance: Random) -> None:
    rules = options(n=len(ballots))
    texts = [canonical_json(each) for each in ballots if not isinstance(each, Failure)]
    most = max(map(texts.count, texts), default=0)
    for seats in (ballots, chance.sample(ballots, len(ballots))):
        if not most:
            assert failure_of(rules, *seats).code is FAILED.code
            continue
        seated = [None if isinstance(each, Failure) else canonical_json(each) for each in seats]
        best = next(text for text in seated if text is not None and seated.count(text) == most)
        ended = winner_of(rules, *seats)
        assert (canonical_json(ended.value), ended.votes, ended.replica) == (best, most, seated.index(best))


@pytest.mark.parametrize("dissent", ["b", FAILED])
@pytest.mark.parametrize("n", [2, 3, 16])
def test_unanimity_is_all_or_no_consensus(n: int, dissent: Ballot) -> None:
    rules = options("unanimity", n)
    assert winner_of(rules, *["a"] * n).confidence == 1
    for odd in range(n):
        ballots: list[Ballot] = ["a"] * n
        ballots[odd] = dissent
        failed = failure_of(rules, *ballots)
        assert failed.code is Code.ORCHESTRATION_NO_CONSENSUS
        assert failed.details["needed"] == n


@BOUNDED
@given(BALLOTS)
def test_confidence_is_one_exactly_if_all_replicas_agree(ballots: list[Ballot]) -> None:
    texts = {None if isinstance(each, Failure) else canonical_json(each) for each in ballots}
    for voting in VOTINGS:
        ended = elect(options(voting, len(ballots)), dict(enumerate(ballots)))
        certain = isinstance(ended, ElectedAnswer) and ended.confidence == 1
        assert certain is (len(texts) == 1 and None not in texts)


# Quorum and least confidence


@pytest.mark.parametrize("n", range(1, 17))
def test_exactly_the_minimum_confidence_is_enough_and_slightly_less_is_not(n: int) -> None:
    for votes in range(1, n + 1):
        share = votes / n
        assert required_votes(options(n=n, min_confidence=share)) == votes
        assert required_votes(options(n=n, min_confidence=nextafter(share, 0))) == votes
        if votes < n:
            assert required_votes(options(n=n, min_confidence=nextafter(share, 1))) == votes + 1


def test_no_limit_and_a_limit_of_zero_still_require_one_vote() -> None:
    assert required_votes(options()) == required_votes(options(min_confidence=0, quorum=1)) == 1


def test_the_highest_of_several_limits_applies() -> None:
    assert required_votes(options(n=5, quorum=2, min_confidence=0.6)) == 3
    assert required_votes(options(n=5, quorum=4, min_confidence=0.6)) == 4
    assert required_votes(options("unanimity", 5, quorum=4, min_confidence=0.6)) == 5


@pytest.mark.parametrize("voting", ["majority", "field_majority"])
def test_a_quorum_accepts_exactly_its_votes_and_refuses_one_less(voting: Voting) -> None:
    ballots: list[Ballot] = [{"a": 1}, {"a": 2}, {"a": 1}, FAILED, {"a": 1}]
    assert winner_of(options(voting, 5, quorum=3), *ballots).confidence == 0.6
    refused = failure_of(options(voting, 5, quorum=4), *ballots)
    assert refused.code is Code.ORCHESTRATION_NO_CONSENSUS
    assert refused.details == {"votes": 3, "needed": 4, "replicas": 5, "failed": 1, "cancelled": 0}


@pytest.mark.parametrize("voting", ["majority", "field_majority"])
def test_minimum_confidence_accepts_exactly_its_share_and_refuses_less(voting: Voting) -> None:
    ballots: list[Ballot] = [{"a": 1}, {"a": 2}, {"a": 1}, FAILED, {"a": 1}]
    assert winner_of(options(voting, 5, min_confidence=0.6), *ballots).votes == 3
    assert failure_of(options(voting, 5, min_confidence=0.61), *ballots).code is Code.ORCHESTRATION_NO_CONSENSUS


# All replicas failed


def test_if_all_replicas_failed_their_shared_code_is_returned_with_the_shortest_wait() -> None:
    refused = InferenceFailure(Code.INFERENCE_ENGINE_ERROR, "no", condition="refused")
    transport = InferenceFailure(Code.INFERENCE_ENGINE_ERROR, "no", condition="transport", retry_after=3.0)
    later = InferenceFailure(Code.INFERENCE_ENGINE_ERROR, "no", condition="transport", retry_after=7.0)
    failure = failure_of(options(n=3), refused, later, transport)
    assert (failure.code, failure.condition, failure.retry_after) == (Code.INFERENCE_ENGINE_ERROR, "transport", 3.0)
    assert failure_of(options(n=2), refused, refused).status == 500


@pytest.mark.parametrize("voting", VOTINGS)
def test_if_all_replicas_failed_differently_the_model_is_unavailable(voting: Voting) -> None:
    unfit = ConstraintFailure(Code.CONSTRAINT_SCHEMA_INVALID, "it does not fit")
    failure = failure_of(options(voting, 2, quorum=2), unfit, FAILED)
    assert failure.code is Code.INFERENCE_MODEL_UNAVAILABLE
    assert [each["code"] for each in failure.details["failures"]] == [unfit.code, FAILED.code]
    assert failure_of(options(voting, 2), unfit, unfit).code is Code.CONSTRAINT_SCHEMA_INVALID


# Field majority


@pytest.mark.parametrize(
    ("ballots", "value", "votes"),
    [
        ([{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 2}], {"a": 1, "b": 2}, 2),
        ([{"a": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 1}], {"a": 1, "b": 1}, 2),
        ([{"a": 1}, {"a": 1}, {"a": 1, "b": 1}], {"a": 1}, 2),
        ([{"a": 1}, {"a": 1, "b": 1}], {"a": 1}, 1),
        ([{"a": 1, "b": 1}, {"a": 1}], {"a": 1, "b": 1}, 1),
        ([[1, 2], [1, 3], [1]], [1, 2], 1),
        ([[9], [1, 3], [1, 3]], [1, 3], 2),
        ([{"a": {"b": 1}}, {"a": "x"}, {"a": "x"}], {"a": "x"}, 2),
        ([{"a": {"b": 1}}, {"a": {"b": 2}}, {"a": "x"}], {"a": {"b": 1}}, 1),
        ([{"a": None}, {"a": 1.0}, {"a": 1}], {"a": 1.0}, 2),
        ([{"a": True}, {"a": 1}, {"a": 1}], {"a": 1}, 2),
        ([{}, {}, {"a": 1}], {}, 2),
        ([FAILED, {"a": 2}, {"a": 1}], {"a": 2}, 1),
        (["x", "y", "y"], "y", 2),
    ],
)
def test_each_path_is_won_by_the_most_votes_of_its_voters(ballots: list[Ballot], value: JsonValue, votes: int) -> None:
    ended = winner_of(options("field_majority", len(ballots)), *ballots)
    assert (ended.value, ended.votes, ended.confidence) == (value, votes, votes / len(ballots))


def test_an_answer_that_no_replica_gave_has_no_replica() -> None:
    rules = options("field_majority", 3)
    assert winner_of(rules, {"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 2}).replica == 1
    assert winner_of(rules, {"a": 1, "b": 2}, {"a": 1, "b": 1}, {"a": 2, "b": 1}).replica == 1
    assert winner_of(rules, *_crossed()).replica is None


@BOUNDED
@given(BALLOTS)
def test_a_value_of_more_than_half_of_the_voters_wins_field_by_field_too(ballots: list[Ballot]) -> None:
    texts = [canonical_json(each) for each in ballots if not isinstance(each, Failure)]
    for text in texts:
        if 2 * texts.count(text) > len(texts):
            ended = winner_of(options("field_majority", len(ballots)), *ballots)
            assert (canonical_json(ended.value), ended.votes) == (text, texts.count(text))


def test_every_level_votes_at_the_maximum_depth() -> None:
    def nested(levels: int, leaf: JsonValue) -> JsonValue:
        return leaf if levels == 0 else {"a": nested(levels - 1, leaf), "b": leaf}

    ended = winner_of(options("field_majority", 3), nested(64, 1), nested(64, 2), nested(64, 2))
    assert (ended.value, ended.votes) == (nested(64, 2), 2)


def _crossed() -> list[Ballot]:
    return [{"x": 1, "y": 1, "z": 2}, {"x": 1, "y": 2, "z": 1}, {"x": 2, "y": 1, "z": 1}]


def test_fields_that_won_and_make_no_valid_answer_together_are_refused_with_the_reason() -> None:
    elected = winner_of(options("field_majority"), *_crossed())
    assert elected.replica is None
    refused = invalid_election([f"not {elected.value}"])
    assert refused.code is Code.CONSTRAINT_SCHEMA_INVALID
    assert refused.details == {"violations": [f"not { ({'x': 1, 'y': 1, 'z': 1}) }"]}


# Early stop


def prove(rules: RedundancyOptions, values: Sequence[JsonValue]) -> int:
    """Compare `is_settled` with every completion of every state; return the number of states that are settled early.

    A state holds the number of each replica's choice, -1 while it is outstanding.
    """
    choices = [*values, FAILED]

    def ballots(state: State) -> dict[int, Ballot]:
        return {replica: choices[number] for replica, number in enumerate(state) if number >= 0}

    def after(state: State) -> list[State]:
        waiting = [replica for replica, number in enumerate(state) if number < 0]
        return [(*state[:at], number, *state[at + 1 :]) for at in waiting for number in range(len(choices))]

    @cache
    def ends(state: State) -> frozenset[Outcome]:
        if -1 not in state:
            return frozenset({outcome(rules, ballots(state))})
        return frozenset[Outcome]().union(*map(ends, after(state)))

    @cache
    def is_decided(state: State) -> bool:
        return is_settled(rules, ballots(state))

    early = 0
    for state in product(range(-1, len(choices)), repeat=rules.n):
        assert is_decided(state) is (len(ends(state)) == 1), ballots(state)
        if is_decided(state) and -1 in state:
            early += 1
            assert {outcome(rules, ballots(state))} == ends(state)
            assert all(map(is_decided, after(state)))
    return early


@pytest.mark.parametrize("n", range(1, 6))
@pytest.mark.parametrize("voting", ["majority", "unanimity"])
def test_a_vote_is_settled_exactly_if_no_completion_changes_it(voting: Voting, n: int) -> None:
    for quorum in range(1, n + 2) if voting == "majority" else (None,):
        early = prove(options(voting, n, quorum=quorum), ["a", "b", "c"])
        assert early or n < 3


@pytest.mark.parametrize("quorum", range(1, 5))
def test_fields_are_settled_exactly_if_no_completion_changes_them(quorum: int) -> None:
    pairs = [{"a": a, "b": b} for a, b in product((0, 1, 2), repeat=2)]
    objects: list[JsonValue] = [{key: value for key, value in pair.items() if value} for pair in pairs]
    assert prove(options("field_majority", 3, quorum=quorum), objects)


@pytest.mark.parametrize("quorum", [1, 3, 4])
def test_shapes_are_settled_exactly_if_no_completion_changes_them(quorum: int) -> None:
    shapes: list[JsonValue] = [{}, {"a": 1}, {"a": 2}, [], [1], [2], "x"]
    assert prove(options("field_majority", 4, quorum=quorum), shapes)


@pytest.mark.parametrize("quorum", range(1, 6))
def test_a_few_equal_votes_can_still_win_over_many_different_ones(quorum: int) -> None:
    assert prove(options("field_majority", 5, quorum=quorum), [{"a": 1}, {"a": 2}, "x"])


@randomised(1000, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(VOTINGS),
    BALLOTS,
    st.none() | st.integers(1, 5),
    st.none() | st.floats(0, 1),
    st.randoms(use_true_random=False),
)
def test_later_ballots_change_neither_winner_nor_code_of_a_settled_vote(
    voting: Voting, ballots: list[Ballot], quorum: int | None, share: float | None, chance: Random
) -> None:
    rules = options(voting, len(ballots), quorum=quorum, min_confidence=share)
    arrival = chance.sample(range(len(ballots)), len(ballots))
    final = elect(rules, dict(enumerate(ballots)))
    settled = False
    for count in range(len(ballots) + 1):
        so_far = {replica: ballots[replica] for replica in arrival[:count]}
        assert is_settled(rules, so_far) or not settled
        settled = is_settled(rules, so_far)
        if settled:
            early = elect(rules, so_far)
            for violations in (accept_all, accept_odd_length):
                assert outcome(rules, so_far, violations) == outcome(rules, dict(enumerate(ballots)), violations)
            if isinstance(early, ElectedAnswer) and isinstance(final, ElectedAnswer):
                assert early.confidence == early.votes / rules.n <= final.confidence
    assert settled


def test_three_equal_votes_of_five_settle_the_vote() -> None:
    assert not is_settled(options(n=5), {0: "a", 4: "a"})
    assert is_settled(options(n=5), {0: "a", 2: "a", 4: "a"})
    assert not is_settled(options(n=5, quorum=4), {0: "a", 2: "a", 4: "a"})
    assert is_settled(options(n=5, quorum=4), {0: "a", 1: FAILED, 2: "b"})


def test_a_lead_that_a_tie_would_take_is_safe_only_with_the_lowest_replica() -> None:
    assert is_settled(options(n=4), {0: "a", 1: "a"})
    assert not is_settled(options(n=4), {1: "a", 2: "a"})


def test_a_dissent_or_a_failure_settles_unanimity() -> None:
    assert is_settled(options("unanimity", 5), {1: "a", 3: "b"})
    assert is_settled(options("unanimity", 5), {1: "a", 3: FAILED})
    assert not is_settled(options("unanimity", 5), {0: "a", 1: "a", 2: "a", 3: "a"})


def test_without_votes_nothing_is_settled() -> None:
    assert not is_settled(options(n=3, quorum=3), {0: FAILED, 1: FAILED})
    assert is_settled(options(n=3, quorum=3), {0: FAILED, 1: FAILED, 2: FAILED})


@pytest.mark.parametrize("voting", VOTINGS)
def test_without_early_stop_all_replicas_are_awaited(voting: Voting) -> None:
    rules = options(voting, 4, early_stop=False)
    assert not is_settled(rules, {0: "a", 1: "a", 2: "a"})
    assert is_settled(rules, {0: "a", 1: "a", 2: "a", 3: FAILED})


# The vote as a response shows it


def test_a_report_shows_every_replica_and_whole_values_by_rank() -> None:
    shown = report(options(n=5), {1: {"a": 1}, 0: {"a": 2}, 2: FAILED, 3: {"a": 1.0}})
    assert shown.model_dump(exclude_none=True) == {
        "candidates": [
            {"replica": 0, "status": "voted", "value": {"a": 2}},
            {"replica": 1, "status": "voted", "value": {"a": 1}},
            {"replica": 2, "status": "failed", "code": "INFERENCE_ENGINE_ERROR"},
            {"replica": 3, "status": "voted", "value": {"a": 1}},
            {"replica": 4, "status": "cancelled"},
        ],
        "tally": [
            {"value": {"a": 1}, "votes": 2, "replicas": [1, 3]},
            {"value": {"a": 2}, "votes": 1, "replicas": [0]},
        ],
        "stopped_early": True,
    }


def test_a_report_of_fields_shows_the_votes_of_every_leaf_and_of_what_was_voted_out() -> None:
    ballots: list[Ballot] = [{"a": [1, 2], "b c": {}, "d": 1}, {"a": [1, 3], "b c": {}}, {"a": [1, 2], "b c": {}}]
    shown = report(options("field_majority"), dict(enumerate(ballots)))
    assert shown.fields == {
        "$.a[0]": {"votes": 3, "value": 1},
        "$.a[1]": {"votes": 2, "value": 2},
        "$['b c']": {"votes": 3, "value": {}},
        "$.d": {"votes": 2},
    }
    assert not shown.stopped_early


def test_fields_with_long_names_of_equal_beginning_are_distinct() -> None:
    ballot: JsonValue = {"x" * 100 + end: 1 for end in "ab"}
    assert len(report(options("field_majority", 1), {0: ballot}).fields or ()) == 2


@BOUNDED
@given(BALLOTS)
def test_the_weakest_field_of_a_report_is_the_confidence(ballots: list[Ballot]) -> None:
    rules = options("field_majority", len(ballots))
    shown = report(rules, dict(enumerate(ballots)))
    ended: Any = elect(rules, dict(enumerate(ballots)))
    fields: Any = shown.fields
    assert fields is None or isinstance(ended, ElectedAnswer)
    assert fields is None or min(each["votes"] for each in fields.values()) == ended.votes
    assert orjson.loads(shown.model_dump_json()) == shown.model_dump()


# What is too large


@pytest.mark.parametrize(
    ("n", "size", "fits"), [(3, 8_000, True), (3, 8_300, False), (16, 1_500, True), (16, 1_600, False)]
)
def test_the_size_limit_of_an_answer_shrinks_with_the_number_of_replicas(n: int, size: int, fits: bool) -> None:
    if fits:
        check_ballot_size(options(n=n), [1] * size)
        return
    with pytest.raises(ConstraintFailure, match=f"too large for a vote among {n} replicas") as caught:
        check_ballot_size(options(n=n), [1] * size)
    assert caught.value.code is Code.CONSTRAINT_SCHEMA_INVALID
    assert [violation["path"] for violation in caught.value.details["violations"]] == ["$"]


def test_long_texts_and_many_values_are_too_large() -> None:
    check_ballot_size(options(n=3), "x" * 300_000)
    with pytest.raises(ConstraintFailure):
        check_ballot_size(options(n=16), "x" * 100_000)


def test_a_costly_vote_on_fields_is_not_settled_early_but_counted() -> None:
    few, many = ({f"field {number}": number for number in range(size)} for size in (20, 2_000))
    rules = options("field_majority", 5)
    for value, is_early in ((few, True), (many, False)):
        ballots: Ballots = {0: value, 1: value, 2: value, 3: {**value, "field 0": -1}}
        assert is_settled(rules, ballots) is is_early
        assert is_settled(rules, {**ballots, 4: FAILED})
        assert winner_of(rules, *({**ballots, 4: FAILED}).values()).value == value
