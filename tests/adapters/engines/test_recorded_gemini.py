"""Real exchanges with Gemini: nothing of an answer is lost, and what we ask has their shape.

What an answer holds is read a second time here, the naive way, from the recorded body alone.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from portico.adapters.engines.gemini.dialect import GeminiDialect
from portico.adapters.engines.gemini.schemas import sanitize_schema
from portico.domain.contract.messages import ImagePart, Message, ModelMessage, TextPart, ToolCall
from portico.domain.contract.request import ExecutionHints, NamedTool
from portico.domain.model_call import AttemptFailureReason, EngineCall, Reply
from portico.domain.tools import ToolDefinition
from tests.adapters.engines.engine_calls import profile
from tests.adapters.engines.recorded_report import NO_RECORDED_TRAFFIC
from tests.adapters.engines.recordings import RecordedExchange, reason_over_a_socket, recordings, without

FILES = recordings("gemini-*.json")
pytestmark = pytest.mark.skipif(not FILES, reason=NO_RECORDED_TRAFFIC)

DIALECT = GeminiDialect()
PIXEL = ImagePart(type="image", media_type="image/png", data="iVBORw==")
EXPECTED_ERRORS = {400: AttemptFailureReason.REFUSED}
METHODS = ("generateContent", "streamGenerateContent?alt=sse")
HINTS = {"temperature": "temperature", "topP": "top_p", "maxOutputTokens": "max_tokens", "stopSequences": "stop"}
OURS = {*HINTS, "seed", "responseMimeType", "responseJsonSchema", "responseSchema"}
OWN_TOOLS = {"includeServerSideToolInvocations"}
"""Members that ask for the provider's own tools, which we do not."""
FINISHED = {"STOP": "stop", "MAX_TOKENS": "length"}
CHOICES = {"AUTO": "auto", "NONE": "none", "ANY": "required"}


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def exchange(request: pytest.FixtureRequest) -> RecordedExchange:
    return RecordedExchange(request, DIALECT)


def check(exchange: RecordedExchange, answer: Reply) -> None:
    chunks = exchange.chunks()
    candidates = [candidate for chunk in chunks for candidate in chunk["candidates"]]
    parts = [part for candidate in candidates for part in candidate["content"].get("parts") or []]
    texts = [part for part in parts if "text" in part]
    assert answer.text == "".join(part["text"] for part in texts if not part.get("thought"))
    assert answer.reasoning == "".join(part["text"] for part in texts if part.get("thought"))
    calls = [part for part in parts if "functionCall" in part]
    asked = [(part["functionCall"]["name"], part["functionCall"]["args"]) for part in calls]
    assert [(call.name, call.arguments) for call in answer.tool_calls] == asked
    for number, (call, part) in enumerate(zip(answer.tool_calls, calls, strict=True)):
        assert call.id == part["functionCall"].get("id", f"call_{number}")
    signatures = [part["thoughtSignature"] for part in [*texts, *calls] if "thoughtSignature" in part]
    assert list(_signatures(answer)) == signatures
    assert answer.model == chunks[0]["modelVersion"]
    finish = FINISHED[candidates[-1]["finishReason"]]
    assert answer.finish_reason == ("tool" if calls and finish == "stop" else finish)
    assert answer.raw_finish == ""
    check_usage(answer, chunks[-1]["usageMetadata"])


def _signatures(answer: Reply) -> Iterator[str]:
    for block in answer.kept:
        yield block["part"]["thoughtSignature"] if "part" in block else block["signature"]


def check_usage(answer: Reply, usage: Mapping[str, int]) -> None:
    assert answer.usage.total_tokens == usage["totalTokenCount"]
    assert answer.usage.input_tokens + answer.usage.output_tokens == usage["totalTokenCount"]
    assert answer.usage.input_tokens == usage["promptTokenCount"] + usage.get("toolUsePromptTokenCount", 0)
    assert answer.usage.reasoning_tokens == usage.get("thoughtsTokenCount", 0)
    assert answer.usage.cached_tokens == usage.get("cachedContentTokenCount", 0)


