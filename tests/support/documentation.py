"""Pages of README.md and docs/: their generated parts, and their examples with the answers of a real server.

`python -m tests.support.documentation --write` writes both. A generated part stands between `<!-- generated:NAME -->`
and `<!-- /generated -->`. An answer stands between `<!-- answer -->` and `<!-- /answer -->` behind the block of shell
or Python that produces it; `<!-- answer: state content -->` keeps those members of a JSON answer, or of the events of a
stream, only, and `<!-- answer: inference.delta text -->` only the events of the types that it names.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import httpx2
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.main import get_command

from bench.bounds import BOUNDS as BENCH_BOUNDS
from portico.adapters.engines.levels import LEVELS, LevelRow
from portico.adapters.engines.levels import TABLES as REASONING_TABLES
from portico.adapters.engines.openai.vendors import VENDORS
from portico.adapters.telemetry.metrics.catalogue import SERIES
from portico.bootstrap.service import PATTERNS
from portico.capabilities.models.health import (
    CONSEQUENCES,
    MOST_BACKOFF_S,
    MOST_REST_S,
    PROBE_INTERVAL_S,
    QUOTA_REST_S,
    Consequence,
)
from portico.capabilities.prompting.definition import PromptDefinition
from portico.capabilities.prompting.registry import SYSTEM_PROMPTS, default_registry
from portico.domain.diagrams import fallback_mermaid, lifecycle_mermaid
from portico.domain.failures import TAXONOMY, FailureRow
from portico.domain.journal.events import EVENT_FIELDS, EVENT_TYPES, WIRE_NAMES
from portico.domain.model_call import UNSENT
from portico.entrypoints.cli.command_line import command_line
from portico.entrypoints.http.client_apis.messages.transcript import DROPPED_BLOCKS
from portico.entrypoints.http.client_apis.request_fields import NEUTRAL_VALUES
from portico.ports.engine_schemes import SCHEMES
from portico.settings.schema import Settings
from portico.settings.tables.agents import AgentSettings
from portico.settings.tables.channels import ChannelSettings
from portico.settings.tables.credentials import CredentialSettings
from portico.settings.tables.engines import DeploymentSettings, EngineSettings, RouteSettings
from portico.settings.tables.guards import GuardSettings
from portico.settings.tables.limits import TenantSettings
from portico.settings.tables.tool_sources import (
    CodeSettings,
    FileSettings,
    HttpGetSettings,
    HttpToolSettings,
    McpServerSettings,
    ProgramSettings,
    PythonSettings,
    SandboxSettings,
)
from tests.counts.bounds import BOUNDS
from tests.support.forked_portico import ForkedPortico

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").glob("*.md")))
SERVER = "http://127.0.0.1:8080"
GENERATED_PART = re.compile(r"(?P<begin><!-- generated:(?P<name>\w+) -->\n).*?(?P<end><!-- /generated -->)", re.DOTALL)
EXAMPLE = re.compile(
    r"```(?P<language>sh|python)\n(?P<code>.*?)```"
    r"(?:\n\n(?P<begin><!-- answer(?:: (?P<members>[\w. ]+))? -->\n).*?(?P<end><!-- /answer -->))?",
    re.DOTALL,
)
VARYING = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|(?<![0-9a-f])(?:[0-9a-f]{32}|[0-9a-f]{16})(?![0-9a-f])"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"
    r"|ptk_[A-Za-z0-9]{8}_[A-Za-z0-9_-]{43}"
    r"|(?:(?<=\"key\": \")|(?<=\"public_id\": \")|(?<=\"created_by\": \"))[A-Za-z0-9]{8}(?=\")"
    r"|Rolled 2d6: \[\d \d\] \(sum: \d+\)"
    r"|(?<=_ms\":)\s*\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
    r"|(?<=-tokens\";r=)\d+;t=\d+"
    r"|(?<=date: )\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT"
    r"|\d+\.\d(?= ms)|\d+\.\d{3}(?= s )"
)
KEY = re.compile(r"ptk_[A-Za-z0-9]{8}_[A-Za-z0-9_-]{43}")
EVENT = re.compile(r"^event: (\S+)\ndata: (.*)$", re.MULTILINE)
FILE = re.compile(r"```\w+\n# (?P<name>\w+\.(?:py|toml))\n(?P<text>.*?)```", re.DOTALL)
"""A block of a page that is a file beside the server."""
STARTUP_SECONDS = 30.0
PROVIDERS: Mapping[str, tuple[str, str]] = {
    "openai": ("OpenAI", ""),
    "anthropic": ("Anthropic", ""),
    "gemini": ("Google Gemini", ""),
    "azure": ("Azure OpenAI", "RESOURCE/DEPLOYMENT"),
    "bedrock": ("Amazon Bedrock", "REGION/amazon.nova-pro-v1:0"),
    "vertex": ("Google Vertex AI", "PROJECT/global/gemini-2.5-flash"),
    "ollama": ("Ollama", "/qwen3:8b"),
    "llamacpp": ("llama.cpp, in this process", "/models/qwen3-8b.gguf"),
    "rehearsal": ("none: invented answers", ""),
    "scripted": ("none: the replies of a file", "/replies.json"),
}
"""The name of each scheme's provider, and what stands behind `scheme://` in its example if it has no default model."""
FIRST_COUNTS: Mapping[str, int] = {
    "chat": 551,
    "features that a chat does not name": 2,
    "one more tool round": 368,
    "one more streamed chunk": 28,
    "journaled instead of in memory": 288,
    "one more pass, of 2 to 4": 1736,
    "the 20th pass, in percent of the 3rd": 198,
    "changes of file": 282,
    "served chat": 661,
    "one more served tool round": 490,
    "one more served chunk": 38,
    "served chat on 16 deployments, more": 27,
}
"""The numbers of the ways when they were counted first."""
FIRST_FRAMEWORK_CALLS = 116
FRAMEWORK_CALLS = "FastAPI and Starlette: Python calls per chat"


