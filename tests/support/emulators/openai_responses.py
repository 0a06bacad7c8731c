"""OpenAI's Responses API, asked to store nothing."""

import base64
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from openai.types.responses import response_create_params

from tests.support.emulators.answers import (
    EVENTS,
    EmulatedAnswer,
    EmulatedResponse,
    byte_pieces,
    json_response,
    text_pieces,
)
from tests.support.emulators.openai_requests import (
    NAME,
    REASONING_MODEL,
    OpenAiRefusedError,
    answered,
    check_json_schema,
    check_sampling,
    only,
    require,
)

KNOWN = set(response_create_params.ResponseCreateParamsBase.__annotations__) | {"stream"}
ENCRYPTED = "reasoning.encrypted_content"
FINISHES = {"stop": None, "length": {"reason": "max_output_tokens"}, "filtered": {"reason": "content_filter"}}
REFUSAL = "I'm sorry, but I can't help with that."
Event = dict[str, Any]


def respond(path: str, headers: Mapping[str, str], body: bytes, answer: EmulatedAnswer) -> EmulatedResponse:
    if path.endswith("/models"):
        return json_response({"object": "list", "data": []})
    if not path.endswith("/responses"):
        return OpenAiRefusedError(f"Invalid URL (POST {path})", status=404).response
    return answered(headers, body, lambda request: _responded(request, answer))


def _responded(request: dict[str, Any], answer: EmulatedAnswer) -> EmulatedResponse:
    only(request, "body", {"model", "input"}, KNOWN)
    check_sampling(request, ("temperature", "top_p"), (request.get("reasoning") or {}).get("effort"))
    _check_options(request)
    _check_input(request["input"])
    if not request.get("stream"):
        return json_response(_response(request, answer, _items(request, answer)))
    events = (event | {"sequence_number": number} for number, event in enumerate(_events(request, answer)))
    lines = (b"event: " + event["type"].encode() + b"\ndata: " + orjson.dumps(event) + b"\n\n" for event in events)
    return EmulatedResponse(200, EVENTS, byte_pieces(b"".join(lines)))


def _check_options(request: Mapping[str, Any]) -> None:
    most = request.get("max_output_tokens", 16)
    bounded = isinstance(most, int) and most >= 16
    require(bounded, "Invalid 'max_output_tokens': integer below minimum value.", code="integer_below_min_value")
    if ENCRYPTED in request.get("include", ()):
        require(REASONING_MODEL.match(request["model"]), "Encrypted content is not supported with this model.")
    tools = request.get("tools", [])
    for tool in tools:
        only(tool, "tools[]", {"type", "name", "parameters"}, {"description", "strict"})
        require(tool["type"] == "function" and NAME.fullmatch(tool["name"]), "Invalid 'tools[].name'")
        require(
            tool.get("strict") is False, "Invalid schema for function: it is strict unless the request says otherwise"
        )
    _check_choice(request.get("tool_choice", "auto"), tools)
    form = request.get("text", {}).get("format")
    if form is not None:
        only(form, "text.format", {"type", "name", "schema"}, {"strict", "description"})
        require(form["type"] == "json_schema", "Invalid value: 'text.format.type'")
        check_json_schema(form, "text.format")


def _check_choice(choice: Any, tools: list[dict[str, Any]]) -> None:
    if isinstance(choice, str):
        require(choice in {"auto", "none", "required"}, "Invalid value: 'tool_choice'")
        return
    only(choice, "tool_choice", {"type", "name"})
    offered = choice["name"] in {tool["name"] for tool in tools}
    require(offered, "Tool choice 'function' not found in 'tools' parameter.")


