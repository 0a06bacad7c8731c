"""Tables of Python modules: those that define rules, step types, planners and flows."""

from typing import Annotated

from pydantic import Field, StringConstraints

from portico.settings.values import Name, Seconds, Table

ModuleName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$")]
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


class FlowSettings(Table):
    """Flows: the modules that register them, and the surroundings of their functions."""

    modules: ModuleNames = Field(
        (), description="Python modules that register flows; the directory of the configuration file is importable"
    )
    working_dir: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="Root of all paths of nodes; the current directory if absent"
    )
    commands: Annotated[tuple[Name, ...], Field(strict=False)] = Field((), description="Commands that nodes may run")
    http_timeout: Seconds = Field(30, description="Timeout of the HTTP client of nodes, in seconds")