def lifecycle() -> str:
    """The diagram of mode chat, then those of the other modes."""
    parts = [f"### {mode}\n\n{_mermaid(lifecycle_mermaid(mode))}" for mode in PATTERNS]
    return "\n".join(parts)


def fallback() -> str:
    """The diagram of the fallback machine."""
    return _mermaid(fallback_mermaid())


def errors() -> str:
    """One row for each code, in the order of the taxonomy."""
    head = "| Code | Status | Meaning | What to do |\n|---|---|---|---|\n"
    return head + "".join(_error_row(row) for row in TAXONOMY.values())


def metrics() -> str:
    """One row for each Prometheus series."""
    head = "| Metric | Type | Labels | Meaning | What to do |\n|---|---|---|---|---|\n"
    return head + "".join(
        f"| `{each.name}` | {each.type} | {_code(each.labels)} | {each.meaning} | {each.advice} |\n" for each in SERIES
    )


def events() -> str:
    """One row for each event type with the fields of its own."""
    head = "| Event | Fields of its own |\n|---|---|\n"
    return head + "".join(
        f"| `{kind.type}` | {_code([WIRE_NAMES.get(each, each) for each in EVENT_FIELDS[kind]])} |\n"
        for kind in EVENT_TYPES
    )


def prompts() -> str:
    """One row for each prompt: its system prompt, its places, and its output."""
    head = "| Prompt | System prompt | Places | Output |\n|---|---|---|---|\n"
    return head + "".join(map(_prompt_row, map(default_registry().definition, default_registry().ids())))


def settings() -> str:
    """One table for each section of the configuration."""
    return "\n".join(_section(name, table) for name, table in _sections())


def providers() -> str:
    """One row for each scheme of engines: what selects it, the model that is asked then, and the line to write."""
    head = "| Provider | Set only | Model that is asked then | Line under `[engines.NAME]` |\n|---|---|---|---|\n"
    return head + "".join(map(_provider_row, SCHEMES))


