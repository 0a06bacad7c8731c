"""One attempt over a real socket, against a provider that does what providers should not."""

import os
import ssl
from asyncio import StreamReader, StreamWriter, start_server
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from portico.adapters.engines.http.engine import Endpoint, ReplyLimits
from portico.adapters.engines.openai.chat_completions import ChatCompletionsDialect
from portico.adapters.engines.timeouts import Timeouts
from portico.domain.contract.messages import Message
from portico.domain.contract.response import TokenUsage
from portico.domain.model_call import AttemptFailureReason, Reply
from portico.ports.model import EngineError
from tests.adapters.engines.engine_calls import HI_REPLY, KEY, call, chat_chunk, engine, profile
from tests.support.emulators.server import http_engine
from tests.support.engine_calls import RecordedProgress
from tests.support.upstream import (
    Script,
    ScriptedUpstream,
    UpstreamAction,
    UpstreamPause,
    closed_port,
    event,
    event_stream,
    reply,
)

DONE = event("[DONE]")
STOP = event(chat_chunk(finish="stop"))
CANARY = "upstream-canary-77"
SELF_SIGNED = Path(__file__).parents[3] / "support" / "self_signed.pem"


async def asked(script: Script, heard: RecordedProgress | None = None, *, stream: bool = False) -> Reply:
    async with ScriptedUpstream(script) as upstream, engine(upstream.url) as asker:
        return await asker.attempt(call(), heard or RecordedProgress(), stream=stream)


async def fault(script: Script, heard: RecordedProgress | None = None, *, stream: bool = False) -> EngineError:
    with pytest.raises(EngineError) as caught:
        await asked(script, heard, stream=stream)
    return caught.value