def _check_input(items: Any) -> None:
    """Each item is of its kind, each call has its output, and reasoning is followed by what it led to."""
    if isinstance(items, str):
        return
    require(isinstance(items, list) and items, "Missing required parameter: 'input'.")
    called, put_out = [], []
    for item, following in zip(items, [*items[1:], {}], strict=True):
        _check_item(item)
        if item.get("type") == "reasoning":
            led = following.get("type") in {"reasoning", "function_call"} or following.get("role") == "assistant"
            require(led, f"Item '{item['id']}' of type 'reasoning' was provided without its required following item.")
        elif item.get("type") == "function_call":
            called.append(item["call_id"])
        elif item.get("type") == "function_call_output":
            require(item["call_id"] in called, f"No tool call found for function call output {item['call_id']}.")
            put_out.append(item["call_id"])
    for call_id in called:
        require(call_id in put_out, f"No tool output found for function call {call_id}.")


def _check_item(item: Any) -> None:
    require(isinstance(item, dict), "an item is no object")
    match item.get("type", "message"):
        case "message":
            only(item, "input[]", {"role", "content"}, {"type", "phase"})
            require(item["role"] in {"user", "assistant", "system", "developer"}, "Invalid value: 'input[].role'")
            require("phase" not in item or item["role"] == "assistant", "phase is for assistant messages only")
            _check_content(item["content"], item["role"])
        case "function_call":
            only(item, "input[]", {"type", "call_id", "name", "arguments"}, {"id"})
            require(isinstance(item["arguments"], str), "arguments is no string")
        case "function_call_output":
            only(item, "input[]", {"type", "call_id", "output"}, {"id"})
            _check_content(item["output"], "tool")
        case "reasoning":
            only(item, "input[]", {"type", "id", "summary"}, {"encrypted_content", "content"})
            missing = f"Item with id '{item['id']}' not found. Items are not persisted when `store` is set to false."
            require(item.get("encrypted_content"), missing)
            require(not item.get("content"), "Invalid 'input[].content': array too long.")
        case kind:
            raise OpenAiRefusedError(f"Invalid value: '{kind}'.", param="input[].type")


def _check_content(content: Any, role: str) -> None:
    if isinstance(content, str):
        return
    require(isinstance(content, list), "Invalid type for 'input[].content'")
    for part in content:
        if part.get("type") == "input_image" and role in {"user", "tool"}:
            only(part, "content[]", {"type", "image_url"}, {"detail"})
            head, _, data = part["image_url"].partition(";base64,")
            require(head.startswith("data:image/") and base64.b64decode(data, validate=True), "Invalid image")
        else:
            only(part, "content[]", {"type", "text"})
            kind = "output_text" if role == "assistant" else "input_text"
            require(part["type"] == kind, f"Invalid value: '{part['type']}'. Supported values are: '{kind}'.")


def _items(request: Mapping[str, Any], answer: EmulatedAnswer) -> list[dict[str, Any]]:
    """Reasoning before what it led to, and a second time before the last call, as it is where text comes between."""
    items: list[dict[str, Any]] = [_thought(request, 1, answer.reasoning)] if answer.reasoning else []
    if answer.text or answer.finish == "filtered" or not answer.calls:
        items.append(_message(request, answer))
    for number, call in enumerate(answer.calls):
        if answer.reasoning and answer.text:
            items.append(_thought(request, number + 2, ""))
        arguments = orjson.dumps(call.arguments).decode()
        about = {"id": f"fc_{number}", "call_id": call.id, "name": call.name, "arguments": arguments}
        items.append({"type": "function_call", "status": "completed", **about})
    return items


def _thought(request: Mapping[str, Any], number: int, text: str) -> dict[str, Any]:
    """Return reasoning, in two summaries where it has two paragraphs."""
    summary = [{"type": "summary_text", "text": part} for part in text.split("\n\n") if part]
    sealed = base64.b64encode(f"thought {number}: {text}".encode()).decode()
    asked_for = ENCRYPTED in request.get("include", ())
    return {
        "id": f"rs_{number}",
        "type": "reasoning",
        "summary": summary,
        "encrypted_content": sealed if asked_for else None,
    }


