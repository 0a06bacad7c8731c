"""The client's rules without I/O: what is sent again, and what a stream's events add up to."""

import json
import math
from collections.abc import Sequence
from typing import Any, TypeVar

import httpx2
import pytest

from portico_client.core import (
    Answer,
    BrokenConnection,
    Call,
    EventReader,
    Operation,
    Pause,
    RetryPolicy,
    TextFold,
    TextPart,
    execute,
    execute_call,
    resume,
    send,
    wait,
)
from portico_client.errors import AccessFailure, ConnectionFailure, InferenceFailure, PorticoError, TimeoutFailure

T = TypeVar("T")
BUSY = {"code": "REQUEST_OVERLOADED", "category": "RequestFailure", "message": "busy", "retryable": True}
IN_PROGRESS = {"code": "REQUEST_IN_PROGRESS", "category": "RequestFailure", "message": "runs", "retryable": True}
GET = Call("GET", "/v1/me")
RESPONSE: Any = {"request_id": "q", "state": "COMPLETE", "content": "Hello", "error": None, "suspensions": []}


class Service:
    """Plays what happens to one call after the other, and keeps what was sent; its clock moves with pauses."""

    def __init__(self, *happenings: Answer | httpx2.TransportError) -> None:
        self._happenings = list(happenings)
        self.calls: list[Call] = []
        self.pauses: list[float] = []
        self.now = 0.0

    def policy(self, retries: int = 2, seconds: float = 600) -> RetryPolicy:
        return RetryPolicy(retries, seconds, lambda: self.now)

    def drive(self, operation: Operation[T]) -> T:
        try:
            step = next(operation)
            while True:
                if isinstance(step, Pause):
                    self.pauses.append(step.seconds)
                    self.now += step.seconds
                    step = next(operation)
                    continue
                self.calls.append(step)
                happens = self._happenings.pop(0)
                if isinstance(happens, Answer):
                    step = operation.send(happens)
                else:
                    self.now += step.timeout_s if isinstance(happens, httpx2.ReadTimeout) else 0
                    step = operation.throw(BrokenConnection(happens))
        except StopIteration as end:
            result: T = end.value
            return result


def answer(status: int, body: Any = None, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, named, b"" if body is None else json.dumps(body).encode())


def test_a_request_that_should_be_sent_again_is_after_the_time_that_the_service_gives() -> None:
    service = Service(answer(503, BUSY, x_should_retry="true", retry_after="7"), answer(200, {}))
    assert service.drive(send(service.policy(), Call("POST", "/v1/quote"))).status == 200
    assert service.pauses == [7.0]


def test_without_a_time_the_pauses_double() -> None:
    service = Service(*[answer(503, BUSY, x_should_retry="true")] * 3)
    with pytest.raises(PorticoError, match="REQUEST_OVERLOADED: busy"):
        service.drive(send(service.policy(), GET))
    assert [math.ceil(each * 2) / 2 for each in service.pauses] == [0.5, 1.0]


@pytest.mark.parametrize(
    ("call", "error", "sent"),
    [
        (Call("POST", "/v1/quote"), httpx2.ConnectError("refused"), 3),
        (Call("POST", "/v1/quote"), httpx2.ReadError("reset"), 1),
        (Call("POST", "/v1/execute", headers={"idempotency-key": "k"}), httpx2.ReadError("reset"), 3),
        (Call("PUT", "/v1/memory/a"), httpx2.RemoteProtocolError("cut short"), 3),
        (Call("PATCH", "/v1/sessions/a"), httpx2.RemoteProtocolError("cut short"), 1),
    ],
)
def test_a_broken_connection_is_made_again_only_where_nothing_can_run_twice(
    call: Call, error: httpx2.TransportError, sent: int
) -> None:
    service = Service(*[error] * 3)
    with pytest.raises(ConnectionFailure, match=type(error).__name__):
        service.drive(send(service.policy(), call))
    assert len(service.calls) == sent