_NEXT = "goes to the next deployment at once"
_CONSEQUENCES = {
    Consequence.REST: "rests for `Retry-After` or until the reset that the provider names, at most "
    f"{MOST_REST_S:g} s; without either 1 s, which doubles in a row to {MOST_BACKOFF_S:g} s, and {QUOTA_REST_S:g} s "
    f"after `quota`. The later of two ends holds | {_NEXT}",
    Consequence.FAILURE: f"has a failure in its breaker; while that is open it is ejected | {_NEXT}",
    Consequence.DENIAL: f"is refused until its key changes, with one probe each {PROBE_INTERVAL_S:g} s: after a "
    f"refused key at once, after 403 and 404 with the second in a row from another execution | {_NEXT}",
    Consequence.NOTHING: "has no part in it | ends, or goes on [by cause](#fallback-by-cause); after `kept_refused` "
    "the deployment is asked again at once, without the blocks",
}


def vendors() -> str:
    """One row for each vendor of `openai://`: its hosts, and what it takes."""
    head = "| `vendor` | Hosts | Reasoning | Documents | Audio | `prompt_cache_key` | Windows and prices |\n"
    return f"{head}|---|---|---|---|---|---|---|\n" + "".join(map(_vendor_row, VENDORS))


def clouds() -> str:
    """One row for each scheme of a cloud: its model URL, and the server that is asked."""
    rows = [
        f"| `{name}://{'/'.join(scheme.places)}/MODEL` | `{scheme.base_url}` |\n"
        for name, scheme in SCHEMES.items()
        if scheme.places
    ]
    return "| Model URL | Base URL |\n|---|---|\n" + "".join(rows)


def reasoning() -> str:
    """One row for each family of models: what it is sent for each level of reasoning."""
    head = (
        "| Parameter | Models | " + " | ".join(f"`{level}`" for level in LEVELS) + " |\n|---|---|---|---|---|---|---|\n"
    )
    rows = ((parameter, row) for parameter, table in REASONING_TABLES.items() for row in table)
    return head + "".join(_reasoning_row(parameter, row) for parameter, row in rows)


def deployments() -> str:
    """One row for each consequence that a failed attempt has for its deployment, with the reasons that have it."""
    head = "| An attempt ends as | The deployment | The inference |\n|---|---|---|\n"
    rows = (
        f"| {_code(reason for reason in CONSEQUENCES if CONSEQUENCES[reason] is each and reason not in UNSENT)} "
        f"| {_CONSEQUENCES[each]} |\n"
        for each in Consequence
    )
    return head + "".join(rows)


def counts() -> str:
    """One row for each counted way: its number when it was counted first, and its bound now."""
    head = "| Way | Counted first | Bound now |\n|---|---|---|\n"
    [framework] = [bound.maximum for bound in BENCH_BOUNDS if bound.meaning == FRAMEWORK_CALLS]
    last = (
        f"| FastAPI and Starlette, one chat (bounded by `make bench`) | {FIRST_FRAMEWORK_CALLS} | {framework:.0f} |\n"
    )
    return head + "".join(f"| {way} | {FIRST_COUNTS[way]} | {bound} |\n" for way, bound in BOUNDS.items()) + last


def client_parameters() -> str:
    """Return the table of the parameters that client APIs do not support."""
    rows = [f"| `{name}` | {_code(map(json.dumps, passing))} |" for name, passing in NEUTRAL_VALUES.items()]
    return "\n".join(["| Refused parameter | Values that pass, besides `null` |", "|---|---|", *rows, ""])


def dropped_blocks() -> str:
    """Return the types of the blocks of Messages that are dropped."""
    return f"{_code(sorted(DROPPED_BLOCKS))}\n"


def commands() -> str:
    """Return a part for every command: its docstring, its usage and its options."""
    return "\n".join(_command_part(path, command) for path, command in _command_walk(get_command(command_line())))


