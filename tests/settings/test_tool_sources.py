"""Tables of programs and HTTP APIs: their defaults, their errors, and the files that they name."""

from pathlib import Path

import pytest

from portico.adapters.tools.threads import DaemonThreads
from portico.bootstrap.agents import check_agents, configured_agents
from portico.bootstrap.tools import check_tool_names, open_registry, tool_sources
from portico.capabilities.output.rules.custom import BUILT_IN_RULES
from portico.domain.failures import ConfigurationFailure
from portico.domain.tools import SideEffects
from portico.settings import Settings, load_settings
from portico.settings.tables.connection import HeadersFile
from tests.support.sandbox import opened_sandbox
from tests.support.virtual_time import VirtualClock

GREP = """
[tools.cli.grep_files]
description = "Search files"
command = ["grep", "-r", "--regexp={pattern}", "--", "."]
parameters = { type = "object", properties = { pattern = { type = "string" } }, required = ["pattern"] }
"""


def settings_of(tmp_path: Path, text: str, **variables: str) -> Settings:
    path = tmp_path / "portico.toml"
    path.write_text(text)
    return load_settings(variables, path, local_model=lambda: None)


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigurationFailure) as refused:
        _start(tmp_path, text)
    return refused.value.message


def _start(tmp_path: Path, text: str) -> None:
    settings = settings_of(tmp_path, text)
    open_registry(tool_sources(settings, (), opened_sandbox()), VirtualClock(), DaemonThreads(1))


def test_without_further_words_a_program_is_taken_for_one_that_acts_on_the_world(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, GREP)
    table = settings.tools.cli["grep_files"]
    assert table.model_dump(mode="json", exclude={"command", "description", "parameters"}) == {
        "side_effects": "external",
        "idempotent": False,
        "timeout": 30,
        "working_dir": None,
        "pass_caller": False,
        "credentials": {},
        "isolation": None,
        "network": "none",
        "read_paths": [],
        "write_paths": [],
        "written_bytes": 268_435_456,
        "ok_exit_codes": [0],
        "env": {},
        "env_from": {},
        "env_file": None,
        "output_limit": 262_144,
        "memory": 1_073_741_824,
        "processes": 64,
        "open_files": 256,
        "file_bytes": 67_108_864,
        "cpu_seconds": None,
        "require_isolation": False,
    }
    assert table.directory(settings.directory) is None


def test_an_http_api_has_defaults_too(tmp_path: Path) -> None:
    text = '[tools.http.weather]\ndescription = "Weather"\nurl = "https://api.test/now"'
    assert settings_of(tmp_path, text).tools.http["weather"].model_dump(mode="json") == {
        "description": "Weather",
        "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
        "side_effects": "external",
        "idempotent": False,
        "timeout": 30,
        "method": "GET",
        "url": "https://api.test/now",
        "headers": {},
        "headers_file": None,
        "select": None,
        "credential": None,
        "max_bytes": 1_048_576,
        "allow_private": False,
    }


