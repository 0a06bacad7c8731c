"""Client of a server's executions: it starts, follows, answers and cancels them."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import httpx2
import orjson
from pydantic import BaseModel, JsonValue, ValidationError

from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import Suspension, SuspensionKind, SystemResponse
from portico.domain.failures import Code, ConfigurationFailure, RequestFailure
from portico.domain.journal.events import RESTING_EVENTS
from portico.entrypoints.cli.clients.server_client import ServerClient

EXECUTIONS: Final = "/v1/executions"
_PAGE_SIZE: Final = 1_000
_TRIES: Final = 5
"""Tries without news after which a broken stream is given up."""
_FIRST_WAIT_S: Final = 0.5
_MAX_EVENT_BYTES: Final = 64 * 2**20
_RESTING: Final = frozenset(kind.type for kind in RESTING_EVENTS)
Show: TypeAlias = Callable[[Mapping[str, Any]], None]
"""Shows one event as the server has sent it."""


class ExecutionState(BaseModel):
    """An execution as far as a terminal needs it."""

    state: str
    events: int
    response: SystemResponse | None


class _Named(BaseModel):
    request_id: str


class _OpenSuspension(BaseModel):
    suspension_id: str
    kind: str
    tool_id: str
    value: JsonValue = None


class _SuspensionPage(BaseModel):
    data: list[_OpenSuspension]


class _Page(BaseModel):
    data: list[dict[str, Any]]
    next: str | None


class ExecutionClient(ServerClient):
    """Client of the executions of one server."""

    def page_through(self, query: dict[str, str], limit: int) -> Iterator[dict[str, Any]]:
        """Yield up to `limit` executions that the query selects, newest first."""
        after: dict[str, str] = {}
        while limit > 0:
            size = min(limit, _PAGE_SIZE)
            answer = self.send("GET", EXECUTIONS, {**query, "limit": str(size), **after})
            page = self.parsed(_Page, answer, "executions")
            yield from page.data
            limit -= size
            if page.next is None:
                return
            after = {"after": page.next}

    def document(self, request_id: str, part: str = "", query: dict[str, str] | None = None) -> bytes:
        """Return the JSON of an execution, or of a part of it such as `/trace`."""
        return self.send("GET", _path(request_id) + part, query or {}).content

    def show(self, request_id: str) -> ExecutionState:
        """Return the state of an execution."""
        return self._lenient(ExecutionState, self.document(request_id), "an execution")

    def request_cancel(self, request_id: str) -> str:
        """Cancel an execution, and return `cancelling`, or the state in which it had ended before."""
        answer = self.send("POST", f"{_path(request_id)}/cancel", {})
        if answer.status_code == httpx2.codes.ACCEPTED:
            return "cancelling"
        return self._lenient(ExecutionState, answer.content, "an execution").state

    def execute(self, request: SystemRequest, show: Show) -> SystemResponse:
        """Start an execution, show its events, and return its response. Ctrl-C cancels it.

        A stream that breaks is read on as long as the server keeps the execution.
        """
        body = request.model_dump_json(by_alias=True, exclude_unset=True).encode()
        if request.on_disconnect is None and request.store:
            body = orjson.dumps(orjson.loads(body) | {"on_disconnect": "continue"})
        with self.stream("POST", "/v1/execute", {}, body) as answer:
            request_id = answer.headers.get("x-request-id", "")
            try:
                reader = _EventReader(show)
                reader.read(answer)
                return reader.response or self.follow(request_id, reader.number, show)
            except KeyboardInterrupt:
                answer.close()
                return self._cancelled(request_id)

    def start_later(self, request: SystemRequest) -> str:
        """Store a request that says when it is to start, and return the id of its execution."""
        body = request.model_dump_json(by_alias=True, exclude_unset=True).encode()
        return self.parsed(_Named, self.send("POST", "/v1/execute", {}, body), "an execution").request_id

    def follow(self, request_id: str, after: int, show: Show) -> SystemResponse:
        """Show the events after the given number until the execution ends or waits, and return its response.

        A stream that breaks is read on. Raises: ConfigurationFailure (CONFIG_INVALID) after several tries without news.
        """
        state = self.show(request_id)
        if state.response is not None and after >= state.events:
            return state.response
        reader, tries = _EventReader(show, after, newest=state.events), 0
        while reader.response is None:
            before = reader.number
            # A server that restarts is not there for a while.
            with (
                suppress(ConfigurationFailure),
                self.stream("GET", f"{_path(request_id)}/events", {"last-event-id": str(before)}) as answer,
            ):
                if answer.status_code == httpx2.codes.NO_CONTENT:
                    return self._last_response(request_id)
                reader.read(answer)
            tries = 0 if reader.number > before else tries + 1
            if tries == _TRIES:
                message = f"{self._http.base_url} has sent no event of the execution in {_TRIES} tries"
                raise ConfigurationFailure(Code.CONFIG_INVALID, message)
            if tries:
                threading.Event().wait(_FIRST_WAIT_S * 2 ** (tries - 1))
        return reader.response

    def open_suspension(
        self, request_id: str, suspension_id: str | None, kinds: Collection[SuspensionKind]
    ) -> _OpenSuspension:
        """Return the open suspension that this caller may answer, the named one if there are several.

        It has to be of one of these kinds, to which the answer fits.

        Raises: RequestFailure (REQUEST_NOT_FOUND, REQUEST_RESUME_UNEXPECTED, REQUEST_INVALID), as ServerClient.
        """
        answer = self.send("GET", "/v1/suspensions", {"request_id": request_id})
        found = self.parsed(_SuspensionPage, answer, "suspensions").data
        if not found:
            self.show(request_id)
            raise RequestFailure(Code.REQUEST_RESUME_UNEXPECTED, "no suspension of the execution is open")
        named = [each for each in found if suspension_id in {None, each.suspension_id}]
        if len(named) == 1 and named[0].kind not in kinds:
            message = f"the suspension is of kind {named[0].kind}; this answers {' and '.join(kinds)} only"
            raise RequestFailure(Code.REQUEST_INVALID, message)
        if len(named) == 1:
            return named[0]
        known = ", ".join(f"{each.suspension_id} ({each.kind} of {each.tool_id})" for each in found)
        raise RequestFailure(Code.REQUEST_INVALID, f"--suspension must be one of the open suspensions: {known}")

    def answer(self, request_id: str, suspension: Suspension | _OpenSuspension, payload: JsonValue) -> None:
        """Send the answer to a suspension; the execution continues on the server once none is open."""
        answer = {"tool_id": suspension.tool_id, "suspension_id": suspension.suspension_id, "payload": payload}
        self.send("POST", f"{_path(request_id)}/resume", {}, orjson.dumps(answer))

    def _cancelled(self, request_id: str) -> SystemResponse:
        self.request_cancel(request_id)
        return self.follow(request_id, 0, lambda _: None)

    def _last_response(self, request_id: str) -> SystemResponse:
        response = self.show(request_id).response
        if response is None:
            raise ConfigurationFailure(Code.CONFIG_INVALID, f"{self._http.base_url} has no response of the execution")
        return response

    def _lenient(self, model: type[ExecutionState], content: bytes, expected: str) -> ExecutionState:
        """Return the answer as that model, without fields that only a newer server knows."""
        try:
            return model.model_validate_json(content, extra="ignore")
        except ValidationError:
            message = f"{self._http.base_url} answered with something else than {expected}"
        raise ConfigurationFailure(Code.CONFIG_INVALID, message)


class _EventReader:
    """Reader of the events of one execution over several streams; `number` is that of the last event so far.

    It ends with the execution, and with a suspension that is not answered: none before the event `newest`.
    """

    def __init__(self, show: Show, number: int = 0, *, newest: int = 0) -> None:
        self.number = number
        self.response: SystemResponse | None = None
        self._show = show
        self._newest = newest

    def read(self, answer: httpx2.Response) -> None:
        """Show every event of the stream, to its end or until it breaks."""
        try:
            for frame in httpx2.EventSource(answer, max_event_size=_MAX_EVENT_BYTES):
                if frame.data:
                    self._take(orjson.loads(frame.data))
                if self.response is not None:
                    return
        except (httpx2.TransportError, orjson.JSONDecodeError):
            return

    def _take(self, data: Mapping[str, Any]) -> None:
        number = data.get("sequence_number")
        if isinstance(number, int):
            if number <= self.number:
                return
            self.number = number
        self._show(data)
        if data.get("type") in _RESTING and self.number >= self._newest:
            self.response = SystemResponse.model_validate(data["response"], extra="ignore")


def _path(request_id: str) -> str:
    return f"{EXECUTIONS}/{quote(request_id, safe='')}"