def test_a_recorded_answer_decodes_without_loss_in_one_piece_and_byte_by_byte(exchange: RecordedExchange):
    if exchange.status == 200:
        check(exchange, exchange.read())
        check(exchange, exchange.read_byte_by_byte())


def test_a_recorded_answer_decodes_without_loss_cut_at_many_places(exchange: RecordedExchange):
    if exchange.status == 200:
        exchange.check_cuts()


def test_a_recorded_answer_that_ends_early_is_whole_or_malformed_and_never_something_else(exchange: RecordedExchange):
    if exchange.status == 200:
        exchange.check_early_ends()


async def test_a_recorded_exchange_goes_over_a_socket(exchange: RecordedExchange):
    if exchange.status == 200:
        check(exchange, await exchange.over_a_socket())
    else:
        assert await reason_over_a_socket(exchange) is EXPECTED_ERRORS[exchange.status]


def test_a_recorded_answer_is_sent_back_part_by_part(exchange: RecordedExchange):
    """Texts in a row are one part where they are not signed; the provider's own tools are not sent."""
    if exchange.status != 200:
        return
    message = exchange.read().message("primary")
    sent = DIALECT.encode(EngineCall([message], [], ExecutionHints()), profile("gemini-2.5"), stream=False)
    said = [
        part
        for chunk in exchange.chunks()
        for part in chunk["candidates"][0]["content"]["parts"]
        if "functionCall" in part or part.get("text") or (part.keys() >= {"text", "thoughtSignature"})
    ]
    assert [part for content in sent.body["contents"] for part in content["parts"]] == list(_joined(said))


