"""README agrees with the code: its generated parts, commands, configuration and links."""

import re
from pathlib import Path

import pytest

from app.adapters.tools.builtin import BUILTIN_TOOLS
from app.capabilities.tools.registry import ToolRegistry
from app.entrypoints.cli.commands import command_line
from app.orchestration.planning.planner import refusal_of
from app.settings import load_settings
from tests.support.readme import GENERATED_PART, PART_WRITERS, README, regenerate

PAGE = README.read_text(encoding="utf-8")
MAKEFILE = README.with_name("Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
COMMANDS = {command.name for command in command_line().registered_commands}
LINKS = [link for link in re.findall(r"\]\(([^)#]+)[^)]*\)", PAGE) if "://" not in link]


def test_each_generated_part_is_there_once_and_up_to_date() -> None:
    assert sorted(part["name"] for part in GENERATED_PART.finditer(PAGE)) == sorted(PART_WRITERS)
    assert regenerate(PAGE) == PAGE, "make readme"


def test_a_changed_part_is_noticed() -> None:
    for name in PART_WRITERS:
        drifted = PAGE.replace(f"<!-- generated:{name} -->\n", f"<!-- generated:{name} -->\nby hand\n")
        assert drifted != PAGE
        assert regenerate(drifted) == PAGE


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(KeyError):
        regenerate("<!-- generated:weather -->\n<!-- /generated -->")


def test_each_make_target_in_it_exists() -> None:
    named = {target for line in re.findall(r"\bmake((?: [a-z-]+)+)(?=`|\)| +#|\n)", PAGE) for target in line.split()}
    assert named >= {"run", "test", "check", "bench", "openapi"}
    assert named <= TARGETS


def test_each_command_in_it_exists() -> None:
    named = set(re.findall(r"`(?:\.venv/bin/)?portico ([a-z]+)", PAGE)) | set(re.findall(r"bin/portico ([a-z]+)", PAGE))
    assert named == COMMANDS


@pytest.mark.parametrize("table", re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL))
def test_each_configuration_in_it_can_be_loaded(table: str, tmp_path: Path) -> None:
    file = tmp_path / "portico.toml"
    file.write_text(table, encoding="utf-8")
    keys = dict.fromkeys(re.findall(r'api_key_env = "(\w+)"', table), "sk-1")
    settings = load_settings(keys, file, local_model=lambda: None)
    if settings.planner.steps:
        assert refusal_of(settings.planner.steps, settings.plan_policy(ToolRegistry(*BUILTIN_TOOLS).names())) is None


def test_each_linked_file_exists() -> None:
    assert LINKS
    assert [link for link in LINKS if not (README.parent / link).exists()] == []


def test_no_example_is_missing() -> None:
    assert re.findall(r"<!-- shown:([\w-]+) -->\n<!-- /shown -->", PAGE) == []


def test_each_target_of_the_makefile_is_phony_and_has_help() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony is not None
    assert set(phony[1].split()) == TARGETS
    assert set(re.findall(r"^([a-z-]+):.*## \S", MAKEFILE, re.MULTILINE)) == TARGETS
