"""One recorded-like stream of each provider: 50 chunks of a text, with the fields that vary between chunks."""

from collections.abc import Mapping
from dataclasses import dataclass

from portico.adapters.engines.anthropic.dialect import AnthropicDialect
from portico.adapters.engines.dialect import Dialect
from portico.adapters.engines.gemini.dialect import GeminiDialect
from portico.adapters.engines.ollama.dialect import OllamaDialect
from portico.adapters.engines.openai.chat_completions import ChatCompletionsDialect
from portico.adapters.engines.openai.responses import ResponsesDialect
from portico.adapters.engines.wire.event_stream import EventStreamParser
from portico.adapters.engines.wire.json_lines import JsonLinesParser

CHUNKS = 50
_CHAT = (
    b'{"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"gpt-4o-mini-2024-07-18",'
    b'"service_tier":"default","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":%b,"logprobs":null,'
    b'"finish_reason":%b}],"usage":null,"obfuscation":"%b"}'
)
_RESPONSE = (
    b'{"type":"response.%b","sequence_number":%d,"response":{"id":"resp_bench","object":"response",'
    b'"created_at":1700000000,"status":"%b","error":null,"incomplete_details":null,"model":"gpt-5","output":[%b],'
    b'"usage":%b}}'
)
_ITEM = b'{"id":"msg_bench","type":"message","status":"%b","content":[%b],"role":"assistant"}'
_DELTA = (
    b'{"type":"response.output_text.delta","sequence_number":%d,"item_id":"msg_bench","output_index":0,'
    b'"content_index":0,"delta":"word %d ","logprobs":[],"obfuscation":"%b"}'
)
_ADDED = b'{"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":%b}'
_DONE = b'{"type":"response.output_item.done","sequence_number":52,"output_index":0,"item":%b}'
_MESSAGE = (
    b'{"type":"message_start","message":{"model":"claude-sonnet-4-5-20250929","id":"msg_bench","type":"message",'
    b'"role":"assistant","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":43,'
    b'"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":1,"service_tier":"standard"}}}'
)
_ENDED = (
    b'{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"input_tokens":43,'
    b'"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":52}}'
)
_GEMINI = (
    b'{"candidates": [{"content": {"parts": [{"text": "word %d "}],"role": "model"}%b}],"usageMetadata": '
    b'{"promptTokenCount": 15,"candidatesTokenCount": %d,"totalTokenCount": %d,"promptTokensDetails": '
    b'[{"modality": "TEXT","tokenCount": 15}]},"modelVersion": "gemini-2.0-flash","responseId": "bench"}'
)
_OLLAMA = (
    b'{"model":"qwen3:8b","created_at":"2026-08-21T18:48:2%d.%09dZ","message":{"role":"assistant","content":"%b"},%b}'
)


@dataclass(frozen=True, slots=True)
class ProviderStream:
    """The body of a provider's stream and its parser; `end` terminates each event."""

    dialect: Dialect
    frames: type[EventStreamParser] | type[JsonLinesParser]
    body: bytes
    end: bytes


def _events(*events: bytes) -> bytes:
    return b"".join(b"data: %b\n\n" % event for event in events)


def _chat() -> bytes:
    deltas = [b'{"role":"assistant","content":""}', *(b'{"content":"word %d "}' % number for number in range(CHUNKS))]
    chunks = (_CHAT % (delta, b"null", _padding(number)) for number, delta in enumerate(deltas))
    return _events(*chunks, _CHAT % (b"{}", b'"stop"', b"x"), b"[DONE]")


def _padding(number: int) -> bytes:
    return b"aB3x9"[: 1 + number % 5]


def _responses() -> bytes:
    item = _ITEM % (b"completed", b'{"type":"output_text","annotations":[],"logprobs":[],"text":"all of it"}')
    usage = b'{"input_tokens":15,"output_tokens":52,"total_tokens":67}'
    events = [
        _RESPONSE % (b"created", 0, b"in_progress", b"", b"null"),
        _ADDED % (_ITEM % (b"in_progress", b"")),
        *(_DELTA % (number + 2, number, _padding(number)) for number in range(CHUNKS)),
        _DONE % item,
        _RESPONSE % (b"completed", 53, b"completed", item, usage),
    ]
    return b"".join(b"event: %b\ndata: %b\n\n" % (event.split(b'"', 4)[3], event) for event in events)


def _messages() -> bytes:
    delta = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word %d "}%b}'
    events = [
        _MESSAGE,
        b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""} }',
        b'{"type":"ping"}',
        *(delta % (number, b" " * (number * 7 % 15)) for number in range(CHUNKS)),
        b'{"type":"content_block_stop","index":0  }',
        _ENDED,
        b'{"type":"message_stop"   }',
    ]
    return b"".join(b"event: %b\ndata: %b\n\n" % (event.split(b'"', 4)[3], event) for event in events)


def _gemini() -> bytes:
    endings = [b""] * (CHUNKS - 1) + [b',"finishReason": "STOP"']
    counts = range(2, 10 * CHUNKS, 10)
    chunks = (
        _GEMINI % (n, ending, count, count + 15)
        for n, ending, count in zip(range(CHUNKS), endings, counts, strict=True)
    )
    return b"".join(b"data: %b\r\n\r\n" % chunk for chunk in chunks)


def _ollama() -> bytes:
    lines = [_OLLAMA % (n // 10, n * 19_876_543 + 100_000_000, b"word %d " % n, b'"done":false') for n in range(CHUNKS)]
    done = b'"done":true,"done_reason":"stop","total_duration":9,"prompt_eval_count":15,"eval_count":52'
    return b"".join(line + b"\n" for line in (*lines, _OLLAMA % (9, 1, b"", done)))


STREAMS: Mapping[str, ProviderStream] = {
    "chat completions": ProviderStream(ChatCompletionsDialect(), EventStreamParser, _chat(), b"\n\n"),
    "responses": ProviderStream(ResponsesDialect(), EventStreamParser, _responses(), b"\n\n"),
    "anthropic": ProviderStream(AnthropicDialect(), EventStreamParser, _messages(), b"\n\n"),
    "gemini": ProviderStream(GeminiDialect(), EventStreamParser, _gemini(), b"\r\n\r\n"),
    "ollama": ProviderStream(OllamaDialect(), JsonLinesParser, _ollama(), b"\n"),
}
