"""The client without I/O: what is sent, what is sent again, and what the events of a stream say.

Theory of operation

1. An operation is a generator. It yields a `Call`, and gets the `Answer` or a `BrokenConnection`; or a `Pause`. The
   clients perform both, with threads or with an event loop, so every rule is written once.
2. A call is repeated if its connection could not be made, if the answer says `x-should-retry: true`, or, after a
   connection that broke, if it has an `Idempotency-Key` or repeating does no harm.
3. A stream that breaks is read on behind its last number. Events with a number come once each, in order; deltas have
   none, and a new stream repeats those of a running attempt.
"""

import json
import math
import random
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar, Unpack, cast
from urllib.parse import quote

import httpx2

from portico_client.errors import (
    ConnectionFailure,
    PorticoError,
    TimeoutFailure,
    error_of_answer,
    error_of_response,
)
from portico_client.types import ExecutionEvent, ExecutionView, ForkRequest, Suspension, SystemRequest, SystemResponse

T = TypeVar("T")
DEFAULT_URL: Final = "http://127.0.0.1:8080"
CANCEL_S: Final = 5.0
"""Longest time for the cancel of a call that is given up."""
MAX_ANSWERS: Final = 32
"""Answers of one resume."""
EVENT_STREAM: Final = "text/event-stream"
MAX_EVENT_BYTES: Final = 64 * 2**20
SILENCE_S: Final = 45.0
"""Longest silence of a stream; the service breaks it every 15 seconds."""
FOREVER: Final = math.inf
_CONNECT_S: Final = 10.0
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 8.0
_TRIES: Final = 5
"""Tries without news after which a broken stream is given up."""
_SUCCESSES: Final = range(200, 300)
_NO_CONTENT: Final = 204
_RESTING_STATES: Final = frozenset({"COMPLETE", "ERROR", "CANCELLED", "SUSPENDED"})
_RESTING_EVENTS: Final = frozenset(
    {"execution.completed", "execution.failed", "execution.cancelled", "execution.suspended"}
)
_UNSENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
_REPEATABLE: Final = frozenset({"GET", "PUT", "DELETE"})


@dataclass(frozen=True, slots=True)
class Call:
    """A request to send. Of a stream of events nothing is read with `streams`, and one event with `waits`."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    streams: bool = False
    waits: bool = False
    timeout_s: float = math.inf

    @property
    def has_key(self) -> bool:
        """True if a repeated request gets the first answer."""
        return "idempotency-key" in self.headers

    def request(self, base_url: str, key: str | None, http: httpx2.Client | httpx2.AsyncClient) -> httpx2.Request:
        """Return the request with the caller's key."""
        headers = {"accept": "application/json", **self.headers}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        content = None
        if self.body is not None:
            headers["content-type"] = "application/json"
            content = json.dumps(self.body, allow_nan=False).encode()
        seconds = min(self.timeout_s, SILENCE_S) if self.streams or self.waits else self.timeout_s
        timeout = httpx2.Timeout(None if seconds == math.inf else seconds, connect=min(_CONNECT_S, self.timeout_s))
        url = base_url + self.path
        return http.build_request(
            self.method, url, params=self.query or None, headers=headers, content=content, timeout=timeout
        )


@dataclass(frozen=True, slots=True)
class Pause:
    """Seconds to wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer; `stream` is the response whose events are still to be read."""

    status: int
    headers: Mapping[str, str]
    content: bytes = b""
    stream: httpx2.Response | None = None

    def json(self) -> Any:
        """Return the body. Raises: PorticoError if it is no JSON."""
        try:
            return json.loads(self.content)
        except ValueError:
            raise PorticoError(self.status, {}) from None


class BrokenConnection(Exception):  # noqa: N818 - it names what happened
    """A connection that could not be made or broke. `is_unsent` if the service cannot have read the request."""

    def __init__(self, error: httpx2.RequestError | httpx2.SSEError) -> None:
        self.is_unsent = isinstance(error, _UNSENT)
        self.timed_out = isinstance(error, httpx2.TimeoutException)
        super().__init__(f"{type(error).__name__}: {error}")