def test_a_program_gets_only_the_variables_that_are_meant_for_it(tmp_path: Path) -> None:
    text = GREP + 'env = { MODE = "fast" }\nenv_from = { TOKEN = "ACME_TOKEN" }\n'
    settings = settings_of(tmp_path, text, ACME_TOKEN="hunter2", OTHER="x", PATH="/bin", HOME="/root")
    table = settings.tools.cli["grep_files"]
    assert table.environment(settings.child_environment) == {"PATH": "/bin", "MODE": "fast", "TOKEN": "hunter2"}
    assert "hunter2" not in repr(settings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('"--regexp={pattern}"', '"--regexp={text}"'), "tools.cli.grep_files.command: {text} is no property"),
        (('"grep", "-r"', '"{pattern}"'), "tools.cli.grep_files.command: the program itself must not be a place"),
        (('type = "object", properties', 'type = "array", properties'), "tools.cli.grep_files.parameters: must be a"),
        (("pattern = {", "pattern = { minLength = -1,"), "the parameters of tool grep_files cannot be used"),
        (("command = [", "comand = ["), "tools.cli.grep_files.comand"),
        (("cli.grep_files", "cli.'grep files'"), "tools.cli"),
        (("cli.grep_files", "cli.calculate"), "two tools are named calculate: of built-in and cli"),
        (('"Search files"', '"Search files"\nside_effects = "some"'), "tools.cli.grep_files.side_effects: must be"),
        (('"Search files"', '"Search files"\ntimeout = 0'), "tools.cli.grep_files.timeout: must be"),
        (
            ('"Search files"', '"Search files"\nenv_from = { A = "NOT_SET" }'),
            "tools.cli.grep_files.env_from.A: ",
        ),
    ],
)
def test_a_program_that_cannot_work_stops_the_start_and_is_named(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    assert message in refusal(tmp_path, GREP.replace(*change, 1))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('url = "ftp://api.test"', "tools.http.weather.url: must be an http or https URL"),
        ('url = "https://api.test/{city}"', "tools.http.weather.url: has the place {city}, which is no required"),
        (
            'url = "https://api.test/?a=1&limit=2"\nparameters = {type = "object", properties = {limit = {}}}',
            "tools.http.weather.url: sets limit in its query, so limit must be no property of the parameters",
        ),
        (
            'url = "https://api.test/?{a}=1"\nparameters = {type = "object", properties = {a = {}}, required = ["a"]}',
            "tools.http.weather.url: must not have a place for an argument in a name of its query",
        ),
        ('url = "https://api.test"\nmethod = "HEAD"', "tools.http.weather.method: must be"),
        ('url = "https://api.test"\nselect = "city"', "tools.http.weather.select: must be a path such as"),
        (
            'url = "https://api.test"\nheaders_file = "/no/such/file"',
            "tools.http.weather.headers_file: names a file that cannot be read",
        ),
    ],
)
def test_an_http_api_that_cannot_work_stops_the_start_and_is_named(tmp_path: Path, line: str, message: str) -> None:
    assert message in refusal(tmp_path, f'[tools.http.weather]\ndescription = "Weather"\n{line}')


@pytest.mark.parametrize(("said", "effective"), [("", False), (", additionalProperties = true", True)])
def test_an_argument_that_the_parameters_do_not_declare_is_refused_unless_they_say_otherwise(
    tmp_path: Path, said: str, effective: bool
) -> None:
    program = GREP.replace('required = ["pattern"]', f'required = ["pattern"]{said}')
    api = f"""
[tools.http.weather]
description = "Weather"
url = "https://api.test/{{city}}?limit=1"
parameters = {{ type = "object", properties = {{ city = {{}} }}, required = ["city"]{said} }}
"""
    sources = tool_sources(settings_of(tmp_path, program + api), (), opened_sandbox())
    registry = open_registry(sources, VirtualClock(), DaemonThreads(1))
    for tool, argument in (("grep_files", "pattern"), ("weather", "city")):
        refused = () if effective else (("arguments.admin", "is not expected"),)
        assert registry.violations(tool, {argument: "x", "admin": "1"}) == refused
        [definition] = registry.definitions([tool])
        assert definition.parameters["additionalProperties"] is effective


@pytest.mark.parametrize("keyword", ["$ref", "allOf", "anyOf", "oneOf"])
def test_parameters_that_are_composed_must_say_if_they_take_others(tmp_path: Path, keyword: str) -> None:
    composed = 'required = ["pattern"], "$ref" = "#/$defs/a"' if keyword == "$ref" else f"{keyword} = [{{}}]"
    program = GREP.replace('required = ["pattern"]', f'{composed}, "$defs" = {{ a = {{}} }}')
    message = f"tools.cli.grep_files.parameters: has {keyword}, so it must say additionalProperties: true or false"
    assert message in refusal(tmp_path, program)
    _start(tmp_path, program.replace(composed, f"{composed}, additionalProperties = true"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[policy]\ndeny = [{ tool = "grep_file" }]',
            "policy.deny.0.tool: must name a registered tool; did you mean grep",
        ),
        ('[policy]\ntrusted_output = ["x"]', "policy.trusted_output.0: must name a registered tool"),
        ('[policy]\napprove = [{ tool = "step:x" }]', "policy.approve.0.tool: must name a registered tool"),
        ('[tenants.a]\ntools = ["roll_dice", "shop2__x"]', "tenants.a.tools.1: must name a registered tool"),
    ],
)
def test_a_tool_that_a_rule_or_a_tenant_names_must_be_there(tmp_path: Path, text: str, message: str) -> None:
    settings = settings_of(tmp_path, GREP + text)
    registry = open_registry(tool_sources(settings, (), opened_sandbox()), VirtualClock(), DaemonThreads(1))
    with pytest.raises(ConfigurationFailure) as refused:
        check_tool_names(settings, registry)
    assert refused.value.message.startswith(message)


