"""Commands as a person at a terminal sees them, with a staged service."""

import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import anyio
import pytest
from fastapi import FastAPI
from typer.testing import CliRunner, Result
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from portico.bootstrap.keys import open_keys
from portico.bootstrap.service import open_history_reader
from portico.domain.access.principal import Permissions, Principal
from portico.domain.contract.final_answer import FinalAnswer
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import ResponseMetadata, SystemError, SystemResponse
from portico.domain.failures import (
    TAXONOMY,
    Category,
    Code,
    ConfigurationFailure,
    RequestFailure,
    StorageFailure,
    failure,
)
from portico.domain.journal import events
from portico.domain.journal.events import CorrelationContext, InferenceDelta, LiveDelta, StoredEvent
from portico.domain.lifecycle import Mode, State
from portico.domain.tools import IsolationLevel, LevelState, ServerFault, ToolServerStatus
from portico.entrypoints.cli.command_line import command_line
from portico.entrypoints.cli.display.suspension_prompt import describe_suspension
from portico.entrypoints.cli.exit_codes import EXIT_CODES
from portico.entrypoints.cli.service_parts import Checks, Wiring
from portico.orchestration.channels import NO_CHANNELS
from portico.orchestration.facade import CallOptions
from portico.settings import Settings
from tests.support.examples import EVENTS, SUSPENSION

pytestmark = pytest.mark.usefixtures("empty_directory")

CORRELATION = CorrelationContext("r-1", None, "0" * 32, "0" * 16, None)
JWT = """
[auth]
mode = "jwt"
issuer = "https://issuer.test"
audience = "portico"
jwks_url = "https://issuer.test/keys"
"""
ENGINES = "".join(f'[engines.{name}]\nmodel = "rehearsal://"\n' for name in ("primary", "backup"))
TRACES = '[telemetry]\notlp_endpoint = "http://127.0.0.1:1"\n'
ONE_OF_EACH = [next(row.code for row in TAXONOMY.values() if row.category is category) for category in Category]


def response(content: str | None = None, code: Code | None = None) -> SystemResponse:
    state = State.COMPLETE if code is None else State.ERROR
    error = None if code is None else SystemError.of(failure(code, "it did not work"))
    return SystemResponse(
        request_id="r-1", trace_id="0" * 32, mode=Mode.CHAT, state=state, content=content, error=error,
        metadata=ResponseMetadata(provider="rehearsal"),
    )  # fmt: skip


def recorded(event: events.Event, at: float = 0.0) -> StoredEvent:
    return StoredEvent(1, at, "0", CORRELATION, event)


def delta(text: str, *, offset: int = 0, segment: str = "0/0") -> LiveDelta:
    return LiveDelta(0.0, CORRELATION, InferenceDelta(segment, offset, text=text))


@dataclass
class Watched:
    """A subscription to prepared events; `at_end` runs after the last one."""

    items: list[StoredEvent | LiveDelta]
    at_end: Callable[[], None]
    cancelled: anyio.Event

    async def next(self) -> Sequence[StoredEvent | LiveDelta]:
        if self.items:
            return [self.items.pop(0)]
        self.at_end()
        if self.at_end is not _nothing:
            await self.cancelled.wait()
        return []


def _nothing() -> None:
    pass


@dataclass
class Execution:
    """A handle with a prepared response."""

    subscription: Watched
    response: SystemResponse | None

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        callback()

    def cancel(self) -> None:
        self.response = response(code=Code.CANCELLED_SIGNAL)
        self.subscription.cancelled.set()


@dataclass(frozen=True)
class Reach:
    name: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Offered:
    name: str
    available: bool
    reason: str
    source: str = "modules"