Operation = Generator[Call | Pause, Any, T]
Events = Generator[ExecutionEvent, None, None]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits of one call: its repetitions, and the time on the clock at which it ends, in seconds."""

    retries: int
    deadline: float
    clock: Callable[[], float] = time.monotonic

    def remaining(self) -> float:
        """Return the seconds that are left. Raises: TimeoutFailure if none are."""
        seconds = self.deadline - self.clock()
        if seconds <= 0:
            raise TimeoutFailure("the time of the call has passed")
        return seconds


def backoff(number: int) -> float:
    """Return the seconds before the try after that many, with jitter."""
    longest = min(_FIRST_WAIT_S * math.ldexp(1.0, number), _LONGEST_WAIT_S)
    return longest * (0.75 + random.random() / 4)  # noqa: S311 - jitter is no secret


def send(policy: RetryPolicy, call: Call) -> Operation[Answer]:
    """Return the answer, which is a success.

    Raises: PorticoError, as the service refused; ConnectionFailure, TimeoutFailure.
    """
    tries = 0
    while True:
        failure: Exception
        try:
            answer: Answer = yield replace(call, timeout_s=policy.remaining())
        except BrokenConnection as broken:
            seconds = policy.remaining()
            failure = ConnectionFailure(f"{call.method} {call.path}: {broken}")
            if broken.timed_out and seconds < _FIRST_WAIT_S:
                raise TimeoutFailure(str(failure)) from broken
            may_repeat, wait_s = broken.is_unsent or call.has_key or call.method in _REPEATABLE, backoff(tries)
        else:
            if answer.status in _SUCCESSES:
                return answer
            failure = refusal = error_of_answer(answer.status, answer.content)
            wait_s = _retry_after(answer, tries)
            if refusal.code == "REQUEST_IN_PROGRESS" and call.has_key:
                if call.streams:
                    raise refusal
                yield Pause(min(wait_s, policy.remaining()))
                continue
            is_settled = call.has_key and refusal.response is not None
            may_repeat = answer.headers.get("x-should-retry") == "true" and not is_settled
        if not may_repeat or tries >= policy.retries or wait_s >= policy.remaining():
            raise failure
        tries += 1
        yield Pause(wait_s)


def _retry_after(answer: Answer, tries: int) -> float:
    seconds = answer.headers.get("retry-after", "")
    return float(seconds) if seconds.isdecimal() else backoff(tries)


def fetch(policy: RetryPolicy, call: Call) -> Operation[Any]:
    """Return the JSON of the answer, None without a body. Raises: as `send`."""
    answer = yield from send(policy, call)
    return answer.json() if answer.content else None


def execution_path(request_id: str, part: str = "") -> str:
    """Return the path of an execution, or of a part of it such as `/trace`."""
    return f"/v1/executions/{quote(request_id, safe='')}{part}"


def execute_call(text: str | None, request: SystemRequest, *, streams: bool = False) -> Call:
    """Return the call that starts an execution; its ids are made here, so that a repetition is the same request."""
    body: dict[str, Any] = {**request}
    if text is not None:
        body["messages"] = [*body.get("messages", ()), {"role": "user", "content": text}]
    headers = {"accept": EVENT_STREAM} if streams else {}
    if body.get("store", True):
        body.setdefault("request_id", str(uuid.uuid4()))
        headers["idempotency-key"] = str(uuid.uuid4())
        if streams:
            body.setdefault("on_disconnect", "continue")
    return Call("POST", "/v1/execute", headers=headers, body=body, streams=streams)


def background_call(text: str | None, request: SystemRequest) -> Call:
    """Return the call that starts an execution in the background."""
    call = execute_call(text, request)
    return replace(call, headers={**call.headers, "prefer": "respond-async"})


def is_event_stream(response: httpx2.Response) -> bool:
    """Return True if the answer is a stream of events."""
    return response.status_code in _SUCCESSES and response.headers.get("content-type", "").startswith(EVENT_STREAM)


def execute(policy: RetryPolicy, call: Call) -> Operation[SystemResponse]:
    """Return the response of an execution that ended well or is suspended. Raises: as `send`."""
    response = yield from _settled(policy, (yield from send(policy, call)))
    return _present(response)


def fork(policy: RetryPolicy, request_id: str, **request: Unpack[ForkRequest]) -> Operation[SystemResponse]:
    """Run a new execution that begins with the first steps of another one, and return its response."""
    answer = yield from send(policy, Call("POST", execution_path(request_id, "/fork"), body=request))
    return _present((yield from _settled(policy, answer)))


def resume_own(policy: RetryPolicy, request_id: str, answers: Sequence[Any]) -> Operation[SystemResponse]:
    """Answer suspensions of an own execution, and return the next response. Raises: as `send`."""
    return _present((yield from resume(policy, request_id, answers=answers)))


def _present(response: SystemResponse | None) -> SystemResponse:
    if response is None:
        raise PorticoError(_NO_CONTENT, {})
    return response


def _settled(policy: RetryPolicy, answer: Answer) -> Operation[SystemResponse | None]:
    """Return the response, once there is one if the answer only tells where it will be; None of an empty answer."""
    if answer.status == _NO_CONTENT:
        return None
    document = answer.json()
    if not isinstance(document, dict) or "state" not in document:
        raise PorticoError(answer.status, {})
    if "created_at" in document:
        return (yield from wait(policy, document["request_id"]))
    return cast("SystemResponse", document)


def get(policy: RetryPolicy, request_id: str) -> Operation[ExecutionView]:
    """Return an execution. Raises: as `send`."""
    view: ExecutionView = yield from fetch(policy, Call("GET", execution_path(request_id)))
    return view


def response_of(view: ExecutionView) -> SystemResponse | None:
    """Return the response of an execution that has ended or is suspended, with its open suspensions."""
    response = view["response"] if view["state"] in _RESTING_STATES else None
    return response and cast("SystemResponse", {**response, "suspensions": view["suspensions"]})


def checked(response: SystemResponse) -> SystemResponse:
    """Return the response. Raises: PorticoError if the execution failed or was cancelled."""
    if response["error"] is not None:
        raise error_of_response(response)
    return response


def wait(policy: RetryPolicy, request_id: str) -> Operation[SystemResponse]:
    """Return the response once the execution has ended or is suspended. Raises: as `execute`."""
    tries, newest = 0, -1
    while True:
        view = yield from get(policy, request_id)
        response = response_of(view)
        if response is not None:
            return checked(response)
        tries, newest = 0 if view["events"] > newest else tries + 1, view["events"]
        if tries:
            yield Pause(min(backoff(tries - 1), policy.remaining()))
        query = {"types": ",".join(sorted(_RESTING_EVENTS))}
        headers = {"accept": EVENT_STREAM, "last-event-id": str(newest)}
        call = Call(
            "GET", execution_path(request_id, "/events"), query, headers, waits=True, timeout_s=policy.remaining()
        )
        with suppress(BrokenConnection):
            yield call


def resume(policy: RetryPolicy, /, request_id: str, **body: Any) -> Operation[SystemResponse | None]:
    """Answer suspensions, and return the next response; None of another user's execution.

    An answer whose connection broke is looked up: only what is still open is answered again. Raises: as `send`.
    """
    call = Call("POST", execution_path(request_id, "/resume"), body=body)
    tries = 0
    while True:
        try:
            answer = yield from send(policy, call)
        except TimeoutFailure:
            raise
        except ConnectionFailure:
            still_open = yield from open_suspensions(policy, request_id)
            if any(_is_answered(each, body) for each in still_open):
                if tries >= policy.retries:
                    raise
                tries += 1
                continue
            return (yield from _readable_response(policy, request_id))
        return (yield from _settled(policy, answer))


def _readable_response(policy: RetryPolicy, request_id: str) -> Operation[SystemResponse | None]:
    try:
        return (yield from wait(policy, request_id))
    except PorticoError as error:
        if error.code != "REQUEST_NOT_FOUND":
            raise
        return None


def _is_answered(suspension: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
    names = ("suspension_id", "tool_call_id", "tool_id")
    return any(
        all(suspension.get(name) == given[name] for name in names if given.get(name) is not None)
        for given in body.get("answers") or [body]
    )


def open_suspensions(policy: RetryPolicy, request_id: str) -> Operation[list[Suspension]]:
    """Return the open suspensions of an execution that the caller may answer. Raises: as `send`."""
    page = yield from fetch(policy, Call("GET", "/v1/suspensions", {"request_id": request_id, "limit": "1000"}))
    found: list[Suspension] = page["data"]
    return found


def answer(
    policy: RetryPolicy, request_id: str, payload: Any, suspension_id: str | None = None, *, kinds: Sequence[str] = ()
) -> Operation[SystemResponse | None]:
    """Answer the open suspension of one of these kinds, the named one if there are several.

    Raises: LookupError if there is none, or more than one; as `send`.
    """
    listed = yield from open_suspensions(policy, request_id)
    found = [
        each
        for each in listed
        if suspension_id in {None, each["suspension_id"]} and each["kind"] in (kinds or {each["kind"]})
    ]
    if len(found) != 1:
        raise LookupError(f"{len(found)} suspensions of {' or '.join(kinds) or 'any kind'} are open; name one of them")
    return (yield from resume(policy, request_id, **given_answer(found[0], payload)))


def approve(policy: RetryPolicy, request_id: str, suspension_id: str | None = None) -> Operation[SystemResponse | None]:
    """Let a tool call run that waits for an approval. Raises: as `answer`."""
    return answer(policy, request_id, {"decision": "approve"}, suspension_id, kinds=("approval",))


def deny(
    policy: RetryPolicy, request_id: str, suspension_id: str | None = None, *, reason: str | None = None
) -> Operation[SystemResponse | None]:
    """Refuse a tool call that waits for an approval; the model sees the reason. Raises: as `answer`."""
    payload = {"decision": "deny", **({} if reason is None else {"reason": reason})}
    return answer(policy, request_id, payload, suspension_id, kinds=("approval",))


def given_answer(suspension: Suspension, payload: Any) -> dict[str, Any]:
    """Return the answer to a suspension."""
    return {"suspension_id": suspension["suspension_id"], "tool_id": suspension["tool_id"], "payload": payload}


class AskedOnce:
    """The suspensions of one call, each of which is asked about once."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def new(self, response: SystemResponse) -> list[Suspension]:
        """Return open suspensions that were not asked about, as many as one resume answers."""
        found = [each for each in response["suspensions"] if each["suspension_id"] not in self._seen][:MAX_ANSWERS]
        self._seen |= {each["suspension_id"] for each in found}
        return found


