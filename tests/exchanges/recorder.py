"""Recording of scenes: what a service answers, and what its database has afterwards, without what differs each time.

Ids, times, durations and random waits are placeholders. Equal ids have the same placeholder, numbered by their order in
the scene, so that the relations between events are part of the record. What is stored is read by a service that is
started anew on the database, so that it went through the codec.
"""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import orjson

from portico.bootstrap.keys import open_keys
from portico.capabilities.key_administration import KeyGrant
from portico.domain.access.principal import KEY_DEFAULT, Permissions
from portico.domain.ids import TenantId, UserId
from portico.settings import Settings
from tests.exchanges.scene import Act, MakeKey, Restart, Scene, Send, Wait
from tests.support.http_server import HttpAnswer, RunningServer, request_bytes
from tests.support.inline_loop import InlineLoop
from tests.support.portico import portico
from tests.support.server_state import wait_for_idle

Line = list[Any]
"""The name of an exchange, what the line shows of it, and the value."""

FOREIGN_HEADERS: Final = {"date", "server", "content-length", "connection", "transfer-encoding"}
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)")
_NUMBERED: Final = {
    "uuid": re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"),
    "hash": re.compile(r"\b[0-9a-f]{64}\b"),
    "trace": re.compile(r"\b[0-9a-f]{32}\b"),
    "span": re.compile(r"\b[0-9a-f]{16}\b"),
    "cursor": re.compile(r"\b[0-9a-f]{8}(?=\.<uuid-\d+>)"),
}
_MARK: Final = re.compile(r"(?<=-)[0-9a-f]{8}(?=>| is data\b)")
"""The mark around what was found in the memory, which is that of the execution."""
_NAMED: Final = {
    "day": r"\d{4}-\d\d-\d\d",
    **dict.fromkeys(("key", "public_id", "created_by"), "[A-Za-z0-9]{8}"),
    "secret": "ptk_.*",
    "version": r"\d+\.\d+\.\d.*",
}
"""Fields with values that differ, where they have that form."""
_TIMES: Final = {"duration", "wait", "retry_after", "seconds"}
_TOKENS: Final = {"input_tokens", "total_tokens", "tokens_in", "tokens", "memory"}
"""Estimates of texts that have a mark."""
_TABLES: Final = {"server": {"drain_seconds": 0.1}, "telemetry": {"log_level": "error"}}
_SECONDS_LEFT: Final = re.compile(r"(?<=;t=)\d+|(?<=;dur=)[\d.]+")
_CORRELATION: Final = ("request_id", "session_id", "trace_id", "span_id", "parent_span_id", "caused_by")
"""Fields of an event that are shown only where they differ from those of the event before."""
_KEEP_ALIVE: Final = b": keep-alive\n\n"
_ABSENT: Final = "<absent>"
_AS_BEFORE: Final = "<as before>"
_RESPONSE_FIELDS: Final = {"state", "content", "token_usage"}