@dataclass
class StagedService:
    """A service with one prepared execution."""

    channels = NO_CHANNELS
    isolation: ClassVar[Mapping[IsolationLevel, LevelState]] = MappingProxyType({})
    response: SystemResponse = field(default_factory=lambda: response("the answer"))
    items: list[StoredEvent | LiveDelta] = field(default_factory=list)
    refused: RequestFailure | None = None
    at_end: Callable[[], None] = _nothing
    reached: list[Reach] = field(default_factory=list)
    servers: list[ToolServerStatus] = field(default_factory=list)
    opened_offline: bool = False
    offered: list[Offered] = field(default_factory=list)
    types: list[Offered] = field(default_factory=list)
    no_storage: StorageFailure | None = None
    requests: list[SystemRequest] = field(default_factory=list)
    settings: list[Settings] = field(default_factory=list)

    @property
    def facade(self) -> "StagedService":
        return self

    async def execute(self, request: SystemRequest, principal: Principal, calling: CallOptions) -> Execution:
        assert calling == CallOptions(subscribe=True)
        assert (principal.tenant, principal.channel) == ("local", "cli")
        self.requests.append(request)
        if self.refused is not None:
            raise self.refused
        return Execution(Watched(list(self.items), self.at_end, anyio.Event()), self.response)

    @property
    def introspection(self) -> "StagedService":
        return self

    async def ping_engine(self, name: str) -> Reach:
        return next((each for each in self.reached if each.name == name), Reach(name, ok=True, detail="answered"))

    def tool_servers(self) -> list[ToolServerStatus]:
        return self.servers

    async def tools(self, _permissions: Permissions) -> list[Offered]:
        return self.offered

    async def step_types(self, _permissions: Permissions) -> list[Offered]:
        return self.types

    async def check_storage(self, settings: Settings) -> str:
        if self.no_storage is not None:
            raise self.no_storage
        return "tables found"

    async def check_issuer(self, settings: Settings) -> str:
        return "2 keys"

    async def check_audit(self, settings: Settings) -> str:
        return "can be written"

    async def check_traces(self, settings: Settings) -> str:
        raise ConfigurationFailure(Code.CONFIG_INVALID, "http://127.0.0.1:1 does not take spans")

    def open_offline(self, settings: Settings) -> "AbstractAsyncContextManager[StagedService]":
        self.opened_offline = True
        return self.open(settings)

    @asynccontextmanager
    async def open(self, settings: Settings) -> AsyncIterator["StagedService"]:
        self.settings.append(settings)
        yield self

    def run(self, *arguments: str) -> Result:
        """Run `portico` with these arguments against this service."""
        outside = (self.check_storage, self.check_issuer, self.check_traces, self.check_audit)
        wiring = Wiring(
            create_app=lambda _: FastAPI(title="Staged"),
            protocol=HttpToolsProtocol,
            open_service=self.open,
            open_history_reader=open_history_reader,
            checks=Checks(*outside, self.open_offline),
            open_keys=open_keys,
        )
        return CliRunner().invoke(command_line(), list(arguments), obj=lambda: wiring, prog_name="portico")