class EventReader:
    """Reader of the events of one execution over several streams; `number` is that of the last event so far.

    It ends with the execution, and with a suspension that is not answered: none before the event `newest`. `first` is
    the call that starts the execution; without it the events of an existing one are read.
    """

    def __init__(
        self, request_id: str | None, policy: RetryPolicy, *, first: Call | None = None, after: int = 0
    ) -> None:
        self.request_id = request_id
        self.number = after
        self.response: SystemResponse | None = None
        self.is_over = False
        self._policy = policy
        self._first = first
        self._newest: int | None = None if first is None else 0
        self._tries = 0
        self._lengths: dict[tuple[str, str], int] = {}

    @property
    def has_begun(self) -> bool:
        """True once the execution was started."""
        return self._first is None

    def connect(self) -> Operation[Answer | None]:
        """Return the next stream to read; None at the end. Raises: as `send`, ConnectionFailure after tries in vain."""
        if self._first is not None and (answer := (yield from self._start(self._first))) is not None:
            return answer
        if self._newest is None:
            view = yield from get(self._policy, self.request_id or "")
            self._newest = view["events"]
            self._end(response_of(view) if self.number >= self._newest else None)
        while not self.is_over:
            answer = yield from self._read_on()
            if answer is not None:
                return answer
        return None

    def _read_on(self) -> Operation[Answer | None]:
        """Return the stream behind the last number; None if it cannot be had now, or the execution has ended."""
        if self.request_id is None:
            raise ConnectionFailure("the stream broke; an execution that is not stored cannot be read on")
        if self._tries == _TRIES:
            raise ConnectionFailure(f"the stream of {self.request_id} has brought no news in {_TRIES} tries")
        if self._tries:
            yield Pause(min(backoff(self._tries - 1), self._policy.remaining()))
        self._tries += 1
        headers = {"accept": EVENT_STREAM, "last-event-id": str(self.number)}
        call = Call("GET", execution_path(self.request_id, "/events"), headers=headers, streams=True)
        try:
            answer: Answer = yield from send(replace(self._policy, retries=0), call)
        except TimeoutFailure:
            raise
        except (ConnectionFailure, PorticoError) as failure:
            if isinstance(failure, PorticoError) and not failure.retryable:
                raise
            return None
        if answer.stream is None:
            self._end(response_of((yield from get(self._policy, self.request_id))))
            return None
        return answer

    def _start(self, first: Call) -> Operation[Answer | None]:
        """Return the stream of a new execution; None if it runs already, since a connection broke."""
        try:
            answer = yield from send(self._policy, first)
        except PorticoError as error:
            if error.code != "REQUEST_IN_PROGRESS":
                raise
            answer = None
        self._first = None
        return answer if answer is not None and answer.stream is not None else None

    def take(self, data: str) -> ExecutionEvent | None:
        """Return the event of a frame, None if it is not new or not readable. Raises: TimeoutFailure."""
        self._policy.remaining()
        try:
            event = json.loads(data) if data else None
        except ValueError:
            return None
        if not isinstance(event, dict):
            return None
        number = event.get("sequence_number")
        if isinstance(number, int):
            if number <= self.number:
                return None
            self.number, self._tries = number, 0
        elif event.get("type") == "inference.delta" and self._is_longer(event):
            self._tries = 0
        if event.get("type") in _RESTING_EVENTS and self.number >= (self._newest or 0):
            self._end(event.get("response"))
        return cast("ExecutionEvent", event)

    def _is_longer(self, delta: Mapping[str, Any]) -> bool:
        """Return True if a delta goes beyond those that were read."""
        kind = "text" if delta.get("text") is not None else "reasoning"
        name, end = (delta["segment"], kind), delta["offset"] + len(delta.get(kind) or "")
        if end <= self._lengths.get(name, 0):
            return False
        self._lengths[name] = end
        return True

    def _end(self, response: SystemResponse | None) -> None:
        if response is not None:
            self.response, self.is_over = response, True


