"""Settings of skills."""

from typing import Annotated

from pydantic import Field, StringConstraints

from portico.settings.values import Table

SkillName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class SkillSettings(Table):
    """Skills: texts that a model reads when they are of use for a task."""

    directory: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="Directory of skills: files `FILE.md` and folders `NAME/SKILL.md`; SIGHUP reads it again"
    )
    budget_tokens: Annotated[int, Field(ge=0)] = Field(2_000, description="Tokens of all skills in one context")