def _message(request: Mapping[str, Any], answer: EmulatedAnswer) -> dict[str, Any]:
    refused = answer.finish == "filtered" and "text" in request
    part: dict[str, Any] = {"type": "output_text", "annotations": [], "logprobs": [], "text": answer.text}
    content = [{"type": "refusal", "refusal": REFUSAL} if refused else part]
    phase = {"phase": "commentary" if answer.calls else "final_answer"} if "codex" in request["model"] else {}
    about = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    return {**about, "content": content, **phase}


def _response(
    request: Mapping[str, Any], answer: EmulatedAnswer, items: list[dict[str, Any]], *, status: str = ""
) -> dict[str, Any]:
    usage = answer.usage
    refused = answer.finish == "filtered" and "text" in request
    details = None if refused or status else FINISHES[answer.finish]
    counted = {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_790_000_000.0,
        "status": status or ("incomplete" if details else "completed"),
        "error": None,
        "incomplete_details": details,
        "instructions": None,
        "metadata": {},
        "model": answer.model,
        "output": items,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": request.get("tool_choice", "auto"),
        "tools": request.get("tools", []),
        "top_p": 1.0,
        "usage": None if status else counted,
    }


def _events(request: Mapping[str, Any], answer: EmulatedAnswer) -> Iterator[Event]:
    for kind in ("created", "in_progress"):
        yield {"type": f"response.{kind}", "response": _response(request, answer, [], status="in_progress")}
    items = _items(request, answer)
    for place, item in enumerate(items):
        where = {"output_index": place}
        yield {"type": "response.output_item.added", **where, "item": item | _BEGUN[item["type"]]}
        yield from (event | where | {"item_id": item["id"]} for event in _TELLING[item["type"]](item))
        yield {"type": "response.output_item.done", **where, "item": item}
    response = _response(request, answer, items)
    yield {"type": f"response.{response['status']}", "response": response}


def _thinking(item: Mapping[str, Any]) -> Iterator[Event]:
    for index, part in enumerate(item["summary"]):
        kind, where = "response.reasoning_summary", {"summary_index": index}
        yield {"type": f"{kind}_part.added", **where, "part": part | {"text": ""}}
        yield from ({"type": f"{kind}_text.delta", **where, "delta": piece} for piece in text_pieces(part["text"]))
        yield {"type": f"{kind}_text.done", **where, "text": part["text"]}
        yield {"type": f"{kind}_part.done", **where, "part": part}


def _saying(item: Mapping[str, Any]) -> Iterator[Event]:
    where, part = {"content_index": 0}, item["content"][0]
    yield {"type": "response.content_part.added", **where, "part": part | {part["type"].rpartition("_")[2]: ""}}
    if part["type"] == "refusal":
        yield from ({"type": "response.refusal.delta", **where, "delta": piece} for piece in text_pieces(REFUSAL))
        yield {"type": "response.refusal.done", **where, "refusal": REFUSAL}
    else:
        said = {"type": "response.output_text.delta", **where, "logprobs": [], "obfuscation": "x7"}
        yield from (said | {"delta": piece} for piece in text_pieces(part["text"]))
        yield {"type": "response.output_text.done", **where, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **where, "part": part}


def _calling(item: Mapping[str, Any]) -> Iterator[Event]:
    kind = "response.function_call_arguments"
    yield from ({"type": f"{kind}.delta", "delta": piece} for piece in text_pieces(item["arguments"], 3))
    yield {"type": f"{kind}.done", "arguments": item["arguments"], "name": item["name"]}


_BEGUN: Mapping[str, dict[str, Any]] = {
    "reasoning": {"summary": [], "encrypted_content": "bm90IHlldA=="},
    "message": {"status": "in_progress", "content": []},
    "function_call": {"status": "in_progress", "arguments": ""},
}
_TELLING = {"reasoning": _thinking, "message": _saying, "function_call": _calling}
