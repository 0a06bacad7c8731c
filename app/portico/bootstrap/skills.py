"""Skills in the composition root: their directory, at start and again on request, and the agents that name them."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio.to_thread

from portico.adapters.skill_directory import read_skills, unusable_skills
from portico.capabilities.models.tokens import UNCORRECTED
from portico.capabilities.skills.catalogue import SkillCatalogue
from portico.capabilities.skills.library import SkillLibrary
from portico.capabilities.tools.agents import AgentCatalogue
from portico.domain.context.skill import SkillError
from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.value import value
from portico.settings import Settings
from portico.settings.values import closest_name


@value
class SkillReload:
    """The skills in force, and their reload. What cannot be used is reported and changes nothing."""

    directory: Path
    library: SkillLibrary
    agents: AgentCatalogue
    on_failure: Callable[[str], None]

    async def run(self) -> None:
        """Read the directory on a thread, and put its skills in force."""
        try:
            catalogue = await anyio.to_thread.run_sync(partial(_read, self.directory, self.agents))
        except ConfigurationFailure as failure:
            self.on_failure(f"{failure.message}; the skills that were read before stay in force")
        else:
            self.library.replace(catalogue)


def open_skills(settings: Settings, agents: AgentCatalogue, on_failure: Callable[[str], None]) -> SkillReload | None:
    """Return the configured skills with their reload; None without a directory.

    Raises: ConfigurationFailure (CONFIG_INVALID) for skills that cannot be used, and for agents that name others.
    """
    if settings.skills.directory is None:
        _check_agents(agents, None)
        return None
    directory = Path(settings.skills.directory)
    library = SkillLibrary(_read(directory, agents), settings.skills.budget_tokens)
    return SkillReload(directory, library, agents, on_failure)


def _read(directory: Path, agents: AgentCatalogue) -> SkillCatalogue:
    try:
        catalogue = SkillCatalogue(read_skills(directory), UNCORRECTED.message)
    except SkillError as fault:
        raise unusable_skills(str(fault)) from fault
    _check_agents(agents, catalogue)
    return catalogue


def _check_agents(agents: AgentCatalogue, catalogue: SkillCatalogue | None) -> None:
    """Raise if an agent names a skill that there is not."""
    for agent in agents.all():
        for index, name in enumerate(agent.skills):
            if catalogue is None or name not in catalogue:
                known = [] if catalogue is None else [skill.name for skill in catalogue.all()]
                hint = f"; did you mean {closest_name(name, known)}?" if known else ", and there is none"
                key = f"agents.{agent.name}.skills.{index}"
                raise ConfigurationFailure(Code.CONFIG_INVALID, f"{key}: must name a skill of skills.directory{hint}")