def test_a_refusal_is_not_sent_again_and_has_the_class_of_its_category() -> None:
    refusal = {"code": "ACCESS_DENIED", "category": "AccessFailure", "message": "no", "retryable": False}
    service = Service(answer(403, refusal | {"request_id": "q"}, x_should_retry="false"))
    with pytest.raises(AccessFailure) as caught:
        service.drive(send(service.policy(), GET))
    assert (caught.value.status, caught.value.request_id, caught.value.retryable) == (403, "q", False)


@pytest.mark.parametrize("body", [b"<html>Bad gateway</html>", b"", b"[1]", b'{"detail": 7}', b"\xff"])
def test_the_page_of_a_gateway_is_an_error_with_its_status(body: bytes) -> None:
    service = Service(Answer(502, {}, body))
    with pytest.raises(PorticoError) as caught:
        service.drive(send(service.policy(), GET))
    assert (caught.value.status, caught.value.code) == (502, "UNKNOWN")


@pytest.mark.parametrize("body", [b"<html>Welcome</html>", b"[]", b"{}", b"7"])
def test_a_success_that_is_no_response_is_an_error(body: bytes) -> None:
    service = Service(Answer(200, {}, body))
    with pytest.raises(PorticoError):
        service.drive(execute(service.policy(), execute_call("Hi", {})))


def test_an_execution_that_runs_already_is_asked_for_until_its_time_has_passed() -> None:
    running = answer(409, IN_PROGRESS, x_should_retry="true", retry_after="100")
    service = Service(httpx2.ReadError("reset"), *[running] * 4, answer(200, RESPONSE))
    assert service.drive(execute(service.policy(), execute_call("Hi", {}))) == RESPONSE
    assert len({call.headers["idempotency-key"] for call in service.calls}) == 1
    assert len({call.body["request_id"] for call in service.calls}) == 1
    service = Service(*[running] * 9)
    with pytest.raises(TimeoutFailure):
        service.drive(execute(service.policy(), execute_call("Hi", {})))


def test_an_answer_that_does_not_come_in_time_is_a_timeout_and_not_asked_for_again() -> None:
    service = Service(httpx2.ReadTimeout("silence"))
    with pytest.raises(TimeoutFailure):
        service.drive(execute(service.policy(seconds=5), execute_call("Hi", {})))


def test_a_failed_execution_that_is_stored_is_not_asked_for_again() -> None:
    error = {"code": "PROVIDER_UNAVAILABLE", "category": "InferenceFailure", "message": "down", "retryable": True}
    failed = answer(503, RESPONSE | {"state": "ERROR", "content": "Hel", "error": error}, x_should_retry="true")
    service = Service(failed)
    with pytest.raises(InferenceFailure) as caught:
        service.drive(execute(service.policy(), execute_call("Hi", {})))
    assert caught.value.response is not None
    assert caught.value.response["content"] == "Hel"


def test_a_request_that_is_not_stored_has_no_ids() -> None:
    call = execute_call("Hi", {"store": False})
    assert (call.has_key, "request_id" in call.body) == (False, False)


def test_a_resume_whose_connection_broke_is_looked_up_before_it_is_sent_again() -> None:
    still_open = {"data": [{"suspension_id": "s", "tool_id": "t", "kind": "question"}], "next": None}
    reset = httpx2.ReadError("reset")
    service = Service(reset, answer(200, still_open), answer(200, RESPONSE))
    assert service.drive(resume(service.policy(), "q", suspension_id="s", tool_id="t", payload="yes")) == RESPONSE
    assert [call.method for call in service.calls] == ["POST", "GET", "POST"]
    view = {"request_id": "q", "state": "COMPLETE", "events": 9, "response": RESPONSE, "suspensions": []}
    service = Service(reset, answer(200, {"data": [], "next": None}), answer(200, view))
    assert service.drive(resume(service.policy(), "q", suspension_id="s", tool_id="t", payload="yes")) == RESPONSE
    assert [call.method for call in service.calls] == ["POST", "GET", "GET"]


def test_waiting_pauses_while_the_service_brings_no_news() -> None:
    running = answer(200, {"request_id": "q", "state": "EXECUTE", "events": 3, "response": None, "suspensions": []})
    ended = answer(200, {"request_id": "q", "state": "COMPLETE", "events": 9, "response": RESPONSE, "suspensions": []})
    service = Service(running, answer(503, BUSY), running, httpx2.ReadError("reset"), ended)
    assert service.drive(wait(service.policy(), "q")) == RESPONSE
    assert len(service.pauses) == 1