def test_a_tool_of_an_mcp_server_and_a_prefix_are_taken_as_they_stand(tmp_path: Path) -> None:
    server = '[tools.mcp.shop]\nurl = "http://127.0.0.1:9/mcp"\n'
    rules = '[policy]\ndeny = [{ tool = "shop__x" }, { tool = "drop_*" }]\n[tenants.a]\ntools = ["shop__y", "*"]\n'
    settings = settings_of(tmp_path, GREP + server + rules)
    check_tool_names(
        settings, open_registry(tool_sources(settings, (), opened_sandbox()), VirtualClock(), DaemonThreads(1))
    )


def test_a_file_of_variables_is_read_and_its_values_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("# secrets\nTOKEN=hunter2=\n\nMODE=fast\n")
    settings = settings_of(tmp_path, GREP + f'env_file = "{tmp_path}/env"\n')
    assert settings.tools.cli["grep_files"].environment({"PATH": "/bin"}) == {
        "PATH": "/bin",
        "TOKEN": "hunter2=",
        "MODE": "fast",
    }
    assert "hunter2" not in repr(settings)
    (tmp_path / "env").write_text("no variable")
    message = refusal(tmp_path, GREP + f'env_file = "{tmp_path}/env"\n')
    assert message == "tools.cli.grep_files.env_file: names a file that must have one `NAME=value` a line"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tools.mcp.files]", "tools.mcp.files: must have either a command or a url"),
        (
            '[tools.mcp.files]\ncommand = ["a"]\nurl = "http://a"',
            "tools.mcp.files: must have either a command or a url",
        ),
        ('[tools.mcp.files]\nurl = "http://a"\nenv = {}', "tools.mcp.files: has a url, so env has no meaning"),
        ('[tools.mcp.Files]\nurl = "http://a"', "tools.mcp"),
        ('[tools.mcp.agent]\nurl = "http://a"', "tools.mcp.agent: must have another name: agents are tools"),
    ],
)
def test_an_mcp_server_that_cannot_work_stops_the_start_and_is_named(tmp_path: Path, text: str, message: str) -> None:
    assert message in refusal(tmp_path, text)


def test_headers_are_read_again_when_their_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "headers"
    path.write_text("# the key\nAuthorization: Bearer one\n\nX-Team: a b\n")
    headers = HeadersFile(path)
    assert headers.read() == {"authorization": "Bearer one", "x-team": "a b"}
    path.write_text("Authorization: Bearer second")
    assert headers.read() == {"authorization": "Bearer second"}
    path.write_text("no header at all")
    assert headers.read() == {"authorization": "Bearer second"}
    path.unlink()
    assert headers.read() == {"authorization": "Bearer second"}
    assert "second" not in repr(headers)


@pytest.mark.parametrize("text", ["Authorization", "A b: c", "Content-Length: 3", "X: a\x01b"])
def test_a_file_that_has_no_headers_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "headers"
    path.write_text(text)
    message = refusal(tmp_path, f'[tools.http.weather]\ndescription = "d"\nurl = "http://a"\nheaders_file = "{path}"')
    assert message.startswith("tools.http.weather.headers_file: ")


def test_an_agent_may_name_a_tool_that_its_server_has_yet_to_list(tmp_path: Path) -> None:
    text = '[tools.mcp.files]\nurl = "http://127.0.0.1:1/mcp"\n[agents.{name}]\ndescription = "d"\ntools = ["{tool}"]'
    settings = settings_of(tmp_path, text.format(name="reader", tool="files__read"))
    agents = configured_agents(settings, {})
    check_agents(agents, [], BUILT_IN_RULES, settings.tools.mcp)
    [agent] = agents.tools(())
    assert (agent.info().side_effects, agent.info().unsafe) == (SideEffects.EXTERNAL, True)
    settings = settings_of(tmp_path, text.format(name="reader", tool="file__read"))
    with pytest.raises(ConfigurationFailure, match=r"agents\.reader\.tools\.0: must name a registered tool"):
        check_agents(configured_agents(settings, {}), [], BUILT_IN_RULES, settings.tools.mcp)