@dataclass(frozen=True, slots=True)
class TextPart:
    """A change of the text that is shown: `shown = shown[:len(shown) - replaces] + text`, in code points."""

    text: str
    replaces: int
    segment: str | None
    """The attempt whose text it is; None in the last part, which makes up for what no delta brought."""


class _Segment:
    """The text of one attempt."""

    __slots__ = ("pieces", "size")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.size = 0


class TextFold:
    """The text that the deltas of a stream add up to: that of the attempts, one after the other."""

    def __init__(self, kind: str = "text") -> None:
        self._kind = kind
        self._segments: dict[str, _Segment] = {}
        self._last: str | None = None

    def take(self, event: Mapping[str, Any]) -> TextPart | None:
        """Return the change that an event brings, None if it brings none.

        A delta that was read before is cut by its offset. One behind a gap is left out: the last part brings it.
        """
        match event.get("type"):
            case "inference.delta" if event.get(self._kind):
                return self._grown(event["segment"], event["offset"], event[self._kind])
            case "inference.retracted" if event["segment"] in self._segments:
                return self._retracted(event["segment"])
            case _:
                return None

    def last(self, response: SystemResponse | None) -> TextPart | None:
        """Return the change from what is shown to the content of a response; None if they are equal.

        A response that is not complete, or has no content, changes nothing.
        """
        content = response["content"] if response is not None and response["state"] == "COMPLETE" else None
        shown = "".join(piece for segment in self._segments.values() for piece in segment.pieces)
        if content is None or shown == content:
            return None
        common = next(
            (i for i, (one, other) in enumerate(zip(shown, content, strict=False)) if one != other),
            min(len(shown), len(content)),
        )
        return TextPart(content[common:], len(shown) - common, None)

    def _grown(self, name: str, offset: int, text: str) -> TextPart | None:
        segment = self._segments.get(name)
        if segment is None:
            segment = self._segments[name] = _Segment()
            self._last = name
        new = text[segment.size - offset :] if offset <= segment.size else ""
        if not new:
            return None
        segment.pieces.append(new)
        segment.size += len(new)
        following = "" if name == self._last else self._following(name)
        return TextPart(new + following, len(following), name)

    def _retracted(self, name: str) -> TextPart | None:
        following, size = self._following(name), self._segments.pop(name).size
        self._last = next(reversed(self._segments), None)
        return TextPart(following, size + len(following), name) if size else None

    def _following(self, name: str) -> str:
        """Return the text of the attempts that began after that one."""
        names = [*self._segments]
        later = names[names.index(name) + 1 :]
        return "".join(piece for each in later for piece in self._segments[each].pieces)


@dataclass(slots=True)
class Pages(Generic[T]):
    """Reader of a list of pages of `limit` items."""

    call: Call
    is_over: bool = False

    def next(self, policy: RetryPolicy) -> Operation[list[T]]:
        """Return the items of the next page. Raises: as `send`."""
        page = yield from fetch(policy, self.call)
        following = page.get("next")
        self.is_over = following is None
        self.call = replace(self.call, query={**self.call.query, "after": str(following)})
        items: list[T] = page["data"]
        return items