def _command_walk(group: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    context = group.make_context("portico", [], resilient_parsing=True)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from _command_walk(command, *names, name)
        else:
            yield (*names, name), command


def _command_part(path: tuple[str, ...], command: Any) -> str:
    context = command.make_context(" ".join(("portico", *path)), [], resilient_parsing=True)
    usage = " ".join(command.collect_usage_pieces(context))
    rows = [record for each in command.params if (record := each.get_help_record(context)) is not None]
    table = "".join(f"| `{_cell_text(name)}` | {_cell_text(text)} |\n" for name, text in rows)
    head = f"### `portico {' '.join(path)}`\n\n{command.help}\n\n```\nportico {' '.join(path)} {usage}\n```\n"
    return head + (f"\n| Option | Meaning |\n|---|---|\n{table}" if table else "")


def _cell_text(text: str) -> str:
    return text.replace("|", "\\|")


PART_WRITERS: Mapping[str, Callable[[], str]] = {
    "lifecycle": lifecycle,
    "fallback": fallback,
    "errors": errors,
    "metrics": metrics,
    "events": events,
    "prompts": prompts,
    "settings": settings,
    "providers": providers,
    "vendors": vendors,
    "clouds": clouds,
    "reasoning": reasoning,
    "deployments": deployments,
    "counts": counts,
    "client_parameters": client_parameters,
    "dropped_blocks": dropped_blocks,
    "commands": commands,
}


def regenerate(text: str) -> str:
    """Return the page with every generated part as the code has it. Raises: KeyError for a part of unknown name."""
    return GENERATED_PART.sub(lambda part: part["begin"] + PART_WRITERS[part["name"]]() + part["end"], text)


def masked(text: str) -> str:
    """Return the text with everything that differs from run to run replaced: ids, times, durations, dice."""
    return VARYING.sub("…", text)


@dataclass(frozen=True)
class DocumentedServer:
    """A running `portico serve` in a directory of its own, for the examples of one page."""

    directory: Path
    url: str
    environment: Mapping[str, str]
    keys: list[str] = field(default_factory=list)
    """The keys that the commands have printed; the last one is `$PORTICO_KEY`."""

    def run(self, shell: str) -> str:
        """Return what the commands of a shell block print. Commands of make and exports are left to the reader."""
        printed: list[str] = []
        for command in _split_commands(shell.replace("\\\n", " ")):
            match command[0]:
                case "curl":
                    printed.append(self._curl(command[1:]))
                case ".venv/bin/portico":
                    printed.append(self._portico(command[1:]))
                case "make" | "export" | "cd" | "git" | "docker" | "pip":
                    continue
                case other:
                    raise ValueError(f"an example runs {other}, which this runner does not know")
        return "\n".join(part.rstrip("\n") for part in printed if part)

    def _curl(self, arguments: list[str]) -> str:
        method, headers, body, show_head, url = None, {}, None, False, ""
        rest = iter(arguments)
        for argument in rest:
            match argument:
                case "-H":
                    name, _, value = next(rest).partition(":")
                    headers[name.strip()] = value.strip().replace("$PORTICO_KEY", (self.keys or [""])[-1])
                case "-d":
                    body = next(rest)
                case "-X":
                    method = next(rest)
                case flags if flags.startswith("-"):
                    show_head = show_head or "i" in flags
                case _:
                    url = argument.replace(SERVER, self.url)
        answer = httpx2.request(
            method or ("GET" if body is None else "POST"), url, headers=headers, content=body, timeout=STARTUP_SECONDS
        )
        head = "".join(f"{name}: {value}\n" for name, value in answer.headers.items()) if show_head else ""
        return f"HTTP/1.1 {answer.status_code}\n{head}\n{answer.text}" if show_head else answer.text

    def _portico(self, arguments: list[str]) -> str:
        given = [each.replace(SERVER, self.url) for each in arguments]
        process = ForkedPortico(*given, directory=self.directory, environ=self.environment, errors=subprocess.STDOUT)
        printed, _ = process.communicate(STARTUP_SECONDS)
        assert process.returncode == 0, printed
        self.keys.extend(KEY.findall(printed))
        return printed

    def run_python(self, code: str) -> str:
        """Return what a Python program prints. Raises: CalledProcessError if it fails."""
        done = subprocess.run(
            [sys.executable, "-c", code.replace(SERVER, self.url)],
            cwd=self.directory,
            env=dict(self.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=STARTUP_SECONDS,
            check=True,
        )
        return done.stdout


@contextmanager
def documented_server(configuration: str = "", page: str = "", **variables: str) -> Iterator[DocumentedServer]:
    """Serve in a new directory with this configuration, these environment variables, and the files of the page."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if configuration:
            (directory / "portico.toml").write_text(configuration, encoding="utf-8")
        for file in FILE.finditer(page):
            with (directory / file["name"]).open("a", encoding="utf-8") as opened:
                opened.write(file["text"])
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith("PORTICO") and not key.endswith("_API_KEY") and key.lower() != "http_proxy"
        } | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "clients" / "python")]),
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "120",
            **variables,
        }
        process = ForkedPortico(
            "serve", "--port", "0", directory=directory, environ=environment, errors=subprocess.DEVNULL
        )
        try:
            announced = re.search(r"http://\S+:\d+", process.stdout.readline())
            assert announced is not None
            yield DocumentedServer(directory, announced[0], environment)
        finally:
            process.terminate()
            process.communicate(timeout=STARTUP_SECONDS)


def with_answers(text: str, server: DocumentedServer) -> str:
    """Return the page with the answers that the server gives to its examples now, in order.

    An answer that differs only in what varies from run to run stays as it is.
    """

    def answered(example: re.Match[str]) -> str:
        if example["language"] == "sh":
            printed = server.run(example["code"])
        elif example["begin"] is None:
            return example[0]
        else:
            printed = server.run_python(example["code"])
        if example["begin"] is None:
            return example[0]
        shown = _shown(printed.replace(server.url, SERVER), example["members"])
        answer = f"```{example['language']}\n{example['code']}```\n\n{example['begin']}{shown}{example['end']}"
        return example[0] if masked(answer) == masked(example[0]) else answer

    return EXAMPLE.sub(answered, text)


def _split_commands(shell: str) -> Iterator[list[str]]:
    """Yield the words of each command; a command ends at a line break outside quotes."""
    for command in re.findall(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|#[^\n]*|[^'"\n#])+""", shell):
        words = shlex.split(command, comments=True)
        if words:
            yield words


def _shown(printed: str, members: str | None) -> str:
    if members is not None and "event: " in printed:
        return f"```\n{_shown_events(printed, members.split())}\n```\n"
    try:
        value = json.loads(printed)
    except ValueError:
        return f"```\n{printed.rstrip()}\n```\n"
    if members is None:
        return f"```json\n{_pretty(value)}\n```\n"
    chosen = [f"  {json.dumps(name)}: {_pretty(value[name], 2)}" for name in members.split()]
    return "```json\n{\n  …\n" + ",\n".join(chosen) + "\n  …\n}\n```\n"


def _shown_events(stream: str, names: list[str]) -> str:
    """Return the events of the named types with the other names as members; of those in a row the first two."""
    shown: list[str] = []
    types = {name for name in names if "." in name}
    chosen = [(event, data) for event, data in EVENT.findall(stream) if event in types]
    for event, run in groupby(chosen, key=itemgetter(0)):
        frames = [f"event: {event}\ndata: {_members(json.loads(data), names)}" for _, data in run]
        shown += frames[:2] + ["…"] * (len(frames) > 2)
    return "\n\n".join(shown)


def _members(value: Mapping[str, Any], names: list[str]) -> str:
    """Return these members on one line, each long object as `{…}`."""
    flat = {name: json.dumps(value[name], ensure_ascii=False) for name in names if name in value}
    members = [f'"{name}": {text if len(text) <= 110 else "{…}"}' for name, text in flat.items()]
    return "{…, " + ", ".join(members) + "}"


def _pretty(value: Any, indent: int = 0) -> str:
    """Return JSON with a member or item on each line, down to what fits into one line."""
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(flat) + indent <= 110 or not value:
        return flat
    pad = " " * (indent + 2)
    if isinstance(value, dict):
        inner = [f"{pad}{json.dumps(name)}: {_pretty(each, indent + 2)}" for name, each in value.items()]
        return "{\n" + ",\n".join(inner) + "\n" + " " * indent + "}"
    return "[\n" + ",\n".join(pad + _pretty(each, indent + 2) for each in value) + "\n" + " " * indent + "]"


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _sections() -> Iterator[tuple[str, type[BaseModel]]]:
    named: dict[str, tuple[str, type[BaseModel]]] = {
        "engines": ("engines.NAME", EngineSettings),
        "routes": ("routes.NAME", RouteSettings),
        "agents": ("agents.NAME", AgentSettings),
        "guardrails": ("guardrails.NAME", GuardSettings),
        "tenants": ("tenants.NAME", TenantSettings),
        "channels": ("channels.NAME", ChannelSettings),
        "credentials": ("credentials.NAME", CredentialSettings),
    }
    for name, setting in Settings.model_fields.items():
        if name in named:
            yield named[name]
        elif isinstance(setting.annotation, type):
            yield name, setting.annotation
        if name == "engines":
            yield "engines.NAME.deployments.KEY", DeploymentSettings
        if name == "tools":
            yield "tools.sandbox", SandboxSettings
            yield "tools.files", FileSettings
            yield "tools.http_get", HttpGetSettings
            yield "tools.python", PythonSettings
            yield "tools.code", CodeSettings
            yield "tools.cli.NAME", ProgramSettings
            yield "tools.http.NAME", HttpToolSettings
            yield "tools.mcp.NAME", McpServerSettings


def _section(name: str, table: type[BaseModel]) -> str:
    rows = (
        f"| `{key}` | {_default(field)} | {field.description or ''} |\n" for key, field in table.model_fields.items()
    )
    return f"### `[{name}]`\n\n| Key | Default | Meaning |\n|---|---|---|\n" + "".join(rows)


def setting_descriptions() -> Mapping[str, str]:
    """Return the description of every setting by its dotted key."""
    return {
        f"{name.removesuffix('.NAME')}.{key}": field.description or ""
        for name, table in _sections()
        for key, field in table.model_fields.items()
    }


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or isinstance(value, BaseModel) or value in ((), {}):
        return ""
    return f"`{json.dumps(list(value) if isinstance(value, tuple) else value)}`"


def _provider_row(name: str) -> str:
    scheme, (provider, example) = SCHEMES[name], PROVIDERS[name]
    variable = f"`{scheme.api_key_env}`" if scheme.api_key_env else ""
    model = f"`{scheme.default_model}`" if scheme.default_model else ""
    line = f'model = "{name}://{scheme.default_model or example}"'
    key = f', `api_key_env = "{scheme.api_key_env}"`' if scheme.api_key_env else ""
    return f"| {provider} | {variable} | {model} | `{line}`{key} |\n"


def _vendor_row(name: str) -> str:
    vendor = VENDORS[name]
    takes = (vendor.documents, vendor.audio, vendor.prompt_cache_key, vendor.prices is not None)
    marks = " | ".join("yes" if each else "no" for each in takes)
    return f"| `{name}` | {_code(vendor.hosts)} | `{vendor.reasoning}` | {marks} |\n"


def _reasoning_row(parameter: str, row: LevelRow) -> str:
    models = f"`{_cell_text(row.models)}`" if row.models else "others"
    cells = ("" if cell is None else f"`{str(cell).lower() if isinstance(cell, bool) else cell}`" for cell in row.cells)
    return f"| `{parameter}` | {models} | {' | '.join(cells)} |\n"


def _mermaid(diagram: str) -> str:
    return f"```mermaid\n{diagram.rstrip()}\n```\n"


def _prompt_row(prompt: PromptDefinition) -> str:
    system = SYSTEM_PROMPTS.get(prompt.prompt_id)
    output = "text" if prompt.output_model is None else f"`{prompt.output_model.__name__}`"
    return f"| `{prompt.prompt_id}` | {_code([system] if system else [])} | {_code(prompt.places)} | {output} |\n"


def _error_row(row: FailureRow) -> str:
    several = len(row.variants) > 1
    statuses = [
        f"{variant.status}{' retryable' if variant.retryable else ''}{f' ({variant.condition})' if several else ''}"
        for variant in row.variants
    ]
    return f"| `{row.code}` | {', '.join(statuses)} | {row.meaning} | {row.recovery} |\n"


def _write() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        with documented_server(page=text) as server:
            page.write_text(with_answers(regenerate(text), server), encoding="utf-8")


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        _write()
    elif any(regenerate(page.read_text(encoding="utf-8")) != page.read_text(encoding="utf-8") for page in PAGES):
        sys.exit("README.md or docs/ are not what the code says: make docs")
