"""Selection of skills: equal to brute force, in the order of ties, within its bounds."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from portico.capabilities.skills.catalogue import SkillCatalogue, SkillRequest
from portico.domain.context.report import ExcludedSkill
from portico.domain.context.skill import Skill, SkillError
from portico.domain.contract.messages import Message

VALUES = (0.0, 0.5, 1.0, 1.0, 1.0, 2.0)


def free(_: Message) -> int:
    return 0


def skill(name: str, tokens: int = 10, value: float = 1.0, *requires: str, **changes: object) -> Skill:
    return replace(Skill(name, "d", "text", value=value, requires=requires, tokens=tokens), **changes)


def catalogue(*skills: Skill) -> SkillCatalogue:
    return SkillCatalogue(skills, free)


def chosen(of: SkillCatalogue, names: Iterable[str], budget: int, *tools: str) -> tuple[list[str], dict[str, str]]:
    found = of.choose(SkillRequest(tuple(names), tools, budget))
    return [each.name for each in found.skills], {each.name: each.reason for each in found.excluded}


def random_skills(dice: Random, most: int) -> list[Skill]:
    names = [f"s{dice.random():.6f}" for _ in range(dice.randint(1, most))]
    return [
        skill(
            name,
            dice.choice((1, 5, 10, dice.randint(1, 60))),
            dice.choice((*VALUES, round(dice.random() * 3, 2))),
            *dice.sample(names[:index], min(index, dice.choice((0, 0, 1, 1, 2)))),
        )
        for index, name in enumerate(names)
    ]


def best_by_brute_force(skills: list[Skill], names: list[str], budget: int) -> set[str]:
    """Return the skills of the best set: the most value, then the first by the order of ties."""
    known = {each.name: each for each in skills}

    def closure(of: Iterable[str]) -> frozenset[str]:
        return frozenset(of).union(*(closure(known[name].requires) for name in of))

    order = sorted(names, key=lambda name: (-known[name].value, name))
    best: tuple[tuple[int, list[bool]], frozenset[str]] | None = None
    for count in range(len(names) + 1):
        for some in combinations(names, count):
            taken = closure(some)
            if sum(known[name].tokens for name in taken) <= budget:
                value = sum(round(known[name].value * 1_000_000) for name in names if name in taken)
                rank = (value, [name in taken for name in order])
                best = (rank, taken) if best is None or rank > best[0] else best
    assert best is not None
    return set(best[1])


def test_the_choice_equals_brute_force_on_a_thousand_random_instances() -> None:
    dice = Random(19)
    partial = 0
    for _ in range(1_000):
        skills = random_skills(dice, 9)
        names = [each.name for each in skills if dice.random() < 0.8]
        budget = dice.randint(0, sum(each.tokens for each in skills))
        taken, excluded = chosen(catalogue(*dice.sample(skills, len(skills))), dice.sample(names, len(names)), budget)
        assert set(taken) == best_by_brute_force(skills, names, budget)
        assert set(excluded) == set(names) - set(taken)
        assert set(excluded.values()) <= {"budget"}
        partial += bool(taken) and bool(excluded)
    assert partial > 300, "most instances have to leave something out"


def test_a_skill_is_read_behind_what_it_requires_and_shared_requirements_are_paid_once() -> None:
    of = catalogue(skill("a", 10, 1.0, "base"), skill("b", 10, 2.0, "base"), skill("base", 30, 0.1))
    assert chosen(of, ["a", "b"], 50) == (["base", "b", "a"], {})
    assert chosen(of, ["a", "b"], 49) == (["base", "b"], {"a": "budget"})
    assert chosen(of, ["a", "b"], 39) == ([], {"b": "budget", "a": "budget"})


@pytest.mark.parametrize(
    ("skills", "budget", "taken"),
    [
        ((skill("a"), skill("b"), skill("c")), 20, {"a", "b"}),
        ((skill("a", 10, 1.0), skill("b", 10, 2.0), skill("c", 10, 1.0)), 20, {"a", "b"}),
        ((skill("a", 10, 1.0), skill("b", 10, 1.0), skill("c", 20, 2.0)), 20, {"c"}),
        ((skill("a", 10, 0.0),), 10, {"a"}),
        ((skill("a", 10, 0.1), skill("b", 10, 0.2), skill("c", 20, 0.3)), 20, {"c"}),
    ],
)
def test_ties_go_to_the_higher_value_and_then_to_the_name(
    skills: tuple[Skill, ...], budget: int, taken: set[str]
) -> None:
    assert set(chosen(catalogue(*skills), [each.name for each in skills], budget)[0]) == taken


def test_a_skill_that_cannot_be_used_is_excluded_with_what_is_missing() -> None:
    of = catalogue(
        skill("needs-tool", tools=("dice", "agent__clerk")),
        skill("above", 10, 1.0, "needs-tool"),
        skill("top", 10, 1.0, "above"),
        skill("lost", 10, 1.0, "nothing"),
    )
    names = ["top", "needs-tool", "lost", "gone"]
    assert chosen(of, names, 100, "dice") == (
        [],
        {
            "gone": "not registered",
            "lost": "requires nothing",
            "needs-tool": "tool agent:clerk",
            "top": "requires above",
        },
    )
    found = of.choose(SkillRequest(("top",), ("dice", "agent__clerk", "other"), 100))
    assert (found.tools, found.excluded) == (("dice", "agent__clerk"), ())
    assert of.choose(SkillRequest(("lost",), ("dice",), 100)).excluded == (ExcludedSkill("lost", "requires nothing"),)


def test_forty_candidates_are_chosen_exactly_and_more_by_density() -> None:
    trap = [skill("dense", 1, 1.0), *(skill(f"s{number:02}", 10, 9.0) for number in range(39))]
    of = catalogue(*trap)
    assert len(chosen(of, [each.name for each in trap], 100)[0]) == 10
    assert "dense" not in chosen(of, [each.name for each in trap], 100)[0]
    more = catalogue(*trap, skill("x", 10, 9.0))
    taken, _ = chosen(more, [*(each.name for each in trap), "x"], 100)
    assert taken == [*(f"s{number:02}" for number in range(9)), "dense"]


def test_a_search_that_runs_out_of_nodes_takes_the_best_so_far_and_says_so() -> None:
    dice = Random(1)
    hard = [skill(f"s{n}", 1000 + dice.randint(1, 99), 1 + dice.random() / 100) for n in range(40)]
    taken, excluded = chosen(catalogue(*hard), [each.name for each in hard], 20_000)
    assert len(taken) == 19
    assert set(excluded.values()) == {"search_limit"}
    assert sum(each.tokens for each in hard if each.name in taken) <= 20_000


def test_an_unusable_set_of_skills_is_refused_with_the_name() -> None:
    with pytest.raises(SkillError, match=r"^a: there are two skills of this name$"):
        catalogue(skill("a"), skill("a"))
    with pytest.raises(
        SkillError, match=r"^\w: must not require itself: (a -> b -> c -> a|b -> c -> a -> b|c -> a -> b -> c)$"
    ):
        catalogue(skill("a", 10, 1.0, "b"), skill("b", 10, 1.0, "c"), skill("c", 10, 1.0, "a"))
    with pytest.raises(SkillError, match=r"^b: '/\(/' is no expression of RE2, or too large$"):
        catalogue(skill("a", triggers=("ok",)), skill("b", triggers=("fine", "/(/")))


def test_a_thousand_skills_in_a_chain_are_no_cycle_and_exhaust_no_stack() -> None:
    chain = [skill(f"s{n}", 1, 1.0, *([f"s{n + 1}"] if n < 999 else [])) for n in range(1000)]
    of = catalogue(*chain)
    assert len(chosen(of, ["s0"], 1000)[0]) == 1000
    assert chosen(of, ["s0"], 999) == ([], {"s0": "budget"})


def test_the_cost_is_the_larger_of_what_is_said_and_what_is_estimated_for_the_model() -> None:
    of = SkillCatalogue([skill("a", 10), skill("b", 0)], lambda message: 9)
    assert [of.tokens("a"), of.tokens("b"), of.tokens("a", 2.0), of.tokens("b", 0.5)] == [10, 9, 18, 5]
    assert len(of.choose(SkillRequest(("a", "b"), (), 19)).skills) == 2
    assert len(of.choose(SkillRequest(("a", "b"), (), 19, ratio=1.1)).skills) == 1


def test_triggers_and_always_find_candidates() -> None:
    of = catalogue(
        skill("a", triggers=("refund",)), skill("b", always=True), skill("c"), skill("d", 5, 2.0, triggers=("x",))
    )
    assert of.triggered("a refund x") == ("d", "a", "b")
    assert of.triggered("nothing") == ("b",)