def test_a_stream_without_news_is_given_up_after_five_tries() -> None:
    view = {"request_id": "q", "state": "EXECUTE", "events": 3, "response": None, "suspensions": []}
    service = Service(answer(200, view), *[httpx2.ReadError("reset")] * 5)
    reader = EventReader("q", service.policy())
    with pytest.raises(ConnectionFailure, match="no news in 5 tries"):
        service.drive(reader.connect())
    assert [call.headers.get("last-event-id") for call in service.calls] == [None, *["0"] * 5]


def test_a_reader_takes_each_number_once_and_what_it_does_not_know_as_it_is() -> None:
    reader = EventReader("q", RetryPolicy(0, math.inf), first=GET)
    frames = [
        '{"type": "stage.end", "sequence_number": 1}',
        '{"type": "of.tomorrow", "sequence_number": 2, "colour": "red"}',
        '{"type": "stage.end", "sequence_number": 2}',
        '{"type": "stage.end", "sequ',
        "[]",
        "",
    ]
    taken = [reader.take(frame) for frame in frames]
    assert [each and each["type"] for each in taken] == ["stage.end", "of.tomorrow", None, None, None, None]
    assert reader.number == 2


def shown(events: Sequence[dict[str, Any]], content: str | None = None) -> str:
    """Return what a page shows that follows the parts."""
    text, fold = "", TextFold()
    response: Any = None if content is None else {"state": "COMPLETE", "content": content}
    for part in [*map(fold.take, events), fold.last(response)]:
        if part is not None:
            assert part.replaces <= len(text)
            text = text[: len(text) - part.replaces] + part.text
    return text


def delta(segment: str, offset: int, text: str) -> dict[str, Any]:
    return {"type": "inference.delta", "segment": segment, "offset": offset, "text": text}


def retracted(segment: str) -> dict[str, Any]:
    return {"type": "inference.retracted", "segment": segment}


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([delta("a", 0, "Hé"), delta("a", 2, "llo")], "Héllo"),
        ([delta("a", 0, "Hé"), delta("a", 0, "Héllo"), delta("a", 5, "!")], "Héllo!"),
        ([delta("a", 0, "👋 He"), delta("a", 3, "ello")], "👋 Hello"),
        ([delta("a", 0, "He"), delta("a", 4, "o")], "He"),
        ([delta("a", 0, "Wrong"), retracted("a"), delta("b", 0, "Right")], "Right"),
        ([delta("a", 0, "A"), delta("b", 0, "B"), delta("a", 1, "a"), delta("b", 1, "b")], "AaBb"),
        ([delta("a", 0, "A"), delta("b", 0, "B"), retracted("a"), delta("b", 1, "b")], "Bb"),
        ([delta("a", 0, "A"), delta("b", 0, "B"), retracted("b"), delta("a", 1, "a")], "Aa"),
        ([retracted("a"), delta("a", 0, "")], ""),
    ],
)
def test_parts_add_up_to_the_text_without_gaps_and_repetitions(events: list[dict[str, Any]], text: str) -> None:
    assert shown(events) == text


@pytest.mark.parametrize("content", ["Hello", "Help", "", "Hell", "Hello, world", "no"])
def test_the_last_part_makes_up_for_what_no_delta_brought(content: str) -> None:
    assert shown([delta("a", 0, "Hel"), delta("a", 4, "o")], content) == content


def test_a_retraction_is_one_part() -> None:
    fold = TextFold()
    for event in (delta("a", 0, "one"), delta("b", 0, "two")):
        fold.take(event)
    assert fold.take(retracted("a")) == TextPart("two", 6, "a")


def test_an_answer_that_is_not_complete_keeps_what_was_shown() -> None:
    fold = TextFold()
    fold.take(delta("a", 0, "Hel"))
    failed: Any = {"state": "ERROR", "content": None}
    assert fold.last(failed) is None