class TestExecute:
    def test_the_answer_goes_to_standard_output_and_the_events_beside_it(self) -> None:
        items: list[StoredEvent | LiveDelta] = [
            recorded(events.LifecycleTransition(None, State.INIT, 1, "accepted"), 100.0),
            recorded(events.InferenceStart("0/0", 1, 3, False, False, None, "primary", "gpt-4o-mini"), 100.25),
            recorded(events.InferenceEnd("0/0", 12.5, 3, 4, "stop", 0), 100.5),
            recorded(events.ExecutionCompleted(response("the answer")), 101.0),
        ]
        result = StagedService(items=items).run("execute", "hello")
        assert result.exit_code == 0
        assert result.stdout == "the answer\n"
        lines = [line.split() for line in result.stderr.splitlines()]
        assert [line[2] for line in lines] == [item.event.type for item in items]
        assert [line[0] for line in lines] == ["0.000", "0.250", "0.500", "1.000"]
        assert "primary gpt-4o-mini" in result.stderr

    @pytest.mark.parametrize("arguments", [["execute", "hello"], ["execute", "--json", "hello"]])
    def test_a_degraded_answer_is_followed_by_a_warning(self, arguments: list[str]) -> None:
        limited = {"degraded": True, "reason": "limit_reached", "limit": "ORCHESTRATION_ITERATION_LIMIT"}
        partial = {"degraded": True, "reason": "incomplete_state", "missing_fields": ["task_profile", "\x1b[2J"]}
        for metadata, warning in (
            (limited, "degraded answer: limit_reached, ORCHESTRATION_ITERATION_LIMIT\n"),
            (partial, "degraded answer: incomplete_state, without task_profile, \\x1b[2J\n"),
            ({"degraded": False}, ""),
        ):
            answer = FinalAnswer(answer_text="the answer", metadata=metadata)
            staged = response("the answer").model_copy(update={"final_answer": answer})
            result = StagedService(response=staged).run(*arguments)
            assert result.exit_code == 0
            assert result.stderr == warning

    def test_every_event_has_a_line(self) -> None:
        items: list[StoredEvent | LiveDelta] = [recorded(event, 100.0) for event in EVENTS]
        result = StagedService(items=items).run("execute", "hello")
        assert [line.split()[2] for line in result.stderr.splitlines()] == [event.type for event in EVENTS]

    def test_an_event_of_a_plan_step_starts_with_its_name(self) -> None:
        start = recorded(events.StepStart("infer", 1), 100.0)
        inside = start._replace(correlation=replace(CORRELATION, step_name="roll\x07"))
        result = StagedService(items=[inside, start]).run("execute", "hello")
        assert [line.split()[3:] for line in result.stderr.splitlines()] == [
            ["roll\\x07:", "infer", "attempt", "1"],
            ["infer", "attempt", "1"],
        ]

    def test_json_is_the_whole_response_and_all_of_standard_output(self) -> None:
        result = StagedService(items=[recorded(events.StageEnd("AuthResolve", 0.1, "ok"))]).run(
            "execute", "hello", "--json"
        )
        assert SystemResponse.model_validate_json(result.stdout, strict=True) == response("the answer")
        assert "stage.end" in result.stderr

    def test_quiet_prints_the_answer_alone(self) -> None:
        items: list[StoredEvent | LiveDelta] = [recorded(event, 100.0) for event in EVENTS]
        result = StagedService(items=items).run("execute", "hello", "--quiet")
        assert (result.exit_code, result.stdout, result.stderr) == (0, "the answer\n", "")

    def test_quiet_shows_no_tree_of_a_plan_in_passes(self) -> None:
        items: list[StoredEvent | LiveDelta] = [recorded(events.StepStart("infer", 1), 100.0)]
        result = StagedService(items=items).run("execute", "hello", "--passes", "2", "--quiet")
        assert (result.exit_code, result.stdout, result.stderr) == (0, "the answer\n", "")

    def test_quiet_leaves_streamed_tokens_and_json(self) -> None:
        items: list[StoredEvent | LiveDelta] = [delta("the "), recorded(events.StepStart("infer", 1)), delta("answer")]
        streamed = StagedService(items=list(items)).run("execute", "hello", "--quiet", "--stream")
        assert (streamed.stdout, streamed.stderr) == ("the \nanswer\nthe answer\n", "")
        printed = StagedService(items=list(items)).run("execute", "hello", "--quiet", "--json")
        assert (json.loads(printed.stdout)["content"], printed.stderr) == ("the answer", "")

    def test_quiet_says_why_there_is_no_answer(self) -> None:
        items: list[StoredEvent | LiveDelta] = [recorded(event, 100.0) for event in EVENTS]
        failed = StagedService(response=response("partial", Code.INFERENCE_MODEL_UNAVAILABLE), items=list(items))
        result = failed.run("execute", "hello", "--quiet")
        line = "INFERENCE_MODEL_UNAVAILABLE: it did not work\n"
        assert (result.exit_code, result.stdout, result.stderr) == (10, "", line)

    def test_quiet_names_what_a_suspended_execution_waits_for(self) -> None:
        waiting = response().model_copy(update={"state": State.SUSPENDED, "suspensions": [SUSPENSION]})
        items: list[StoredEvent | LiveDelta] = [recorded(event, 100.0) for event in EVENTS]
        result = StagedService(response=waiting, items=items).run("execute", "hello", "--quiet")
        line = f"suspended: {describe_suspension(SUSPENSION)}\n"
        assert (result.exit_code, result.stdout, result.stderr) == (3, "", line)

    def test_a_stream_shows_tokens_as_they_arrive_and_the_answer_once(self) -> None:
        items: list[StoredEvent | LiveDelta] = [delta("the "), delta("answer", offset=4)]
        result = StagedService(items=items).run("execute", "hello", "--stream")
        assert result.stdout == "the answer\n"

    def test_each_segment_of_a_stream_has_lines_of_its_own(self) -> None:
        items: list[StoredEvent | LiveDelta] = [
            delta("the ans"),
            recorded(events.InferenceRetracted("0/0")),
            delta("the answer", segment="0/1"),
        ]
        result = StagedService(items=items).run("execute", "hello", "--stream")
        assert result.stdout == "the ans\nthe answer\n"
        assert "void" in result.stderr

    def test_an_answer_that_was_not_streamed_whole_is_written(self) -> None:
        result = StagedService(items=[delta("the")]).run("execute", "hello", "--stream")
        assert result.stdout == "the\nthe answer\n"

    def test_a_stream_leaves_standard_output_to_json(self) -> None:
        result = StagedService(items=[delta("the answer")]).run("execute", "hello", "--stream", "--json")
        assert json.loads(result.stdout)["content"] == "the answer"
        assert result.stderr == "the answer\n"

    def test_the_options_make_the_request(self) -> None:
        service = StagedService()
        options = ("--mode", "plan", "--tool", "a", "--tool", "b", "--model", "fast", "--system", "Be brief.")
        assert service.run("execute", "hello", *options).exit_code == 0
        (request,) = service.requests
        assert [(message.role, message.content) for message in request.messages] == [
            ("system", "Be brief."),
            ("user", "hello"),
        ]
        assert (request.mode, request.tools, request.model) == (Mode.PLAN, ["a", "b"], "fast")

    def test_an_agent_decides_what_no_option_does(self) -> None:
        service = StagedService()
        assert service.run("execute", "hello", "--agent", "support").exit_code == 0
        (request,) = service.requests
        assert request.agent == "support"
        assert "mode" not in request.model_fields_set

    def test_without_options_everything_else_stays_absent(self) -> None:
        service = StagedService()
        service.run("execute", "hello")
        (request,) = service.requests
        assert request.model_fields_set == {"messages", "model", "tools"}
        assert (request.mode, request.tools, request.model) == (Mode.CHAT, None, None)

    @pytest.mark.parametrize("command", [("check",), ("execute", "hello")])
    def test_the_configured_store_is_not_opened(self, command: tuple[str, ...]) -> None:
        service = StagedService()
        assert service.run(*command).exit_code == 0
        assert service.settings[0].storage.url == "sqlite://"

    def test_only_errors_are_logged_beside_the_view(self) -> None:
        service = StagedService()
        service.run("execute", "hello")
        assert service.settings[0].telemetry.log_level == "error"

    @pytest.mark.parametrize("code", ONE_OF_EACH)
    def test_a_failed_execution_ends_with_the_exit_code_of_its_category(self, code: Code) -> None:
        result = StagedService(response=response("partial", code)).run("execute", "hello")
        assert result.exit_code == EXIT_CODES[TAXONOMY[code].category]
        assert result.stdout == ""
        assert result.stderr == f"{code}: it did not work\n"

    def test_json_includes_the_failure(self) -> None:
        result = StagedService(response=response(None, Code.INFERENCE_MODEL_UNAVAILABLE)).run("execute", "x", "--json")
        assert json.loads(result.stdout)["error"]["code"] == "INFERENCE_MODEL_UNAVAILABLE"
        assert result.exit_code == 10

    def test_an_unknown_mode_reads_like_other_errors(self) -> None:
        result = StagedService().run("execute", "hello", "--mode", "plann")
        line = "Error: Invalid value for '--mode': must be 'chat', 'structured', 'plan', 'redundant' or 'flow'\n"
        assert result.stderr.endswith(line)
        assert result.exit_code == 2

    def test_a_refusal_is_one_line(self) -> None:
        refused = RequestFailure(Code.REQUEST_INVALID, "mode: plan comes with a later version")
        result = StagedService(refused=refused).run("execute", "hello")
        assert result.exit_code == 17
        assert result.stderr == "REQUEST_INVALID: mode: plan comes with a later version\n"

    def test_invalid_options_are_refused_by_name(self) -> None:
        result = StagedService().run("execute", "hello", "--tool", "reаd_file")  # noqa: RUF001 - a Cyrillic look-alike
        assert result.exit_code == 17
        assert result.stderr.startswith("REQUEST_INVALID: tools.0: ")
        assert "reаd" not in result.stderr  # noqa: RUF001 - the same

    def test_an_open_question_is_shown_and_ends_with_3(self) -> None:
        asked = response().model_copy(update={"state": State.SUSPENDED, "suspensions": [SUSPENSION]})
        result = StagedService(response=asked).run("execute", "hello")
        assert (result.exit_code, result.stdout) == (3, "")
        assert result.stderr == f"suspended: {describe_suspension(SUSPENSION)}\n"
        as_json = StagedService(response=asked).run("execute", "hello", "--json")
        assert as_json.exit_code == 3
        assert json.loads(as_json.stdout)["suspensions"][0]["suspension_id"] == "s-1"

    def test_a_schema_makes_the_request_structured(self) -> None:
        Path("schema.json").write_text('{"type": "object"}')
        service = StagedService()
        assert service.run("execute", "hello", "--schema", "schema.json").exit_code == 0
        assert service.run("execute", "hello", "--schema", "schema.json", "--mode", "plan").exit_code == 0
        assert [(each.mode, each.output.schema_) for each in service.requests] == [
            (Mode.STRUCTURED, {"type": "object"}),
            (Mode.PLAN, {"type": "object"}),
        ]

    def test_a_file_is_the_whole_request(self) -> None:
        Path("request.json").write_text('{"messages": [{"role": "user", "content": "hello"}], "hints": {"seed": 7}}')
        service = StagedService()
        assert service.run("execute", "--file", "request.json").exit_code == 0
        assert (service.requests[0].hints.seed, service.requests[0].messages[0].content) == (7, "hello")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (
                '{"messages": [',
                "request.json is not acceptable JSON: line 1, column 15: expected a value, found the end",
            ),
            ('{"mesages": []}', 'mesages: is not a known field; did you mean "messages"?'),
            ("[]", "must be an object"),
        ],
    )
    def test_a_file_that_is_no_request_is_refused_in_one_line(self, content: str, message: str) -> None:
        Path("request.json").write_text(content)
        result = StagedService().run("execute", "--file", "request.json")
        assert (result.exit_code, result.stderr) == (17, f"REQUEST_INVALID: {message}\n")

    def test_a_missing_file_is_refused_by_name(self) -> None:
        for option in (("--file", "away.json"), ("hello", "--schema", "away.json")):
            result = StagedService().run("execute", *option)
            assert result.stderr == "REQUEST_INVALID: away.json cannot be read: No such file or directory\n"

    def test_ctrl_c_cancels_the_execution_and_ends_with_its_answer(self) -> None:
        service = StagedService(at_end=lambda: os.kill(os.getpid(), signal.SIGINT))
        result = service.run("execute", "hello")
        assert result.exit_code == EXIT_CODES[Category.CANCELLATION]
        assert result.stderr == "CANCELLED_SIGNAL: it did not work\n"

    def test_control_characters_are_shown_escaped(self) -> None:
        item = recorded(events.ToolStart("evil\x1b]0;title\x07\nforged", "c-1", "0"))
        result = StagedService(items=[item]).run("execute", "hello")
        assert "evil\\x1b]0;title\\x07\\nforged" in result.stderr
        assert len(result.stderr.splitlines()) == 1


