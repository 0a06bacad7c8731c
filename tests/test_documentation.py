"""README.md and docs/ say what is true: generated parts, examples, commands, configurations and links."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.bounds import BOUNDS
from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.capabilities.tools.registry import ToolRegistry
from portico.domain.plan.parsed_plan import parse_plan
from portico.entrypoints.cli.table import COMMANDS
from portico.entrypoints.http.app import create_app
from portico.orchestration.planning.plan_check import refusal_of
from portico.ports.engine_schemes import SCHEMES
from portico.settings import load_settings
from portico.settings.schema import Settings
from tests.support.documentation import (
    GENERATED_PART,
    PAGES,
    PART_WRITERS,
    README,
    ROOT,
    SERVER,
    documented_server,
    masked,
    regenerate,
    setting_descriptions,
    with_answers,
)
from tests.support.emulators import openai_chat
from tests.support.emulators.answers import EmulatedAnswer
from tests.support.emulators.server import KEY, EmulatedServer
from tests.support.http_server import running_server
from tests.support.webhook_receiver import SECRET

TEXTS = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
ALL = "\n".join(TEXTS.values())
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))

PYTHON = {name: codes for name, text in TEXTS.items() if (codes := re.findall(r"```python\n(.*?)```", text, re.DOTALL))}


def test_every_generated_part_is_there_once_and_as_the_code_has_it() -> None:
    assert sorted(part["name"] for part in GENERATED_PART.finditer(ALL)) == sorted(PART_WRITERS)
    assert regenerate(ALL) == ALL, "make docs"


def test_a_part_that_drifted_is_noticed() -> None:
    for name in PART_WRITERS:
        drifted = ALL.replace(f"<!-- generated:{name} -->\n", f"<!-- generated:{name} -->\nby hand\n")
        assert drifted != ALL
        assert regenerate(drifted) == ALL


def test_a_part_of_unknown_name_is_refused() -> None:
    with pytest.raises(KeyError):
        regenerate("<!-- generated:weather -->\n<!-- /generated -->")


@pytest.mark.parametrize("name", [name for name, text in TEXTS.items() if "<!-- answer" in text])
def test_every_answer_is_what_a_server_gives(name: str) -> None:
    with documented_server(page=TEXTS[name]) as server:
        assert masked(with_answers(TEXTS[name], server)) == masked(TEXTS[name]), "make docs"


def test_an_answer_that_drifted_is_noticed() -> None:
    example = "```sh\ncurl -s http://127.0.0.1:8080/livez\n```"
    page = f'{example}\n\n<!-- answer -->\n```json\n{{"alive": false}}\n```\n<!-- /answer -->'
    with documented_server() as server:
        assert '{"alive": true}' in with_answers(page, server)


@pytest.mark.parametrize("name", PYTHON)
def test_every_python_example_runs(name: str) -> None:
    with documented_server(page=TEXTS[name]) as server:
        for code in PYTHON[name]:
            tests = [f"{test}()" for test in re.findall(r"^def (test_\w+)\(", code, re.MULTILINE)]
            ran = subprocess.run(
                [sys.executable, "-c", "\n".join([code.replace(SERVER, server.url), *tests])],
                cwd=server.directory,
                env=dict(server.environment),
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert (ran.returncode, ran.stderr) == (0, ""), code


def test_events_of_an_answer_are_shown_by_type_and_member_and_a_row_of_them_is_cut() -> None:
    example = (
        "```sh\ncurl -sN http://127.0.0.1:8080/v1/execute -H 'Accept: text/event-stream' "
        "-H 'Content-Type: application/json' "
        """-d '{"tools": [], "messages": [{"role": "user", "content": "Hi"}]}'\n```"""
    )
    page = f"{example}\n\n<!-- answer: inference.delta execution.completed offset text -->\n<!-- /answer -->"
    with documented_server() as server:
        shown = with_answers(page, server)
    assert shown.count("event: inference.delta") == 2
    assert 'data: {…, "offset": 4, "text": " is"}\n\n…\n\nevent: execution.completed\n' in shown


def test_a_python_example_with_an_answer_shows_what_it_prints() -> None:
    page = "```python\nprint(6 * 7)\n```\n\n<!-- answer -->\n```\n41\n```\n<!-- /answer -->"
    with documented_server() as server:
        assert "```json\n42\n```" in with_answers(page, server)


@pytest.mark.parametrize("name", [name for name, scheme in SCHEMES.items() if scheme.api_key_env])
def test_the_model_in_the_table_of_providers_is_asked_if_only_its_key_is_set(name: str) -> None:
    variable = SCHEMES[name].api_key_env
    [row] = re.findall(rf"^\| [^|]+ \| `{variable}` \| `(.+?)` \|", TEXTS["README.md"], re.MULTILINE)
    [engine] = load_settings({str(variable): "sk-1"}, local_model=lambda: None).engines.values()
    assert (engine.model.scheme, engine.model.model) == (name, row)


@pytest.mark.parametrize(
    "line", re.findall(r'`(model = "\w+://[^`]*)`(?:, `(.+?)`)? \|$', TEXTS["README.md"], re.MULTILINE)
)
def test_every_line_of_the_table_of_providers_can_be_written(line: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "portico.toml"
    file.write_text("[engines.mine]\n" + "\n".join(line), encoding="utf-8")
    keys = dict.fromkeys(re.findall(r'api_key_env = "(\w+)"', line[1]), "sk-1")
    assert [*load_settings(keys, file, local_model=lambda: None).engines] == ["mine"]


def test_every_make_target_that_is_named_exists() -> None:
    named = {target for line in re.findall(r"\bmake((?: [a-z-]+)+)(?=`|\)| +#|\n)", ALL) for target in line.split()}
    assert named >= {"run", "test", "check", "bench", "openapi", "docs"}
    assert named <= TARGETS


def test_every_command_that_is_named_exists() -> None:
    named = set(re.findall(r"`(?:\.venv/bin/)?portico ([a-z]+)", ALL)) | set(re.findall(r"bin/portico ([a-z]+)", ALL))
    assert named <= set(COMMANDS)
    assert named >= {"serve", "check", "execute", "replay"}


@pytest.mark.parametrize("table", re.findall(r"```toml\n(?!# config\.toml)(.*?)```", ALL, re.DOTALL))
def test_every_configuration_can_be_used(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "portico.toml"
    monkeypatch.chdir(tmp_path)
    table = table.replace('"/run/', f'"{tmp_path}/')
    for named in re.findall(r'(?:secret|api_key)_file = "(.+?)"', table):
        (tmp_path / named).parent.mkdir(exist_ok=True)
        (tmp_path / named).write_text(SECRET if named.endswith(".secret") else named)
    file.write_text(table, encoding="utf-8")
    keys = dict.fromkeys(re.findall(r'api_key_env = "(\w+)"', table), "sk-1")
    settings = load_settings(keys, file, local_model=lambda: None)
    if settings.planner.steps:
        policy = settings.plan_policy(ToolRegistry(*BUILTIN_TOOLS).names())
        assert refusal_of(parse_plan(settings.planner.steps), policy) is None


async def test_the_configuration_of_the_readme_answers_with_a_key(tmp_path: Path) -> None:
    [table] = re.findall(r"```toml\n(.*?)```", TEXTS["README.md"], re.DOTALL)
    keys = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY, "PORTICO__STORAGE__URL": "sqlite://"}
    file = tmp_path / "portico.toml"
    async with EmulatedServer(openai_chat.respond, EmulatedAnswer("Hello.")) as upstream:
        file.write_text(table.replace("[engines.backup]", f'base_url = "{upstream.url}"\n\n[engines.backup]'))
        settings = load_settings(keys, file, local_model=lambda: None)
        async with running_server(create_app(settings)) as server:
            answer = await server.post(b'{"tools": [], "messages": [{"role": "user", "content": "Hi"}]}')
    assert (answer.json["content"], [request.path for request in upstream.requests]) == (
        "Hello.",
        ["/chat/completions"],
    )


def test_every_setting_is_described() -> None:
    described = setting_descriptions()
    assert [key for key, text in described.items() if not text] == []
    assert {key.split(".")[0] for key in described} == set(Settings.model_fields)


def test_the_benchmarks_have_the_bounds_of_the_bench() -> None:
    rows = re.findall(r"^\| (.+?) \| -?[\d.e+]+ \S+ \| (?:≤ ([\d.]+) \S+ )?\|$", TEXTS["benchmarks.md"], re.MULTILINE)
    shown = {meaning: float(maximum) if maximum else None for meaning, maximum in rows}
    assert shown == {bound.meaning: bound.maximum for bound in BOUNDS}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_linked_file_exists(page: Path) -> None:
    prose = re.sub(r"`[^`\n]+`", "code", TEXTS[page.name])
    links = [link for link in re.findall(r"\]\(([^)#]+)[^)]*\)", prose) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []
    assert links or page != README


def test_every_target_of_the_makefile_is_phony_and_explained() -> None:
    phony = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert set(" ".join(phony).split()) == TARGETS
    assert set(re.findall(r"^([a-z-]+):.*## \S", MAKEFILE, re.MULTILINE)) == TARGETS
