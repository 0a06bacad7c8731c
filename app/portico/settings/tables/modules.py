"""Python modules of the configuration: their names, and those that define rules, step types and planners."""

from typing import Annotated

from pydantic import Field, StringConstraints

from portico.settings.values import Table

ModuleName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")]
ModuleNames = Annotated[tuple[ModuleName, ...], Field(strict=False)]


class PlanModuleSettings(Table):
    """Step types and planners that Python modules define."""

    modules: ModuleNames = Field(
        (),
        description="Python modules that define step types and planners; the directory of the configuration file is"
        " importable",
    )


class AnswerRuleSettings(Table):
    """Rules for answers that Python modules define."""

    modules: ModuleNames = Field(
        (), description="Python modules that define rules; the directory of the configuration file is importable"
    )