def checked(result: Result) -> list[str]:
    """Return the lines of `check` but that of the port, which another program may have."""
    return [line for line in result.stdout.splitlines() if not line.startswith("listener  ")]


class TestConfiguration:
    @pytest.mark.parametrize("command", [("check",), ("execute", "hello"), ("serve",)])
    def test_a_wrong_configuration_is_one_line_and_an_exit_code(self, command: tuple[str, ...]) -> None:
        Path("portico.toml").write_text("[server]\nprot = 1\n")
        result = StagedService().run(*command)
        assert result.exit_code == EXIT_CODES[Category.CONFIGURATION]
        assert result.stdout == ""
        assert result.stderr == "CONFIG_INVALID: server.prot is not known; did you mean server.port?\n"

    @pytest.mark.parametrize("command", [("check",), ("execute", "hello"), ("serve",)])
    def test_a_missing_configuration_is_one_line_and_an_exit_code(self, command: tuple[str, ...]) -> None:
        result = StagedService().run(*command, "--config", "away.toml")
        assert result.exit_code == EXIT_CODES[Category.CONFIGURATION]
        assert result.stderr.startswith("CONFIG_INVALID: away.toml cannot be read")

    def test_check_says_what_it_checked(self) -> None:
        Path("grammars").mkdir()
        Path("portico.toml").write_text('[grammars]\ndirectory = "grammars"\n' + ENGINES)
        engines = [Reach("primary", ok=True, detail="2 models"), Reach("backup", ok=True, detail="no\x1bne")]
        tools = [Offered("roll_dice", available=True, reason="")]
        result = StagedService(reached=engines, offered=tools).run("check")
        assert result.exit_code == 0
        assert checked(result) == [
            "configuration  ok",
            "storage  ok  tables found",
            "grammars  ok  grammars",
            "tool roll_dice  ok",
            "engine primary  ok  rehearsal (from portico.toml): 2 models",
            "engine backup  ok  rehearsal (from portico.toml): no\\x1bne",
        ]

    def test_check_fails_when_an_engine_cannot_be_reached(self) -> None:
        Path("portico.toml").write_text(ENGINES)
        engines = [Reach("primary", ok=True, detail="fine"), Reach("backup", ok=False, detail="connection refused")]
        result = StagedService(reached=engines).run("check")
        assert result.exit_code == EXIT_CODES[Category.INFERENCE]
        assert "engine backup  unreachable  rehearsal (from portico.toml): connection refused" in result.stdout

    def test_check_has_a_line_for_everything_that_is_configured_and_ends_with_the_first_failure(self) -> None:
        Path("portico.toml").write_text(JWT + TRACES)
        service = StagedService(
            servers=[
                ToolServerStatus("clock", 1),
                ToolServerStatus("files", 0, ServerFault.NOT_STARTED, "not started: no such file (mcp-files)"),
            ],
            offered=[Offered("mcp:files", available=False, reason="not started")],
        )
        result = service.run("check")
        assert checked(result) == [
            "configuration  ok",
            "storage  ok  tables found",
            "mcp clock  ok  1 tool",
            "mcp files  unavailable  not started: no such file (mcp-files)",
            "engine rehearsal  ok  answered",
            "issuer  ok  2 keys",
            "traces  unreachable  http://127.0.0.1:1 does not take spans",
        ]
        assert result.exit_code == EXIT_CODES[Category.TOOL]

    def test_check_offline_skips_what_needs_the_network(self) -> None:
        Path("portico.toml").write_text(JWT + TRACES)
        service = StagedService(reached=[Reach("rehearsal", ok=False, detail="refused")])
        result = service.run("check", "--offline")
        assert checked(result) == ["configuration  ok", "storage  ok  tables found"]
        assert (result.exit_code, service.opened_offline) == (0, True)

    def test_check_fails_when_a_tool_is_unavailable(self) -> None:
        result = StagedService(offered=[Offered("grep", available=False, reason="no sandbox")]).run("check")
        assert result.exit_code == EXIT_CODES[Category.TOOL]
        assert "tool grep  unavailable  no sandbox" in result.stdout

    def test_check_names_the_step_types_and_the_planner_of_modules(self) -> None:
        Path("portico.toml").write_text('[planner]\nkind = "module"\nname = "mine"\n')
        types = [
            Offered("infer", available=True, reason="", source="built-in"),
            Offered("charge", available=True, reason=""),
            Offered("slow", available=False, reason="no thread is free"),
        ]
        result = StagedService(types=types).run("check")
        assert result.exit_code == EXIT_CODES[Category.TOOL]
        assert checked(result)[2:5] == [
            "step type charge  ok",
            "step type slow  unavailable  no thread is free",
            "planner mine  ok",
        ]

    def test_check_fails_when_the_database_cannot_be_opened_and_checks_the_rest(self) -> None:
        refused = StorageFailure(Code.STORAGE_UNAVAILABLE, "storage.url: nothing listens on the port")
        result = StagedService(no_storage=refused).run("check")
        assert result.exit_code == EXIT_CODES[Category.STORAGE]
        assert checked(result)[1:] == [
            "storage  failed  storage.url: nothing listens on the port",
            "engine rehearsal  ok  answered",
        ]

    def test_check_shows_a_variable_that_is_spelt_wrongly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PORTICO_SERVER_PORT", "9")
        result = StagedService().run("check")
        assert result.exit_code == 0
        assert result.stdout.splitlines()[1] == (
            "configuration  warning  "
            "the variable PORTICO_SERVER_PORT is ignored; PORTICO__SERVER__PORT sets server.port"
        )