def _joined(parts: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    text = ""
    for part in parts:
        if part.keys() == {"text"}:
            text += part["text"]
            continue
        if text:
            yield {"text": text}
        text = ""
        yield part
    if text:
        yield {"text": text}


def asked_for(request: Mapping[str, Any]) -> EngineCall:
    """The call that a recorded request stands for."""
    config = request["generationConfig"]
    system = [_message("system", content) for content in [request.get("systemInstruction")] if content]
    declared = [name for tool in request.get("tools") or [] for name in tool.get("functionDeclarations") or []]
    return EngineCall(
        [*system, *(message for content in request["contents"] for message in _messages(content))],
        [ToolDefinition(tool["name"], tool["description"], _parameters(tool)) for tool in declared],
        ExecutionHints(
            seed=config.get("seed"),
            tool_choice=_choice(request.get("toolConfig") or {}),
            options=without(config, OURS) | ({"labels": request["labels"]} if "labels" in request else {}),
            **{ours: config[theirs] for theirs, ours in HINTS.items() if theirs in config},
        ),
        schema=config.get("responseJsonSchema"),
    )


def _parameters(tool: Mapping[str, Any]) -> Any:
    """A tool's schema, whichever form it was sent in."""
    return next(tool[key] for key in ("parameters_json_schema", "parametersJsonSchema", "parameters") if key in tool)


def _choice(config: Mapping[str, Any]) -> Any:
    calling = config.get("functionCallingConfig")
    if not calling:
        return None
    names = calling.get("allowedFunctionNames") or []
    return NamedTool(name=names[0]) if len(names) == 1 else CHOICES[calling["mode"]]


def _messages(content: Mapping[str, Any]) -> Iterator[Message]:
    """Return the messages of one content. A result is a message of its own."""
    if content["role"] == "model":
        yield _message("assistant", content)
        return
    for part in content["parts"]:
        function_response = part.get("functionResponse") or part.get("function_response")
        if function_response:
            yield Message(
                role="tool",
                content=str(function_response["response"]),
                tool_call_id=function_response["id"],
                name=function_response["name"],
            )
        else:
            yield _message("user", {"parts": [part]})


def _message(role: Any, content: Mapping[str, Any]) -> Message:
    calls: list[ToolCall] = []
    kept: list[dict[str, Any]] = []
    for part in content["parts"]:
        asked = part.get("functionCall") or part.get("function_call")
        if asked:
            calls.append(ToolCall(id=asked["id"], name=asked["name"], arguments=asked["args"]))
            signature = part.get("thoughtSignature") or part.get("thought_signature")
            kept += [{"call": asked["id"], "signature": signature}] if signature else []
    said = [part for part in content["parts"] if "text" in part or "fileData" in part]
    if role == "assistant":
        text = "".join(part["text"] for part in said)
        return ModelMessage(role=role, content=text, tool_calls=calls or None, provider="primary", kept=kept)
    return Message(role=role, content=[_part(part) for part in said])


def _part(part: Mapping[str, Any]) -> TextPart | ImagePart:
    return TextPart(type="text", text=part["text"]) if "text" in part else PIXEL


def expected(request: Mapping[str, Any]) -> dict[str, Any]:
    """The recorded request in our spelling, without what we do not ask for: the provider's own tools, files, schemas
    in the older of the two forms. The model's texts are one, and a result is what its tool said.
    """
    body = without(request, {"toolConfig", "tools"}) | {
        "contents": [
            {"role": content["role"], "parts": list(_joined([_spelled(part) for part in content["parts"]]))}
            if content["role"] == "model"
            else content | {"parts": [_spelled(part) for part in content["parts"]]}
            for content in request["contents"]
        ],
        "generationConfig": without(request["generationConfig"], {"responseSchema"}),
    }
    if "responseSchema" in request["generationConfig"]:
        del body["generationConfig"]["responseMimeType"]
    if "responseJsonSchema" in body["generationConfig"]:
        body["generationConfig"]["responseJsonSchema"] = sanitize_schema(body["generationConfig"]["responseJsonSchema"])
    declared = [name for tool in request.get("tools") or [] for name in tool.get("functionDeclarations") or []]
    config = without(request.get("toolConfig") or {}, OWN_TOOLS)
    return (
        body
        | ({"tools": [{"functionDeclarations": list(map(_declared, declared))}]} if declared else {})
        | _chosen(config)
    )


def _declared(tool: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object"} | sanitize_schema(_parameters(tool))
    return {"name": tool["name"], "description": tool["description"], "parametersJsonSchema": parameters}


def _chosen(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of several allowed functions, as only the client named them, we can allow one or all."""
    if not config:
        return {}
    calling = config["functionCallingConfig"]
    several = len(calling.get("allowedFunctionNames") or []) > 1
    return {"toolConfig": {"functionCallingConfig": without(calling, {"allowedFunctionNames"} if several else set())}}


def _spelled(part: Mapping[str, Any]) -> dict[str, Any]:
    part = {re.sub(r"_([a-z])", lambda found: found[1].upper(), key): value for key, value in part.items()}
    if "functionResponse" in part:
        function_response = part["functionResponse"]
        return {
            "functionResponse": {
                "id": function_response["id"],
                "name": function_response["name"],
                "response": {"output": str(function_response["response"])},
            }
        }
    return {"inlineData": {"mimeType": PIXEL.media_type, "data": PIXEL.data}} if "fileData" in part else part


def test_an_equal_request_of_ours_has_the_recorded_shape(exchange: RecordedExchange):
    recorded = exchange.request
    asked = asked_for(recorded)
    model, method = re.fullmatch(r".*/models/([^:]+):(.*)", exchange.path).groups()
    sent = DIALECT.encode(asked, profile(model, frozenset(asked.hints.options)), stream=method == METHODS[1])
    assert sent.path == f"/v1beta/models/{model}:{method}"
    assert sent.body == expected(recorded)


def test_recorded_signatures_are_base64(exchange: RecordedExchange):
    if exchange.status == 200:
        for signature in _signatures(exchange.read()):
            assert base64.b64decode(signature, validate=True)