async def test_a_json_reply_is_read_and_not_published():
    heard = RecordedProgress()
    body = HI_REPLY | {"usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}}
    answer = await asked(reply(body), heard)
    assert (answer.text, answer.finish_reason) == ("Hi", "stop")
    assert heard == RecordedProgress(usages=[TokenUsage(input_tokens=3, output_tokens=1, total_tokens=4)])


async def test_a_stream_is_published_as_it_arrives():
    heard = RecordedProgress()
    usage = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
    thought = event(chat_chunk(reasoning="hm"))
    answer = await asked(
        event_stream(thought, event(chat_chunk("Hel")), event(chat_chunk("lo")), STOP, usage, DONE), heard, stream=True
    )
    assert (answer.text, answer.reasoning, answer.usage.total_tokens) == ("Hello", "hm", 5)
    assert (heard.texts, heard.reasonings, len(heard.usages)) == (["Hel", "lo"], ["hm"], 1)


async def test_the_replys_content_type_decides_how_it_is_read():
    heard = RecordedProgress()
    assert (await asked(reply(HI_REPLY), heard, stream=True)).text == "Hi"
    assert heard.texts == ["Hi"]
    stream = event_stream(event(chat_chunk("Hi")), DONE, content_type="Text/Event-Stream; charset=utf-8")
    assert (await asked(stream)).text == "Hi"


async def test_a_json_reply_that_is_not_sound_publishes_nothing():
    heard = RecordedProgress()
    filtered = {
        "choices": [{"message": {"content": "Hi"}, "finish_reason": "content_filter"}],
        "usage": {"prompt_tokens": 3},
    }
    assert (await fault(reply(filtered), heard, stream=True)).reason is AttemptFailureReason.CONTENT_FILTERED
    assert heard.texts == []
    assert heard.usages[0].input_tokens == 3


async def test_the_request_names_no_secret_but_in_its_header_and_asks_for_no_compression():
    async with ScriptedUpstream(reply(HI_REPLY)) as upstream, engine(f"{upstream.url}/v1/") as asker:
        await asker.attempt(call(), RecordedProgress(), stream=False)
    request = upstream.requests[0]
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["content-type"] == "application/json"
    assert "cookie" not in request.headers
    assert request.json() == ChatCompletionsDialect().encode(call(), profile(), stream=False).body


async def test_the_key_is_asked_for_anew_every_time():
    keys = iter(["first", "second", None])
    async with ScriptedUpstream(reply(HI_REPLY)) as upstream:
        endpoint = Endpoint(upstream.url, lambda: next(keys))
        async with http_engine(profile(), ChatCompletionsDialect(), endpoint) as asker:
            for _ in range(3):
                await asker.attempt(call(), RecordedProgress(), stream=False)
    assert [request.headers.get("authorization") for request in upstream.requests] == [
        "Bearer first",
        "Bearer second",
        None,
    ]


async def test_cookies_are_not_kept():
    async with (
        ScriptedUpstream(reply(HI_REPLY, headers={"Set-Cookie": "a=b"})) as upstream,
        engine(upstream.url) as asker,
    ):
        for _ in range(2):
            await asker.attempt(call(), RecordedProgress(), stream=False)
    assert "cookie" not in upstream.requests[1].headers


@pytest.mark.parametrize(
    "script", [reply(HI_REPLY), event_stream(event(chat_chunk("a")), STOP, DONE), reply({"error": {}}, status=429)]
)
async def test_the_connection_is_used_again_after_a_whole_reply(script: Script):
    async with ScriptedUpstream(script) as upstream, engine(upstream.url) as asker:
        for _ in range(3):
            with suppress(EngineError):
                await asker.attempt(call(), RecordedProgress(), stream=False)
        assert upstream.connections == 1


async def test_a_large_request_arrives_whole():
    text = "x" * (3 * 2**20)
    async with ScriptedUpstream(reply(HI_REPLY)) as upstream, engine(upstream.url) as asker:
        await asker.attempt(call([Message(role="user", content=text)]), RecordedProgress(), stream=False)
    assert upstream.requests[0].json()["messages"][0]["content"] == text


async def test_a_large_reply_arrives_whole():
    text = "x" * (3 * 2**20)
    assert (await asked(reply({"choices": [{"message": {"content": text}}]}))).text == text


async def test_a_rate_limit_says_how_long():
    caught = await fault(reply({}, status=429, headers={"Retry-After": "2"}))
    assert (caught.reason, caught.retry_after) == (AttemptFailureReason.RATE_LIMITED, 2)
    dated = {"Retry-After": "Sat, 21 Nov 2026 20:09:03 GMT", "Date": "Sat, 21 Nov 2026 20:09:00 GMT"}
    assert (await fault(reply({}, status=503, headers=dated))).retry_after == 3


async def test_a_rate_limit_may_say_nothing():
    assert (await fault(reply({}, status=429))).retry_after is None


async def test_a_spent_quota_is_not_a_rate_limit():
    assert (
        await fault(reply({"error": {"code": "insufficient_quota"}}, status=429))
    ).reason is AttemptFailureReason.QUOTA


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (500, AttemptFailureReason.SERVER_ERROR),
        (503, AttemptFailureReason.SERVER_ERROR),
        (529, AttemptFailureReason.OVERLOADED),
        (400, AttemptFailureReason.REFUSED),
    ],
)
async def test_a_failing_status_is_translated_and_its_body_is_not_repeated(status: int, reason: AttemptFailureReason):
    caught = await fault(reply(f"<html>{CANARY}</html>".encode(), status=status, content_type="text/html"))
    assert caught.reason is reason
    assert CANARY not in f"{caught} {caught!r} {caught.__cause__!r} {caught.__context__!r}"


async def test_an_error_body_that_never_ends_is_not_waited_for():
    head = b"HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\n{"
    started = anyio.current_time()
    assert (await fault([head, UpstreamAction.HANG])).reason is AttemptFailureReason.SERVER_ERROR
    assert anyio.current_time() - started < 5


async def test_an_endless_error_body_is_not_read_to_its_end():
    script = [b"HTTP/1.1 500 Oops\r\nContent-Length: 900000000\r\n\r\n", *[b"x" * 2**16] * 200, UpstreamAction.HANG]
    async with ScriptedUpstream(script) as upstream, engine(upstream.url) as asker:
        with pytest.raises(EngineError):
            await asker.attempt(call(), RecordedProgress(), stream=False)
        await upstream.wait_for_departures()