class TestServe:
    def test_a_busy_port_is_one_line_and_an_exit_code(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            result = StagedService().run("serve", "--port", str(port))
        assert result.exit_code == EXIT_CODES[Category.CONFIGURATION]
        assert result.stderr == (
            f"CONFIG_INVALID: server.port: cannot listen on 127.0.0.1 port {port}: address already in use\n"
        )

    def test_serve_refuses_to_listen_beyond_loopback(self) -> None:
        result = StagedService().run("serve", "--host", "192.0.2.1")
        assert result.exit_code == EXIT_CODES[Category.CONFIGURATION]
        assert result.stderr.startswith("CONFIG_INVALID: server.host: must be loopback")


class TestHelp:
    def test_openapi_prints_the_description_as_json(self) -> None:
        result = StagedService().run("openapi")
        assert result.exit_code == 0
        assert json.loads(result.stdout)["info"]["title"] == "Staged"
        assert result.stdout.endswith("}\n")

    def test_every_category_has_an_exit_code_of_its_own_and_help_lists_them(self) -> None:
        assert set(EXIT_CODES) == set(Category)
        assert len(set(EXIT_CODES.values())) == len(Category)
        shown = " ".join(StagedService().run("--help").stdout.split())
        for category, code in EXIT_CODES.items():
            assert f"{code} {category}" in shown

    @pytest.mark.parametrize(
        "arguments",
        [
            ("execute",),
            ("execute", "a", "--file", "b"),
            ("execute", "--file", "b", "--mode", "chat"),
            ("serve", "--port", "x"),
            ("execute", "a", "--mode", "b"),
            ("x",),
        ],
    )
    def test_wrong_usage_ends_with_2(self, arguments: tuple[Any, ...]) -> None:
        assert StagedService().run(*arguments).exit_code == 2
