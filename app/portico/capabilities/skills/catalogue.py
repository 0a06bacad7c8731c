"""Catalogue of the skills, and the choice among them for one context."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from math import ceil
from typing import Final, NamedTuple

from portico.capabilities.skills.selection import Selection, SkillCandidate, numbers_in, select, to_millionths
from portico.capabilities.skills.triggers import TriggerIndex, is_usable
from portico.domain.context.report import ExcludedSkill
from portico.domain.context.skill import Skill, SkillError
from portico.domain.contract.messages import Message
from portico.domain.tools import reference_of
from portico.domain.value import value

REMEMBERED_SELECTIONS: Final = 512
CountTokens = Callable[[Message], int]


class SkillRequest(NamedTuple):
    """Request of one context: names of candidates in any order, the tools that they may need, and the budget.

    `ratio` is that of the model's tokens to those of the uncorrected estimate.
    """

    names: tuple[str, ...]
    tools: Collection[str]
    budget: int
    ratio: float = 1.0


@value
class ChosenSkills:
    """The skills of one context, each behind those that it requires, and the candidates that are not in it."""

    skills: tuple[Skill, ...]
    excluded: tuple[ExcludedSkill, ...]

    @property
    def tools(self) -> tuple[str, ...] | None:
        """The tools that they require; None if they require none."""
        required = dict.fromkeys(tool for skill in self.skills for tool in skill.tools)
        return tuple(required) or None


class SkillCatalogue:
    """The skills of the configuration by name.

    Raises: SkillError for a name that is there twice, for skills that require each other, and for a trigger that cannot
    be used, beginning with the name of the skill.
    """

    def __init__(self, skills: Iterable[Skill], count_tokens: CountTokens) -> None:
        self._skills = sorted(skills, key=lambda skill: (-skill.value, skill.name))
        self._numbers = {skill.name: number for number, skill in enumerate(self._skills)}
        if len(self._numbers) < len(self._skills):
            raise SkillError(f"{_repeated(self._skills)}: there are two skills of this name")
        self._ranks = self._find_ranks()
        self._closures = self._find_closures()
        self._messages = [skill.message for skill in self._skills]
        self._estimates = [count_tokens(message) for message in self._messages]
        self._triggers = _trigger_index(self._skills)
        self._selections: OrderedDict[tuple[object, ...], Selection] = OrderedDict()

    def __len__(self) -> int:
        return len(self._skills)

    def __contains__(self, name: object) -> bool:
        return name in self._numbers

    def all(self) -> list[Skill]:
        """Return the skills by name."""
        return sorted(self._skills, key=lambda skill: skill.name)

    def tokens(self, name: str, ratio: float = 1.0) -> int:
        """Return the cost of a skill: what is estimated, or what it says if that is more."""
        return self._cost(self._numbers[name], ratio)

    def message(self, name: str) -> Message:
        """Return the skill as a model reads it."""
        return self._messages[self._numbers[name]]

    def triggered(self, text: str) -> tuple[str, ...]:
        """Return the names of the skills that have a trigger in the text, and of those that need none."""
        owners = self._triggers.owners(text)
        return tuple([skill.name for number, skill in enumerate(self._skills) if skill.always or number in owners])

    def choose(self, request: SkillRequest) -> ChosenSkills:
        """Return the candidates of the most value that fit the budget, with what they require."""
        known = sorted({self._numbers[name] for name in request.names if name in self._numbers})
        barred = self._barred(known, request.tools)
        usable = [number for number in known if number not in barred]
        selection = self._select(usable, request)
        excluded = [ExcludedSkill(name, "not registered") for name in request.names if name not in self._numbers]
        reason = "budget" if selection.is_best else "search_limit"
        excluded += [
            ExcludedSkill(self._skills[number].name, barred.get(number, reason))
            for number in known
            if not selection.taken >> number & 1
        ]
        return ChosenSkills(tuple(self._in_reading_order(selection.taken)), tuple(excluded))

    def _select(self, usable: Sequence[int], request: SkillRequest) -> Selection:
        key = (tuple(usable), request.budget, request.ratio)
        known = self._selections.get(key)
        if known is None:
            candidates = [self._candidate(number) for number in usable]
            costs = {number: self._cost(number, request.ratio) for number in self._with_required(usable)}
            known = self._selections[key] = select(candidates, costs, request.budget)
            if len(self._selections) > REMEMBERED_SELECTIONS:
                self._selections.popitem(last=False)
        return known

    def _candidate(self, number: int) -> SkillCandidate:
        return SkillCandidate(number, to_millionths(self._skills[number].value), self._closures[number])

    def _cost(self, number: int, ratio: float) -> int:
        return max(self._skills[number].tokens, ceil(self._estimates[number] * ratio))

    def _with_required(self, numbers: Iterable[int]) -> list[int]:
        """Return these skills and all that they require, each behind those that it requires itself."""
        together = 0
        for number in numbers:
            together |= self._closures[number]
        return sorted(numbers_in(together), key=self._ranks.__getitem__)

    def _barred(self, candidates: Iterable[int], tools: Collection[str]) -> dict[int, str]:
        """Return those of the candidates and their requirements that cannot be used with these tools, with reasons."""
        barred: dict[int, str] = {}
        for number in self._with_required(candidates):
            skill = self._skills[number]
            tool = next((each for each in skill.tools if each not in tools), None)
            missing = next((each for each in skill.requires if self._numbers.get(each, -1) in {-1, *barred}), None)
            if tool is not None:
                barred[number] = f"tool {reference_of(tool)}"
            elif missing is not None:
                barred[number] = f"requires {missing}"
        return barred

    def _in_reading_order(self, taken: int) -> list[Skill]:
        """Return the skills by value and name, each behind those that it requires."""
        ordered: dict[int, None] = {}
        for number in numbers_in(taken):
            ordered.update(dict.fromkeys(self._with_required([number])))
        return [self._skills[number] for number in ordered]

    def _find_ranks(self) -> Mapping[int, int]:
        """Return the places of the skills in an order in which each stands behind those that it requires."""
        edges = {
            number: [self._numbers[name] for name in skill.requires if name in self._numbers]
            for number, skill in enumerate(self._skills)
        }
        try:
            return {number: rank for rank, number in enumerate(TopologicalSorter(edges).static_order())}
        except CycleError as cycle:
            names = [self._skills[number].name for number in reversed(cycle.args[1])]
            raise SkillError(f"{names[0]}: must not require itself: {' -> '.join(names)}") from None

    def _find_closures(self) -> Mapping[int, int]:
        closures: dict[int, int] = {}
        for number in self._ranks:
            closure = 1 << number
            for name in self._skills[number].requires:
                closure |= closures.get(self._numbers.get(name, -1), 0)
            closures[number] = closure
        return closures


def _trigger_index(skills: Sequence[Skill]) -> TriggerIndex:
    """Return the index of the triggers. Raises: SkillError, which begins with the name of the skill at fault."""
    try:
        return TriggerIndex([skill.triggers for skill in skills])
    except ValueError as fault:
        for skill in skills:
            for trigger in skill.triggers:
                if not is_usable(trigger):
                    message = f"{skill.name}: {trigger[:64]!a} is no expression of RE2, or too large"
                    raise SkillError(message) from None
        raise SkillError(f"triggers: {fault}") from None


def _repeated(skills: Sequence[Skill]) -> str:
    names = [skill.name for skill in skills]
    return next(name for name in names if names.count(name) > 1)
