"""Chat completions: OpenAI's own server, and for models of other names one that follows it as most do.

The others take unknown members and answer with `reasoning_content`; DeepSeek's also wants it back in every turn in
which a tool was called. OpenAI's own keep what they thought to themselves.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from openai.types.chat import completion_create_params

from tests.support.emulators.answers import (
    EVENTS,
    EmulatedAnswer,
    EmulatedCall,
    EmulatedResponse,
    byte_pieces,
    json_response,
    text_pieces,
)
from tests.support.emulators.openai_requests import (
    NAME,
    OpenAiRefusedError,
    answered,
    check_json_schema,
    check_sampling,
    only,
    require,
)

OWN_MODEL = re.compile(r"gpt-|o[1-9]")
DEEPSEEK = re.compile(r"deepseek-")
KNOWN = set(completion_create_params.CompletionCreateParamsBase.__annotations__) | {"stream"}
NOT_WHILE_REASONING = ("temperature", "top_p", "stop", "max_tokens", "presence_penalty", "frequency_penalty")
FINISHES = {"stop": "stop", "length": "length", "filtered": "content_filter"}
REFUSAL = "I'm sorry, but I can't help with that."
SIGNATURE = "c2lnbmVk"
"""The signature of Google's server for each call."""


def respond(path: str, headers: Mapping[str, str], body: bytes, answer: EmulatedAnswer) -> EmulatedResponse:
    if path.endswith("/models"):
        return json_response({"object": "list", "data": []})
    if not path.endswith("/chat/completions"):
        return OpenAiRefusedError(f"Invalid URL (POST {path})", status=404).response
    return answered(headers, body, lambda request: _completed(request, answer))


def _completed(request: dict[str, Any], answer: EmulatedAnswer) -> EmulatedResponse:
    require(isinstance(request.get("model"), str), "you must provide a model parameter")
    own = OWN_MODEL.match(request["model"]) is not None
    if own:
        unknown = request.keys() - KNOWN
        require(not unknown, f"Unrecognized request argument supplied: {', '.join(sorted(unknown))}")
        check_sampling(request, NOT_WHILE_REASONING, request.get("reasoning_effort"))
    _check_options(request)
    _check_conversation(request.get("messages"), own=own)
    if DEEPSEEK.match(request["model"]):
        _check_thoughts(request["messages"])
    if not request.get("stream"):
        return json_response(
            _reply("chat.completion", answer, choices=[_choice(request, answer)], usage=_usage(answer))
        )
    events = b"".join(b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in _chunks(request, answer))
    return EmulatedResponse(200, EVENTS, byte_pieces(events + b"data: [DONE]\n\n"))


def _check_options(request: Mapping[str, Any]) -> None:
    tools = request.get("tools")
    require(tools is None or tools, "[] is too short - 'tools'", param="tools")
    for tool in tools or ():
        only(tool, "tools[]", {"type", "function"})
        only(tool["function"], "tools[].function", {"name"}, {"description", "parameters", "strict"})
        require(NAME.fullmatch(tool["function"]["name"]), "Invalid 'tools[].function.name'")
    _check_choice(request.get("tool_choice"), tools)
    stop = request.get("stop", [])
    require(isinstance(stop, str) or len(stop) <= 4, "Invalid 'stop': array too long")
    require("stream_options" not in request or request.get("stream"), "stream_options is for streams only")
    most = request.get("max_completion_tokens", request.get("max_tokens", 1))
    require(isinstance(most, int) and most >= 1, "the limit of tokens is out of bounds")
    form = request.get("response_format")
    if form is not None:
        only(form, "response_format", {"type", "json_schema"})
        only(form["json_schema"], "response_format.json_schema", {"name", "schema"}, {"strict", "description"})
        check_json_schema(form["json_schema"], "response_format.json_schema")
    require("grammar" not in request or not tools, "Cannot use custom grammar constraints with tools.")


def _check_choice(choice: Any, tools: Any) -> None:
    if choice is None:
        return
    require(tools, "'tool_choice' is only allowed when 'tools' are specified.")
    if isinstance(choice, str):
        require(choice in {"auto", "none", "required"}, "Invalid value: 'tool_choice'")
        return
    only(choice, "tool_choice", {"type", "function"})
    only(choice["function"], "tool_choice.function", {"name"})
    offered = {tool["function"]["name"] for tool in tools}
    require(choice["function"]["name"] in offered, "Tool choice names a function that is not offered")


def _check_conversation(messages: Any, *, own: bool) -> None:
    require(isinstance(messages, list) and messages, "[] is too short - 'messages'", param="messages")
    waiting: list[str] = []
    for message in messages:
        require(isinstance(message, dict), "a message is no object")
        _check_message(message, own=own)
        if message["role"] == "tool":
            answers = message["tool_call_id"] in waiting
            require(answers, "messages with role 'tool' must be a response to a preceding message with 'tool_calls'.")
            waiting.remove(message["tool_call_id"])
            continue
        require(not waiting, "An assistant message with 'tool_calls' must be followed by tool messages")
        waiting = [call["id"] for call in message.get("tool_calls", ())]
    require(not waiting, "An assistant message with 'tool_calls' must be followed by tool messages")