async def test_a_refused_connection_is_unreachable():
    async with closed_port() as url, engine(url) as asker:
        with pytest.raises(EngineError) as caught:
            await asker.attempt(call(), RecordedProgress(), stream=False)
    assert caught.value.reason is AttemptFailureReason.UNREACHABLE


async def test_an_unknown_name_is_unreachable():
    async with engine("http://nowhere.invalid") as asker:
        with pytest.raises(EngineError) as caught:
            await asker.attempt(call(), RecordedProgress(), stream=False)
    assert caught.value.reason is AttemptFailureReason.UNREACHABLE


@pytest.mark.parametrize("url", ["not a url", "ftp://127.0.0.1", "http://127.0.0.1:99999", "http://"])
async def test_an_address_that_cannot_be_used_is_unreachable(url: str):
    async with engine(url) as asker:
        with pytest.raises(EngineError) as caught:
            await asker.attempt(call(), RecordedProgress(), stream=False)
    assert caught.value.reason is AttemptFailureReason.UNREACHABLE


async def test_a_self_signed_certificate_is_a_tls_fault():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(SELF_SIGNED)
    async with ScriptedUpstream(reply(HI_REPLY), secure=context) as upstream, engine(upstream.url) as asker:
        with pytest.raises(EngineError) as caught:
            await asker.attempt(call(), RecordedProgress(), stream=False)
        assert upstream.requests == []
    assert caught.value.reason is AttemptFailureReason.TLS


