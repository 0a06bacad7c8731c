"""Request bodies: accepted bytes, JSON and requests, and the refusals of all others."""

import base64
import threading

import anyio
import orjson
import pytest
from pydantic import BaseModel

from portico.domain.contract.request import SystemRequest
from portico.domain.failures import RequestFailure
from portico.entrypoints.http import body as body_module
from portico.entrypoints.http.body import parse_body_sync
from portico.entrypoints.http.errors import LINGER_SECONDS
from tests.support.fake_service import FakeRunning, fake_app
from tests.support.http_server import request_bytes, running_server

CHAT = b'{"messages":[{"role":"user","content":"Hello"}]}'
SECRET = "hunter2-canary"


def refusal(body: bytes) -> RequestFailure:
    """Return the refusal of the body."""
    with pytest.raises(RequestFailure) as caught:
        parse_body_sync(body, 64, SystemRequest)
    return caught.value


def with_content(json: bytes) -> bytes:
    return b'{"messages":[{"role":"user","content":' + json + b"}]}"


def worker_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "AnyIO worker thread"]


def fields(failure: RequestFailure) -> list[str]:
    return [error["field"] for error in failure.details["errors"]]


def test_a_plain_chat_is_read() -> None:
    assert parse_body_sync(CHAT, 64, SystemRequest).messages[0].content == "Hello"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{'a':1}",
        b"{} {}",
        b"\xef\xbb\xbf" + CHAT,
        CHAT.decode().encode("utf-16"),
        b'{"a":01}',
        b'{"a":1,}',
        b'{"a":"\n"}',
    ],
)
def test_text_that_is_not_json_is_400(body: bytes) -> None:
    assert refusal(body).status == 400
    assert refusal(body).message.startswith("the body is not acceptable JSON: ")


@pytest.mark.parametrize("value", [b"[]", b'"text"', b"1", b"null", b"true"])
def test_json_that_is_not_an_object_is_422(value: bytes) -> None:
    assert refusal(value).status == 422


@pytest.mark.parametrize(
    "body", [b'{"a":1,"a":1}', b'{"a":1,"\\u0061":2}', b'{"x":{"b":[{"c":1,"c":2}]}}'], ids=["plain", "escaped", "deep"]
)
def test_a_duplicate_key_is_400(body: bytes) -> None:
    assert (refusal(body).status, refusal(body).message) == (
        400,
        "the body is not acceptable JSON: an object has the same key twice",
    )


@pytest.mark.parametrize("value", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999"])
def test_a_number_outside_of_json_is_400(value: bytes) -> None:
    assert refusal(b'{"a":' + value + b"}").status == 400


@pytest.mark.parametrize("value", [b"18446744073709551616", b"-9223372036854775809", b"9" * 5000, b"-" + b"9" * 5000])
def test_an_integer_beyond_64_bits_is_400(value: bytes) -> None:
    assert refusal(b'{"a":' + value + b"}").message == "the body is not acceptable JSON: a number does not fit 64 bits"


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 65 + b"1" + b"}" * 65],
    ids=["open lists", "open objects", "lists", "one too deep"],
)
def test_a_body_that_is_nested_too_deep_is_400(body: bytes) -> None:
    assert refusal(body).status == 400


def test_the_deepest_body_that_is_allowed_is_read() -> None:
    nested = b"[" * 60 + b"]" * 60
    deepest = b'{"hints":{"options":{"a":' + nested + b'}},"messages":[{"role":"user","content":"x"}]}'
    assert parse_body_sync(deepest, 64, SystemRequest).hints.options["a"]
    assert refusal(deepest.replace(nested, b"[" + nested + b"]").replace(b":[[", b":[[[", 1)).status == 400


@pytest.mark.parametrize("entry", [b'"k%d":0', b'"k%d":""', b'"k%d":{}'])
def test_a_million_keys_are_refused_before_they_are_validated(entry: bytes) -> None:
    keys = b",".join(entry % number for number in range(300_000))
    assert refusal(b"{" + keys + b"}").status == 422
    assert refusal(b'{"metadata":{' + keys + b"}}").message == "the body has more than 50000 values"


@pytest.mark.parametrize("surplus", [0, 1])
def test_a_body_has_exactly_as_many_values_as_are_allowed_or_is_refused(surplus: int) -> None:
    """The list counts as one value, each of its elements as another one."""

    class Numbers(BaseModel):
        numbers: list[int]

    count = body_module.MAX_VALUES - 1 + surplus
    body = orjson.dumps({"numbers": [0] * count})
    if surplus:
        with pytest.raises(RequestFailure, match="more than 50000 values"):
            parse_body_sync(body, 64, Numbers)
    else:
        assert len(parse_body_sync(body, 64, Numbers).numbers) == count


def test_a_body_with_very_many_errors_is_refused_with_their_count() -> None:
    found = refusal(b'{"messages":[' + b",".join([b"[]"] * 5000) + b"]}")
    assert (found.status, found.details) == (422, {"left_out": 5000})