def _check_message(message: dict[str, Any], *, own: bool) -> None:
    kept = set() if own else {"reasoning_content", "reasoning_details", "extra_content"}
    match message.get("role"):
        case "system" | "developer" | "user":
            only(message, "messages[]", {"role", "content"}, {"name"})
        case "assistant":
            only(message, "messages[]", {"role"}, {"content", "name", "refusal", "tool_calls", *kept})
            require(message.get("tool_calls", True), "[] is too short - 'messages.[].tool_calls'")
            for call in message.get("tool_calls", ()):
                only(call, "tool_calls[]", {"id", "type", "function"}, set() if own else {"extra_content"})
                only(call["function"], "tool_calls[].function", {"name", "arguments"})
                require(isinstance(call["function"]["arguments"], str), "arguments is no string")
        case "tool":
            only(message, "messages[]", {"role", "content", "tool_call_id"})
        case role:
            raise OpenAiRefusedError(f"Invalid value: '{role}'.", param="messages[].role")
    require(re.fullmatch(r"[^\s<|\\/>]+", message.get("name", "x")), "Invalid 'messages[].name'")
    _check_content(message)


def _check_content(message: Mapping[str, Any]) -> None:
    content = message.get("content")
    if content is None:
        require(message.get("tool_calls"), "Invalid value for 'content': expected a string, got null.")
    elif not isinstance(content, str):
        require(isinstance(content, list) and content, "Invalid type for 'messages[].content'")
        for part in content:
            if part.get("type") == "image_url" and message["role"] == "user":
                only(part, "content[]", {"type", "image_url"})
                only(part["image_url"], "content[].image_url", {"url"}, {"detail"})
                head, _, data = part["image_url"]["url"].partition(";base64,")
                require(head.startswith("data:image/") and base64.b64decode(data, validate=True), "Invalid image")
            else:
                only(part, "content[]", {"type", "text"})
                require(part["type"] == "text", f"Invalid content type for role {message['role']}")


def _check_thoughts(messages: list[dict[str, Any]]) -> None:
    """In a turn that called tools nothing that was thought may be missing."""
    calling = False
    for message in messages:
        calling = message["role"] != "user" and (calling or "tool_calls" in message)
        missing = calling and message["role"] == "assistant" and "reasoning_content" not in message
        require(not missing, "The reasoning_content in the thinking mode must be passed back to the API.")


def _reply(kind: str, answer: EmulatedAnswer, **members: Any) -> dict[str, Any]:
    about = {"id": "chatcmpl-1", "object": kind, "created": 1_790_000_000, "model": answer.model}
    return about | {"service_tier": "default", "system_fingerprint": "fp_1"} | members


def _choice(request: Mapping[str, Any], answer: EmulatedAnswer) -> dict[str, Any]:
    refused = answer.finish == "filtered" and "response_format" in request
    message: dict[str, Any] = {"role": "assistant", "content": None if refused else answer.text or None}
    message |= {"refusal": REFUSAL if refused else None, "annotations": []}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [_call(request, call) for call in answer.calls]
    return {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(request, answer)}


def _finish(request: Mapping[str, Any], answer: EmulatedAnswer) -> str:
    if answer.calls and answer.finish == "stop":
        return "tool_calls"
    return "stop" if answer.finish == "filtered" and "response_format" in request else FINISHES[answer.finish]


def _call(request: Mapping[str, Any], call: EmulatedCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": orjson.dumps(call.arguments).decode()}
    signed = {"extra_content": {"google": {"thought_signature": SIGNATURE}}}
    return {"id": call.id, "type": "function", "function": function} | (signed if _is_google(request) else {})


def _is_google(request: Mapping[str, Any]) -> bool:
    return request["model"].startswith("gemini-")


def _chunks(request: Mapping[str, Any], answer: EmulatedAnswer) -> Iterator[dict[str, Any]]:
    counted = bool((request.get("stream_options") or {}).get("include_usage"))
    unused = {"usage": None} if counted else {}
    for delta in ({"role": "assistant", "content": "", "refusal": None}, *_deltas(request, answer)):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        yield _reply("chat.completion.chunk", answer, choices=[choice], **unused)
    ending = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": _finish(request, answer)}
    yield _reply("chat.completion.chunk", answer, choices=[ending], **unused)
    if counted:
        yield _reply("chat.completion.chunk", answer, choices=[], usage=_usage(answer))


def _deltas(request: Mapping[str, Any], answer: EmulatedAnswer) -> Iterator[dict[str, Any]]:
    yield from ({"content": None, "reasoning_content": piece} for piece in text_pieces(answer.reasoning))
    if answer.finish == "filtered" and "response_format" in request:
        yield from ({"refusal": piece} for piece in text_pieces(REFUSAL))
        return
    yield from ({"content": piece} for piece in text_pieces(answer.text))
    for index, emulated in enumerate(answer.calls):
        call = _call(request, emulated)
        arguments = call["function"].pop("arguments")
        begun = call | {"index": index, "function": call["function"] | {"arguments": ""}}
        for fragment in (
            begun,
            *({"index": index, "function": {"arguments": piece}} for piece in text_pieces(arguments, 3)),
        ):
            yield {"tool_calls": [fragment]}


def _usage(answer: EmulatedAnswer) -> dict[str, Any]:
    usage = answer.usage
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning, "audio_tokens": 0},
    }
