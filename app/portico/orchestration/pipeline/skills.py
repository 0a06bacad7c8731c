"""Skills of a context: the candidates of a request, and those of them that fit.

Only PREPARE chooses skills. What it chose is recorded as messages and tools, so that a replay, or a resumption after a
reload, reads the same.
"""

from collections.abc import Collection, Sequence
from typing import Literal

from portico.capabilities.skills.catalogue import SkillCatalogue, SkillRequest
from portico.capabilities.skills.library import SkillLibrary
from portico.domain.agents import RequestedAgent
from portico.domain.context.report import UsedSkill
from portico.domain.context.selection import SelectedSkills
from portico.domain.contract.messages import last_question
from portico.domain.contract.request import SystemRequest
from portico.ports.model import TokenCounter


def requested_skills(request: SystemRequest, agent: RequestedAgent | None) -> Sequence[str] | Literal["auto"]:
    """Return the names of the candidates, or `auto`; those of the agent if the request says nothing."""
    asked = request.context.skills
    if asked is None:
        return () if agent is None else agent.skills
    return asked


def skill_candidates(
    catalogue: SkillCatalogue, request: SystemRequest, agent: RequestedAgent | None
) -> tuple[str, ...]:
    """Return the names of the candidates: those that are named, or that the last user message triggers."""
    requested = requested_skills(request, agent)
    if requested != "auto":
        return tuple(requested)
    found = catalogue.triggered(last_question(request.messages))
    return found if agent is None else tuple([name for name in found if name in agent.skills])


def choose_skills(
    library: SkillLibrary, names: tuple[str, ...], tools: Collection[str], room: int, counter: TokenCounter
) -> SelectedSkills:
    """Return the skills that fit the room and the configured budget, as a model reads them."""
    catalogue, budget = library.catalogue, min(library.budget_tokens, room)
    chosen = catalogue.choose(SkillRequest(names, frozenset(tools), budget, counter.ratio))
    messages = [catalogue.message(skill.name) for skill in chosen.skills]
    tokens = map(counter.message, messages)
    used = [UsedSkill(skill.name, count) for skill, count in zip(chosen.skills, tokens, strict=True)]
    return SelectedSkills(tuple(used), tuple(messages), chosen.excluded, chosen.tools)