@pytest.mark.parametrize(
    "text",
    [rb'"\ud800"', rb'"\udc00"', rb'"\ud800x"', rb'[{"type":"text","text":"\udfff"}]', b'"\xed\xa0\x80"', b'"\xff"'],
)
def test_a_lone_surrogate_or_bad_utf8_is_400(text: bytes) -> None:
    assert refusal(with_content(text)).status == 400


def test_a_lone_surrogate_in_a_key_is_400() -> None:
    assert refusal(rb'{"metadata":{"\ud800":"x"},"messages":[{"role":"user","content":"x"}]}').status == 400


def test_a_pair_of_surrogates_is_a_character() -> None:
    assert parse_body_sync(with_content(rb'"\ud83d\ude00"'), 64, SystemRequest).messages[0].content == "😀"


def test_an_unknown_field_is_refused_by_name() -> None:
    assert fields(refusal(CHAT[:-1] + b',"extra":1,"hints":{"heat":1}}')) == ["hints.heat", "extra"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"messages":{}}', ["messages"]),
        (b'{"messages":[{"role":"user"}]}', ["messages.0.content"]),
        (with_content(b"5"), ["messages.0.content"]),
        (with_content(b'[{"type":"text"}]'), ["messages.0.content.0.text"]),
        (with_content(b'[{"type":"text","text":5}]'), ["messages.0.content.0.text"]),
        (with_content(b'[{"type":"sound"}]'), ["messages.0.content.0"]),
        (CHAT[:-1] + b',"hints":{"temperature":"1"}}', ["hints.temperature"]),
        (CHAT[:-1] + b',"hints":{"max_tokens":1.5}}', ["hints.max_tokens"]),
    ],
)
def test_an_error_has_the_path_that_the_client_wrote(body: bytes, expected: list[str]) -> None:
    assert list(dict.fromkeys(fields(refusal(body)))) == expected


def test_errors_are_listed_up_to_a_number_and_a_length() -> None:
    unknown = b",".join(b'"%d%b":0' % (number, b"k" * 500) for number in range(50))
    found = refusal(CHAT[:-1] + b"," + unknown + b"}")
    assert (len(found.details["errors"]), found.details["left_out"]) == (20, 30)
    assert max(map(len, fields(found))) == 200


@pytest.mark.parametrize(
    "body",
    [
        {"mode": SECRET},
        {"trace_id": SECRET},
        {"request_id": SECRET + "\n"},
        {"tools": ["\u0440" + SECRET]},
        {"tools": SECRET},
        {"messages": SECRET},
        {"messages": [SECRET]},
        {"messages": [{"role": SECRET, "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": SECRET}]}]},
        {"messages": [{"role": "user", "content": [{"type": "image", "media_type": SECRET, "data": SECRET + "!"}]}]},
        {"messages": [{"role": "tool", "content": "x", "tool_call_id": SECRET}]},
        {"hints": {"temperature": SECRET, "tool_choice": SECRET, "stop": [1, SECRET], "seed": SECRET}},
        {"context": {"skills": SECRET}, "redundancy": {"voting": SECRET}, "on_disconnect": SECRET},
        {"metadata": {"password": [SECRET]}},
    ],
)
def test_a_refusal_never_echoes_a_value(body: dict[str, object]) -> None:
    found = refusal(orjson.dumps({"messages": [{"role": "user", "content": "x"}], **body}))
    assert found.status == 422
    assert SECRET not in found.message
    assert SECRET not in str(found.details)


@pytest.mark.parametrize("text", [SECRET, SECRET + "\\"])
def test_a_syntax_error_never_echoes_a_value(text: str) -> None:
    assert SECRET not in refusal(f'{{"messages":"{text}'.encode()).message


def test_more_tools_than_are_allowed_are_refused() -> None:
    tools = orjson.dumps([f"tool_{number}" for number in range(100_000)])
    assert refusal(CHAT[:-1] + b',"tools":' + tools + b"}").status == 422


@pytest.mark.parametrize("name", ["r\u0435ad_file", "\u202eelif", "read\u200bfile", "\uff52ead", "x" * 10_240, ""])
def test_a_tool_name_with_look_alikes_is_refused(name: str) -> None:
    assert fields(refusal(CHAT[:-1] + b',"tools":' + orjson.dumps([name]) + b"}")) == ["tools.0"]


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": "unheard"},
        {"hints": {"max_tokens": -1}},
        {"hints": {"max_tokens": 10**12}},
        {"hints": {"timeout": 0}},
        {"hints": {"timeout": -1}},
        {"redundancy": {"n": 0}},
        {"limits": {"tool_rounds": -1}},
    ],
)
def test_a_number_out_of_bounds_is_refused_and_never_clamped(changes: dict[str, object]) -> None:
    assert refusal(orjson.dumps({"messages": [{"role": "user", "content": "x"}], **changes})).status == 422


