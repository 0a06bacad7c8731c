"""The client of programs without an event loop, written from aio.py by `make clients-types`."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, Unpack, cast

import httpx2

from portico_client import core, operations
from portico_client.core import CANCEL_S, DEFAULT_URL
from portico_client.errors import ConnectionFailure, PorticoError, TimeoutFailure
from portico_client.tools import Tool, offered, run_in_turn
from portico_client.types import (
    ExecutionEvent,
    ExecutionView,
    JsonValue,
    Message,
    Suspension,
    SystemRequest,
    SystemResponse,
)

P = ParamSpec("P")
T = TypeVar("T")


class _Driver(Protocol):
    def _drive(self, operation: core.Operation[T]) -> T: ...

    def _policy(self) -> core.RetryPolicy: ...


def _method(
    operation: Callable[Concatenate[core.RetryPolicy, P], core.Operation[T]],
) -> Callable[Concatenate[_Driver, P], T]:
    """Return the operation as a method."""

    @wraps(operation)
    def method(self: _Driver, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._drive(operation(self._policy(), *args, **kwargs))

    return method


def _listing(pages: Callable[P, core.Pages[T]]) -> Callable[Concatenate[_Driver, P], Iterator[T]]:
    """Return a list of pages as a method that iterates over the items of all of them."""

    @wraps(pages)
    def method(self: _Driver, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        reader = pages(*args, **kwargs)
        while not reader.is_over:
            yield from self._drive(reader.next(self._policy()))

    return method


class Client:
    """Client of one service. `timeout` is in seconds and holds for each call with its repetitions.

    `base_url` and `key` default to the environment variables `PORTICO_URL` and `PORTICO_KEY`. `http` is a client of the
    caller's, for proxies or certificates, which stays open. Redirects are not followed. Methods raise PorticoError if
    the service refused or the execution failed, and ConnectionFailure.
    """

    def __init__(
        self,
        base_url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = 600,
        retries: int = 2,
        http: httpx2.Client | None = None,
    ) -> None:
        self._base_url = (base_url or os.environ.get("PORTICO_URL") or DEFAULT_URL).rstrip("/")
        self._key = key or os.environ.get("PORTICO_KEY") or None
        self._timeout, self._retries = timeout, retries
        self._owns_http = http is None
        self._http = httpx2.Client() if http is None else http
        self.sessions, self.memory = Sessions(self), Memory(self)
        self.suspensions, self.catalogue, self.usage = Suspensions(self), Catalogue(self), Usage(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        if self._owns_http:
            self._http.close()

    request = _method(operations.request)
    get = _method(core.get)
    wait = _method(core.wait)
    resume = _method(core.resume)
    answer = _method(core.answer)
    cancel = _method(operations.cancel)
    delete = _method(operations.delete)
    replay = _method(operations.replay)
    quote = _method(operations.quote)
    trace = _method(operations.trace)
    input = _method(operations.get_input)
    steps = _listing(operations.list_steps)
    list = _listing(operations.list_executions)
    approve = _method(core.approve)
    deny = _method(core.deny)
    fork = _method(core.fork)

    def execute(
        self,
        text: str | None = None,
        /,
        *,
        on_suspension: Callable[[Suspension], JsonValue] | None = None,
        **request: Unpack[SystemRequest],
    ) -> SystemResponse:
        """Run a request and return its response; `text` is short for a last user message.

        `on_suspension` is called with each suspension and returns the answer, or None to leave it open. A suspended
        response is returned. Leaving the call and a timeout cancel the execution.
        """
        return self._run(core.execute_call(text, request), {}, on_suspension)

    def run(
        self,
        messages: str | Sequence[Message],
        /,
        *,
        tools: Sequence[Tool | Callable[..., Any] | str],
        on_suspension: Callable[[Suspension], JsonValue] | None = None,
        **request: Any,
    ) -> SystemResponse:
        """Run a request whose model may call these functions, and return the last response.

        A function is described by its signature and docstring; a name is a tool of the service. What a function raises
        goes to the model. `request` and `on_suspension` are as of `execute`.
        """
        own, fields = offered(tools)
        text = messages if isinstance(messages, str) else None
        given = {} if isinstance(messages, str) else {"messages": [*messages]}
        body = cast("SystemRequest", {**request, **given, **fields})
        return self._run(core.execute_call(text, body), own, on_suspension)

    def _run(
        self,
        call: core.Call,
        own: Mapping[str, Tool],
        on_suspension: Callable[[Suspension], JsonValue] | None,
    ) -> SystemResponse:
        """Run a request, and answer each of its suspensions once, as long as there are answers."""
        asked = core.AskedOnce()
        try:
            response = self._drive(core.execute(self._policy(), call))
            while suspensions := asked.new(response):
                answers = run_in_turn(own, suspensions)
                for each in suspensions:
                    if on_suspension is not None and each["tool_id"] not in own:
                        payload = on_suspension(each)
                        answers += [] if payload is None else [core.given_answer(each, payload)]
                if answers:
                    response = self._drive(core.resume_own(self._policy(), response["request_id"], answers))
        except (KeyboardInterrupt, TimeoutFailure):
            self._cancel_quietly(call.body.get("request_id"))
            raise
        return response

    def background(self, text: str | None = None, /, **request: Unpack[SystemRequest]) -> "Execution":
        """Start an execution in the background."""
        view: ExecutionView = self._drive(core.fetch(self._policy(), core.background_call(text, request)))
        return Execution(self, view["request_id"])

    def stream(self, text: str | None = None, /, **request: Unpack[SystemRequest]) -> "Stream":
        """Run a request and return its events as they happen. Leaving it early and a timeout cancel the execution."""
        call = core.execute_call(text, request, streams=True)
        reader = core.EventReader(call.body.get("request_id"), self._policy(), first=call)
        return Stream(self, reader, is_owner=True)

    def events(self, request_id: str, after: int = 0) -> "Stream":
        """Return the events of an execution behind that number, stored ones and then live ones."""
        policy = core.RetryPolicy(self._retries, core.FOREVER)
        return Stream(self, core.EventReader(request_id, policy, after=after), is_owner=False)

    def _policy(self) -> core.RetryPolicy:
        return core.RetryPolicy(self._retries, time.monotonic() + self._timeout)

    def _drive(self, operation: core.Operation[T]) -> T:
        """Perform what the operation yields, and return its result."""
        try:
            step = next(operation)
            while True:
                if isinstance(step, core.Pause):
                    time.sleep(step.seconds)
                    step = next(operation)
                    continue
                try:
                    answer = self._send(step)
                except (httpx2.RequestError, httpx2.SSEError) as error:
                    step = operation.throw(core.BrokenConnection(error))
                else:
                    step = operation.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def _send(self, call: core.Call) -> core.Answer:
        request = call.request(self._base_url, self._key, self._http)
        response = self._http.send(request, stream=True, follow_redirects=False)
        if call.streams and core.is_event_stream(response):
            return core.Answer(response.status_code, response.headers, stream=response)
        try:
            if call.waits and core.is_event_stream(response):
                for frame in httpx2.EventSource(response, max_event_size=core.MAX_EVENT_BYTES):
                    if frame.data:
                        break
                return core.Answer(response.status_code, response.headers)
            return core.Answer(response.status_code, response.headers, response.read())
        finally:
            response.close()

    def _cancel_quietly(self, request_id: str | None) -> None:
        """Cancel an execution whose response is not wanted any more, if the service can be reached."""
        if request_id is not None:
            with suppress(PorticoError, ConnectionFailure):
                self._drive(operations.cancel(core.RetryPolicy(0, time.monotonic() + CANCEL_S), request_id))


class Stream:
    """The events of one execution, each number once, in order. `response` is there at the end.

    A stream that breaks is read on by itself. It is left with `close`, or at the end of a `with` block.
    """

    def __init__(self, client: Client, reader: core.EventReader, *, is_owner: bool) -> None:
        self._client, self._reader, self._is_owner = client, reader, is_owner
        self._events = self._read()

    @property
    def request_id(self) -> str | None:
        """The id of the execution; None if it is not stored."""
        return self._reader.request_id

    @property
    def response(self) -> SystemResponse | None:
        """The response, failures included; None before the end."""
        return self._reader.response

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __iter__(self) -> Iterator[ExecutionEvent]:
        return self._events

    def text(self) -> Iterator[core.TextPart]:
        """Iterate over the changes of the shown text; at the end of a complete execution it is the content."""
        return self._parts(core.TextFold())

    def reasoning(self) -> Iterator[core.TextPart]:
        """Iterate over the changes of the reasoning that is shown."""
        return self._parts(core.TextFold("reasoning"))

    def value(self) -> Iterator[JsonValue]:
        """Iterate over the partial values of a structured answer, and the last one."""
        for event in self._events:
            if event["type"] == "inference.delta" and event.get("value") is not None:
                yield event.get("value")
        if self.response is not None and self.response["structured_output"] is not None:
            yield self.response["structured_output"]

    def close(self) -> None:
        """End the stream; before the end of its execution, an execution that it started is cancelled."""
        self._events.close()
        if self._is_owner and not self._reader.is_over and self._reader.has_begun:
            self._client._cancel_quietly(self.request_id)
        self.detach()

    def detach(self) -> None:
        """End the stream; the execution goes on."""
        self._is_owner = False
        self._events.close()

    def _parts(self, fold: core.TextFold) -> Iterator[core.TextPart]:
        for event in self._events:
            if (part := fold.take(event)) is not None:
                yield part
        if (part := fold.last(self.response)) is not None:
            yield part

    def _read(self) -> core.Events:
        try:
            while (answer := self._client._drive(self._reader.connect())) is not None:
                with closing(self._frames(answer.stream)) as events:
                    yield from events
        except (KeyboardInterrupt, TimeoutFailure):
            if self._is_owner:
                self._is_owner = False
                self._client._cancel_quietly(self.request_id)
            raise

    def _frames(self, response: httpx2.Response | None) -> core.Events:
        if response is None:
            return
        try:
            for frame in httpx2.EventSource(response, max_event_size=core.MAX_EVENT_BYTES):
                if (event := self._reader.take(frame.data)) is not None:
                    yield event
                if self._reader.is_over:
                    return
        except (httpx2.RequestError, httpx2.SSEError):
            return
        finally:
            response.close()


class Execution:
    """Handle of an execution in the background."""

    def __init__(self, client: Client, request_id: str) -> None:
        self._client = client
        self.request_id = request_id

    def wait(self) -> SystemResponse:
        """Return the response once the execution has ended or is suspended."""
        return self._client.wait(self.request_id)

    def events(self, after: int = 0) -> Stream:
        """Return the events behind that number."""
        return self._client.events(self.request_id, after)

    def cancel(self) -> ExecutionView:
        """Cancel the execution."""
        return self._client.cancel(self.request_id)


class _Group:
    def __init__(self, client: Client) -> None:
        self._client = client

    def _drive(self, operation: core.Operation[T]) -> T:
        return self._client._drive(operation)

    def _policy(self) -> core.RetryPolicy:
        return self._client._policy()


class Sessions(_Group):
    """Sessions."""

    list = _listing(operations.list_sessions)
    messages = _listing(operations.list_messages)
    get = _method(operations.get_session)
    update = _method(operations.update_session)
    delete = _method(operations.delete_session)


class Memory(_Group):
    """Documents that are searched for context."""

    list = _listing(operations.list_documents)
    get = _method(operations.get_document)
    put = _method(operations.put_document)
    delete = _method(operations.delete_document)
    search = _method(operations.search_memory)


class Suspensions(_Group):
    """Open suspensions that the caller may answer."""

    list = _listing(operations.list_suspensions)


class Catalogue(_Group):
    """Catalogue of the agents, engines, tools and flows of the service."""

    list = _method(operations.catalogue)


class Usage(_Group):
    """Usage by day, agent, model and user."""

    list = _method(operations.usage)