async def test_a_server_that_speaks_no_tls_is_a_tls_fault():
    async def greet(_reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(b"220 mail.example.com\r\n")
        writer.close()

    server = await start_server(greet, "127.0.0.1", 0)
    async with server, engine(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}") as asker:
        with pytest.raises(EngineError) as caught:
            await asker.attempt(call(), RecordedProgress(), stream=False)
    assert caught.value.reason is AttemptFailureReason.TLS


@pytest.mark.parametrize("act", [UpstreamAction.CLOSE, UpstreamAction.RESET])
async def test_a_connection_that_ends_before_the_first_token_is_broken(act: UpstreamAction):
    heard = RecordedProgress()
    assert (await fault([act], heard, stream=True)).reason is AttemptFailureReason.BROKEN
    assert (await fault(event_stream(act), heard, stream=True)).reason is AttemptFailureReason.BROKEN
    assert heard == RecordedProgress()


@pytest.mark.parametrize("act", [UpstreamAction.CLOSE, UpstreamAction.RESET])
async def test_a_stream_cut_after_tokens_is_broken_and_what_was_said_is_known(act: UpstreamAction):
    heard = RecordedProgress()
    assert (
        await fault(event_stream(event(chat_chunk("Hel")), act), heard, stream=True)
    ).reason is AttemptFailureReason.BROKEN
    assert heard.texts == ["Hel"]


async def test_a_json_body_that_is_cut_is_broken():
    cut = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    assert (await fault([cut, UpstreamAction.CLOSE])).reason is AttemptFailureReason.BROKEN


async def test_a_stream_without_a_terminal_marker_is_malformed():
    assert (await fault(event_stream(event(chat_chunk("Hello"))), stream=True)).reason is AttemptFailureReason.MALFORMED
    assert (await fault(event_stream(), stream=True)).reason is AttemptFailureReason.MALFORMED


@pytest.mark.parametrize("act", [UpstreamAction.CLOSE, UpstreamAction.RESET, UpstreamAction.HANG])
async def test_what_happens_to_the_connection_behind_the_terminal_marker_changes_nothing(act: UpstreamAction):
    assert (await asked(event_stream(event(chat_chunk("Hello")), STOP, act, end=False), stream=True)).text == "Hello"
    assert (await asked(event_stream(event(chat_chunk("Hello")), DONE, act, end=False), stream=True)).text == "Hello"


async def test_nothing_behind_the_end_marker_counts():
    late = event(chat_chunk("!")) + event({"error": {"message": "late"}})
    assert (await asked(event_stream(event(chat_chunk("Hello")) + STOP + DONE + late), stream=True)).text == "Hello"


async def test_a_stream_that_stays_open_behind_its_end_marker_is_left():
    script = event_stream(event(chat_chunk("a")), DONE, UpstreamAction.HANG, end=False)
    async with ScriptedUpstream(script) as upstream, engine(upstream.url) as asker:
        started = anyio.current_time()
        await asker.attempt(call(), RecordedProgress(), stream=True)
        assert anyio.current_time() - started < 1
        await upstream.wait_for_departures()


async def test_an_error_behind_the_finish_reason_is_an_error():
    script = event_stream(event(chat_chunk("Hello")), STOP, event({"error": {"message": "x", "code": 502}}), DONE)
    assert (await fault(script, stream=True)).reason is AttemptFailureReason.SERVER_ERROR


async def test_a_stream_reads_the_same_however_its_bytes_are_cut():
    text = "data: " + '{"choices":[{"delta":{"content":"caf\u00e9 \U0001f3b2"},"finish_reason":"stop"}]}'
    body = f"\ufeff: hi\r\nretry: 5\r\n{text}\r\n\r\ndata: [DONE]\r\n\r\n".encode()
    for size in (1, 2, 3, 5, 7):
        pieces = [body[index : index + size] for index in range(0, len(body), size)]
        assert (await asked(event_stream(*pieces), stream=True)).text == "caf\u00e9 \U0001f3b2"


@pytest.mark.parametrize("body", [b'{"choices": NaN}', b"\xff", b'{"a":1,"a":2}', b"[" * 5000, b"<html></html>", b""])
async def test_a_body_that_is_no_strict_json_is_malformed(body: bytes):
    assert (await fault(reply(body))).reason is AttemptFailureReason.MALFORMED
    assert (
        await fault(event_stream(b"data: " + (body or b"?") + b"\n\n"), stream=True)
    ).reason is AttemptFailureReason.MALFORMED


async def test_html_with_status_200_is_malformed():
    assert (await fault(reply(b"<html></html>", content_type="text/html"))).reason is AttemptFailureReason.MALFORMED


async def test_a_reply_that_is_too_long_is_malformed_and_its_connection_closed():
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {10**9}\r\nContent-Type: application/json\r\n\r\n".encode()
    script = [head, *[b" " * 2**20] * (ReplyLimits().response_bytes // 2**20 + 4), UpstreamAction.HANG]
    async with ScriptedUpstream(script) as upstream, engine(upstream.url) as asker:
        with pytest.raises(EngineError) as caught:
            await asker.attempt(call(), RecordedProgress(), stream=False)
        await upstream.wait_for_departures()
    assert caught.value.reason is AttemptFailureReason.MALFORMED


async def test_a_line_that_is_too_long_is_malformed_and_its_connection_closed():
    script = event_stream(b"data: ", *[b"x" * 2**20] * (ReplyLimits().line_bytes // 2**20 + 2), UpstreamAction.HANG)
    async with ScriptedUpstream(script) as upstream, engine(upstream.url) as asker:
        with pytest.raises(EngineError) as caught:
            await asker.attempt(call(), RecordedProgress(), stream=True)
        await upstream.wait_for_departures()
    assert caught.value.reason is AttemptFailureReason.MALFORMED


async def test_a_compressed_reply_is_refused_unread():
    script = reply(b"\x1f\x8b" + b"x" * 100, headers={"Content-Encoding": "gzip"})
    assert (await fault(script)).reason is AttemptFailureReason.MALFORMED


async def test_a_redirect_is_not_followed():
    async with ScriptedUpstream(reply(HI_REPLY)) as inner:
        moved = reply(b"", status=302, headers={"Location": inner.url})
        assert (await fault(moved)).reason is AttemptFailureReason.UNREACHABLE
        assert inner.requests == []


@pytest.mark.parametrize(
    "script",
    [
        [b"garbage\r\n\r\n", UpstreamAction.HANG],
        [b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", UpstreamAction.HANG],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n", UpstreamAction.HANG],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", UpstreamPause(1), b"ZZ\r\n", UpstreamAction.HANG],
        [*event_stream(event(chat_chunk("a")), end=False), UpstreamPause(1), b"ZZ\r\n", UpstreamAction.HANG],
    ],
    ids=["status", "header", "chunk", "late chunk", "chunk after text"],
)
async def test_an_answer_that_is_not_http_is_malformed_at_once(script: Script):
    started = anyio.current_time()
    caught = await fault(script, stream=True)
    assert caught.reason is AttemptFailureReason.MALFORMED
    assert anyio.current_time() - started < 5
    assert KEY not in f"{caught!r} {caught.__cause__!r} {caught.__context__!r}"


async def test_invalid_framing_behind_the_terminal_marker_changes_nothing():
    script = [
        *event_stream(event(chat_chunk("a", "stop")), end=False),
        UpstreamPause(1),
        b"ZZ\r\n",
        UpstreamAction.HANG,
    ]
    assert (await asked(script, stream=True)).text == "a"


@pytest.mark.parametrize(
    "script",
    [
        [UpstreamAction.HANG],
        event_stream(UpstreamAction.HANG),
        event_stream(event(chat_chunk("a")), UpstreamAction.HANG),
        [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", UpstreamAction.HANG],
        [b"HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\n{", UpstreamAction.HANG],
    ],
    ids=["before the first byte", "before the first token", "after a token", "within JSON", "within an error"],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_cancel_closes_the_upstream_connection_at_once(script: Script, stream: bool):
    async with ScriptedUpstream(script) as upstream, engine(upstream.url) as asker, anyio.create_task_group() as group:
        group.start_soon(lambda: asker.attempt(call(), RecordedProgress(), stream=stream))
        await upstream.wait_for_requests()
        await anyio.wait_all_tasks_blocked()
        cancelled = anyio.current_time()
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await upstream.wait_for_departures()
    assert upstream.departures[0] - cancelled < 0.05


async def test_a_cancel_leaves_no_descriptor_to_a_peer_that_does_not_read():
    message = Message(role="user", content="x" * (16 * 2**20))
    async with ScriptedUpstream([], deaf=True) as upstream, engine(upstream.url, Timeouts(attempt_seconds=1)) as asker:
        async with anyio.create_task_group() as group:
            group.start_soon(upstream.wait_for_requests)
            before = len(os.listdir("/dev/fd"))
            with pytest.raises(EngineError):
                await asker.attempt(call([message]), RecordedProgress(), stream=False)
        await anyio.wait_all_tasks_blocked()
        assert len(os.listdir("/dev/fd")) - before == 1


async def test_a_provider_is_reached_without_asking_a_model():
    async with (
        ScriptedUpstream(reply({"data": []}), reply({}, status=404)) as upstream,
        engine(f"{upstream.url}/v1") as asker,
    ):
        assert await asker.ping()
        assert await asker.ping()
    assert {(request.method, request.path) for request in upstream.requests} == {("GET", "/v1/models")}
    assert upstream.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (reply({}, status=401), AttemptFailureReason.CREDENTIALS),
        (reply({}, status=403), AttemptFailureReason.CREDENTIALS),
        (reply({}, status=500), AttemptFailureReason.SERVER_ERROR),
        (reply({}, status=302), AttemptFailureReason.UNREACHABLE),
        ([UpstreamAction.HANG], AttemptFailureReason.TIMED_OUT),
        ([UpstreamAction.CLOSE], AttemptFailureReason.BROKEN),
    ],
)
async def test_reaching_a_provider_says_what_is_wrong(script: Script, reason: AttemptFailureReason):
    async with ScriptedUpstream(script) as upstream, engine(upstream.url) as asker:
        with pytest.raises(EngineError) as caught:
            await asker.ping()
    assert caught.value.reason is reason