def test_very_many_messages_are_refused_before_they_are_validated() -> None:
    message = b'{"role":"user","content":"x"}'
    assert refusal(b'{"messages":[' + b",".join([message] * 100_000) + b"]}").status == 422


@pytest.mark.parametrize(
    "media",
    ["application/json", "application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"', "application/json;"],
)
async def test_every_spelling_of_the_json_content_type_is_accepted(media: str) -> None:
    app, service = fake_app()
    service.facade.started = FakeRunning.complete
    async with running_server(app) as served:
        assert (await served.post(CHAT, {"Content-Type": media})).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Type": "application/jsonp"},
        {"Content-Type": "application/json, text/plain"},
        {},
    ],
)
async def test_another_content_type_is_415(headers: dict[str, str]) -> None:
    app, _ = fake_app()
    async with running_server(app) as served:
        answer = await served.ask(request_bytes("POST", "/v1/execute", headers, CHAT))
    assert (answer.status, answer.json["code"]) == (415, "REQUEST_UNSUPPORTED_MEDIA")


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate, gzip"])
async def test_a_compressed_body_is_415(encoding: str) -> None:
    app, _ = fake_app()
    async with running_server(app) as served:
        answer = await served.post(base64.b64decode("H4sIAAAAAAAA"), {"Content-Encoding": encoding})
    assert answer.status == 415


async def test_a_body_with_a_too_large_content_length_is_not_read() -> None:
    app, _ = fake_app(limits={"body_bytes": 100})
    head = request_bytes("POST", "/v1/execute", {"Content-Type": "application/json", "Content-Length": "101"})
    async with running_server(app) as served, served.connect() as client:
        await client.send(head)
        answer = await client.answer()
        assert (answer.status, answer.json["code"]) == (413, "REQUEST_TOO_LARGE")
        assert answer.headers["connection"] == "close"


async def test_a_chunked_body_is_refused_while_it_is_read() -> None:
    app, _ = fake_app(limits={"body_bytes": 100})
    headers = {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
    async with running_server(app) as served, served.connect() as client:
        await client.send(request_bytes("POST", "/v1/execute", headers))
        await client.send(b"65\r\n" + b" " * 101 + b"\r\n")
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert await client.closed() == b""


@pytest.mark.parametrize("chunked", [True, False])
async def test_a_client_that_sends_everything_before_it_reads_still_gets_the_refusal(chunked: bool) -> None:
    app, _ = fake_app(limits={"body_bytes": 100})
    body = b" " * 10_000_000
    headers = {"Content-Type": "application/json"}
    if chunked:
        headers["Transfer-Encoding"] = "chunked"
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    async with running_server(app) as served:
        assert (await served.ask(request_bytes("POST", "/v1/execute", headers, body))).status == 413


async def test_a_client_that_never_stops_sending_is_cut_off() -> None:
    app, _ = fake_app(limits={"body_bytes": 100})
    headers = {"Content-Type": "application/json", "Content-Length": "1000"}
    async with running_server(app) as served, served.connect() as client:
        began = anyio.current_time()
        await client.send(request_bytes("POST", "/v1/execute", headers) + b" " * 500)
        assert (await client.answer()).status == 413
        assert await client.closed() == b""
        assert anyio.current_time() - began == pytest.approx(LINGER_SECONDS, abs=0.1)


async def test_a_body_of_exactly_the_limit_is_accepted() -> None:
    app, service = fake_app(limits={"body_bytes": len(CHAT)})
    service.facade.started = FakeRunning.complete
    async with running_server(app) as served:
        assert (await served.post(CHAT)).status == 200
        assert (await served.post(CHAT + b" ")).status == 413


async def test_a_chunked_body_is_read_whole() -> None:
    app, service = fake_app()
    service.facade.started = FakeRunning.complete
    headers = {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in CHAT) + b"0\r\n\r\n"
    async with running_server(app) as served:
        assert (await served.ask(request_bytes("POST", "/v1/execute", headers, chunks))).status == 200


async def test_a_large_body_is_parsed_on_a_worker_thread() -> None:
    app, service = fake_app()
    service.facade.started = FakeRunning.complete
    body = with_content(b'"' + b"x" * (body_module.OFF_LOOP_BYTES + 1) + b'"')
    async with running_server(app) as served:
        assert (await served.post(CHAT)).status == 200
        assert not worker_threads()
        assert (await served.post(body)).status == 200
        assert worker_threads()


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"a":' + b"9" * 5000 + b"}", with_content(rb'"\ud800"'), b'{"a":' * 100_000]
)
async def test_a_hostile_body_is_a_problem_and_never_a_500(body: bytes) -> None:
    app, _ = fake_app()
    async with running_server(app) as served:
        answer = await served.post(body)
    assert (answer.status, answer.headers["content-type"]) == (400, "application/problem+json")