class Placeholders:
    """The placeholders of one scene, whose files are in that folder."""

    def __init__(self, folder: Path, *, marks: bool) -> None:
        self._folder = str(folder)
        self._marks = marks
        self._names: dict[str, dict[str, str]] = {}

    def replaced(self, value: Any, name: str = "") -> Any:
        """Return the JSON value with placeholders."""
        if isinstance(value, dict):
            return {self._text(key): self.replaced(each, key) for key, each in value.items()}
        if isinstance(value, list):
            return [self.replaced(each, name) for each in value]
        if isinstance(value, str):
            return self._named(value, name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return f"<{name}>" if is_number and self._differs(name) else value

    def _differs(self, name: str) -> bool:
        return name.endswith("_ms") or name in _TIMES or (self._marks and name in _TOKENS)

    def _named(self, text: str, name: str) -> str:
        if name in _NAMED and re.fullmatch(_NAMED[name], text):
            return self._placeholder(name, text)
        return self._text(text)

    def _text(self, text: str) -> str:
        text = _SECONDS_LEFT.sub("<seconds>", _TIME.sub("<time>", text.replace(self._folder, "<folder>")))
        if self._marks:
            text = _MARK.sub("<mark>", text)
        for kind, pattern in _NUMBERED.items():
            text = pattern.sub(lambda found, kind=kind: self._placeholder(kind, found[0]), text)
        return text

    def _placeholder(self, kind: str, found: str) -> str:
        names = self._names.setdefault(kind, {})
        return names.setdefault(found, f"<{kind}-{len(names) + 1}>")


def record(scene: Scene) -> list[Line]:
    """Return all lines of the scene."""
    with asyncio.Runner(loop_factory=InlineLoop) as runner, TemporaryDirectory() as folder:
        recorder = SceneRecorder(scene, Path(folder))
        runner.run(recorder.run())
        return recorder.lines


class SceneRecorder:
    """The run of a scene, which makes its lines."""

    def __init__(self, scene: Scene, folder: Path) -> None:
        self.lines: list[Line] = []
        self._scene = scene
        self._placeholders = Placeholders(folder, marks=scene.has_marks)
        self._keys: dict[str, str] = {}
        self._responses: dict[str, Any] = {}
        self._streamed: dict[str, list[Any]] = {}
        self._executions: dict[str, tuple[str, str | None]] = {}
        for name, content in scene.files.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(content, encoding="utf-8")
        tables = orjson.loads(orjson.dumps(scene.tables).replace(b"{folder}", str(folder).encode()))
        storage = {"url": f"sqlite:///{folder}/portico.db"}
        self._tables = {"storage": storage, **_TABLES, **tables}

    async def run(self) -> None:
        """Run all acts, then read what is stored."""
        acts = iter(self._scene.acts)
        while await self._run_until_restart(acts):
            pass
        async with portico(**self._tables) as (served, service):
            await wait_for_idle(service)
            for name in self._executions:
                await self._read_stored(served, name)

    async def _run_until_restart(self, acts: Iterator[Act]) -> bool:
        """Return True if the service is to start again."""
        async with portico(**self._tables) as (served, service):
            for act in acts:
                match act:
                    case Send():
                        await self._send(served, act)
                    case MakeKey():
                        await self._make_key(act)
                    case Wait():
                        await wait_for_idle(service)
                    case Restart():
                        return True
        return False

    async def _send(self, served: RunningServer, send: Send) -> None:
        body = send.body if isinstance(send.body, bytes) else b"" if send.body is None else orjson.dumps(send.body)
        headers = {"Content-Type": "application/json", **self._authorization(send.key), **send.headers}
        answer = await served.ask(request_bytes(send.method, send.path, headers, body))
        self._add(send.name, "answer", answer.status, self._headers(answer), self._body(answer))
        self._streamed[send.name] = self._events(answer)
        for event in self._streamed[send.name]:
            self._add(send.name, "event", event)
        if send.path == "/v1/execute" or send.path.endswith("/fork"):
            self._executions[send.name] = (answer.headers["x-request-id"], send.key)

    async def _make_key(self, made: MakeKey) -> None:
        permissions = KEY_DEFAULT if made.permissions is None else Permissions.of(made.permissions)
        grant = KeyGrant(TenantId("acme"), UserId(made.user), permissions, made.limits, days=None)
        async with open_keys(Settings.model_validate(self._tables)) as keys:
            self._keys[made.name] = (await keys.create(grant))[1].reveal()

    def _authorization(self, key: str | None) -> dict[str, str]:
        return {} if key is None else {"Authorization": f"Bearer {self._keys[key]}"}

    async def _read_stored(self, served: RunningServer, name: str) -> None:
        request_id, key = self._executions[name]
        path, headers = f"/v1/executions/{request_id}", self._authorization(key)
        shown = await served.get(path, headers)
        self._add(name, "stored", shown.status, self._body(shown))
        if shown.status == 200:
            events = self._events(await self._stored_events(served, f"{path}/events", headers, shown.json["state"]))
            streamed = [event for event in self._streamed[name] if "sequence_number" in event]
            for event in ["as streamed"] if streamed and events == streamed else events:
                self._add(name, "stored event", event)
            request = None
            for step in self._placeholders.replaced((await served.get(f"{path}/steps", headers)).json["data"]):
                repeats = request is not None and step["request"] == request
                request = step["request"]
                self._add(name, "stored step", step | {"request": _AS_BEFORE} if repeats else step)

    async def _stored_events(self, served: RunningServer, path: str, headers: dict[str, str], state: str) -> HttpAnswer:
        """Return the events; the stream of a suspended execution stays open, and ends here when it rests."""
        if state != "SUSPENDED":
            return await served.get(path, headers)
        async with served.connect() as client:
            await client.send(request_bytes("GET", path, headers))
            status, answered = await client.head()
            body = b""
            while _KEEP_ALIVE not in body:
                body += await client.chunk()
        return HttpAnswer(status, answered, body.removesuffix(_KEEP_ALIVE))

    def _headers(self, answer: HttpAnswer) -> Any:
        ours = {name: value for name, value in answer.headers.items() if name not in FOREIGN_HEADERS}
        return self._placeholders.replaced(ours)

    def _body(self, answer: HttpAnswer) -> Any:
        """Return the JSON body; None for an empty one and for events, which have lines of their own."""
        is_json = "json" in answer.headers.get("content-type", "")
        return self._placeholders.replaced(answer.json) if is_json else None

    def _events(self, answer: HttpAnswer) -> list[Any]:
        """Return the events of a stream in brief; other frames as they are."""
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            return []
        shown, before = [], dict[str, Any]()
        for frame in filter(None, answer.body.decode().split("\n\n")):
            fields = dict(line.partition(": ")[::2] for line in frame.split("\n"))
            event = self._placeholders.replaced(orjson.loads(fields.pop("data", "{}")))
            shown.append(_brief(fields, event, before))
            before = event
        return shown

    def _add(self, name: str, kind: str, *values: Any) -> None:
        self.lines.append([name, kind, *(self._without_repeats(name, value) for value in values)])

    def _without_repeats(self, name: str, value: Any) -> Any:
        """Return the value without the response of the execution, if it is that of an earlier line."""
        if not isinstance(value, dict):
            return value
        if value.keys() >= _RESPONSE_FIELDS:
            if self._responses.get(name) == value:
                return _AS_BEFORE
            self._responses[name] = value
            return value
        return {key: self._without_repeats(name, each) if key == "response" else each for key, each in value.items()}


def _brief(fields: dict[str, str], event: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Return an event without the fields of its frame that repeat its own, and without constant ones."""
    repeated = {"id": str(event.get("sequence_number")), "event": event.get("type")}
    own = {f"frame {key}": value for key, value in fields.items() if repeated.get(key) != value}
    constant = {key for key in _CORRELATION if before.get(key, _ABSENT) == event.get(key, _ABSENT)}
    if event.get("timestamp") == "<time>":
        constant.add("timestamp")
    whole = {"type": event.get("type"), **dict.fromkeys(_CORRELATION, _ABSENT), **event}
    return own | {key: value for key, value in whole.items() if key not in constant}
