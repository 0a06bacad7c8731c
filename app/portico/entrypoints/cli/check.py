"""Checks of a configuration: the database, and the grammars, prompts, skills, tools, step types and engines."""

from collections.abc import AsyncIterator

from rich.console import Console
from rich.text import Text

from portico.domain.access.principal import LOCAL
from portico.domain.failures import Category, Failure
from portico.domain.value import value
from portico.entrypoints.cli.display.terminal import printable
from portico.entrypoints.cli.execution import settings_of_command
from portico.entrypoints.cli.service_parts import CheckStorage, OpenService
from portico.settings import Settings


@value
class CheckResult:
    """Result of the check of one subject; `category` is that of the failure, None if there is none."""

    subject: str
    status: str
    detail: str = ""
    category: Category | None = None


async def run_checks(open_service: OpenService, check_storage: CheckStorage, settings: Settings) -> list[Category]:
    """Print the result of every check, and return the categories of the failures."""
    failures = []
    async for result in _checks(open_service, check_storage, settings):
        _print(result)
        if result.category is not None:
            failures.append(result.category)
    return failures


async def _checks(
    open_service: OpenService, check_storage: CheckStorage, settings: Settings
) -> AsyncIterator[CheckResult]:
    yield CheckResult("configuration", "ok")
    for warning in settings.warnings:
        yield CheckResult("configuration", "warning", warning)
    try:
        yield CheckResult("storage", "ok", await check_storage(settings))
    except Failure as failure:
        yield CheckResult("storage", "failed", failure.message, failure.category)
    async with open_service(settings_of_command(settings)) as service:  # it reads grammars, prompts and skills
        for subject, directory in _directories(settings):
            if directory is not None:
                yield CheckResult(subject, "ok", directory)
        for tool in await service.facade.introspection.tools(LOCAL.permissions):
            status, category = ("ok", None) if tool.available else ("unavailable", Category.TOOL)
            yield CheckResult(f"tool {tool.name}", status, tool.reason, category)
        for each in await service.facade.introspection.step_types(LOCAL.permissions):
            if each.source == "modules":
                status, category = ("ok", None) if each.available else ("unavailable", Category.TOOL)
                yield CheckResult(f"step type {each.name}", status, each.reason, category)
        if settings.planner.name is not None:  # a service whose planner is not there does not open
            yield CheckResult(f"planner {settings.planner.name}", "ok")
        for engine in await service.facade.introspection.ping_engines():
            status, category = ("ok", None) if engine.ok else ("unreachable", Category.INFERENCE)
            yield CheckResult(f"engine {engine.name}", status, engine.detail, category)


def _directories(settings: Settings) -> tuple[tuple[str, str | None], ...]:
    """Return the configured directories whose files an open service has read."""
    return (
        ("grammars", settings.grammars.directory),
        ("prompts", settings.prompts.directory),
        ("skills", settings.skills.directory),
    )


def _print(result: CheckResult) -> None:
    style = {"ok": "green", "warning": "yellow"}.get(result.status, "bold red")
    line = Text.assemble(f"{printable(result.subject)}  ", (result.status, style))
    if result.detail:
        line.append(f"  {printable(result.detail)}")
    Console(highlight=False).print(line, soft_wrap=True)
