"""Google's server: generateContent in both forms, embeddings, counting and models, as its reference has them.

Members are known by either spelling of their names, and unknown ones refuse the request, as ProtoJSON has it. Two
things are stricter than there: a JSON Schema holds no keyword that the reference does not list, and an answer of the
third generation of models without a signed call is refused wherever it stands.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import orjson

from tests.support.emulators.answers import EmulatedAnswer, EmulatedResponse, text_pieces
from tests.support.emulators.server import KEY

JSON: Final = MappingProxyType({"Content-Type": "application/json; charset=UTF-8"})
EVENTS: Final = MappingProxyType({"Content-Type": "text/event-stream"})
METHOD: Final = re.compile(r"/v1beta/models/([^/:?]+):(\w+)(\?alt=sse)?")
FUNCTION_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
SIGNING_MODEL: Final = re.compile(r"gemini-[3-9]")
DATA: Final = frozenset({"text", "inlineData", "functionCall", "functionResponse"})
FINISHES: Final[Mapping[str, str]] = {"stop": "STOP", "length": "MAX_TOKENS", "filtered": "SAFETY"}
SIGNATURE: Final = base64.b64encode(b"a thought that no other can read").decode()
DIMENSIONS: Final = 3
Taken: TypeAlias = Mapping[str, Any]
Take: TypeAlias = Callable[[Any, str], Any]
"""Gives a value in the reference's spelling, or refuses it; the text says where it stands."""


class GeminiRefusedError(Exception):
    """The server takes no such request."""


def respond(path: str, headers: Mapping[str, str], body: bytes, answer: EmulatedAnswer) -> EmulatedResponse:
    """Return the server's response."""
    if headers.get("x-goog-api-key") != KEY:
        detail = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
        return _error(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", detail)
    if path.partition("?")[0] == "/v1beta/models":
        return _json({"models": [{"name": f"models/{answer.model}"}]})
    method = METHOD.fullmatch(path)
    if method is None or method[2] not in METHODS:
        return _error(404, "NOT_FOUND", "models/x is not found for API version v1beta.")
    try:
        return METHODS[method[2]](unquote(method[1]), orjson.loads(body), answer)
    except (orjson.JSONDecodeError, GeminiRefusedError) as refusal:
        refused = _error(400, "INVALID_ARGUMENT", str(refusal))
        return refused if method[2] == "generateContent" else _json([orjson.loads(refused.pieces[0])], 400)


def _generate(model: str, request: Any, answer: EmulatedAnswer) -> EmulatedResponse:
    _check(model, REQUEST(request, "request"))
    parts = _parts(answer, [answer.text] if answer.text else [], sign_text=True)
    return _json(_said(answer, parts, end=True))


def _stream(model: str, request: Any, answer: EmulatedAnswer) -> EmulatedResponse:
    _check(model, REQUEST(request, "request"))
    *parts, last = [*_parts(answer, list(text_pieces(answer.text)), sign_text=False), _last(answer)]
    chunks = [*(_said(answer, [part], end=False) for part in parts), _said(answer, [last], end=True)]
    return EmulatedResponse(200, EVENTS, tuple(b"data: " + orjson.dumps(chunk) + b"\r\n\r\n" for chunk in chunks))


def _parts(answer: EmulatedAnswer, texts: list[str], *, sign_text: bool) -> list[dict[str, Any]]:
    """Return the parts before the end. A call is signed where there is one, else the text, in a stream at its end."""
    thoughts = [{"text": piece, "thought": True} for piece in text_pieces(answer.reasoning)]
    said: list[dict[str, Any]] = [{"text": text} for text in texts]
    calls = [{"functionCall": {"id": id_, "name": name, "args": dict(given)}} for id_, name, given in answer.calls]
    for part in [*calls, *(said if sign_text else ())][:1]:
        part |= {"thoughtSignature": SIGNATURE}
    return [*thoughts, *said, *calls]


def _last(answer: EmulatedAnswer) -> dict[str, Any]:
    return {"text": ""} | ({} if answer.calls else {"thoughtSignature": SIGNATURE})


def _said(answer: EmulatedAnswer, parts: list[dict[str, Any]], *, end: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0}
    if answer.finish != "filtered":
        candidate["content"] = {"role": "model", "parts": parts}
    if end:
        candidate["finishReason"] = FINISHES[answer.finish]
    usage = _usage(answer) if end else {"promptTokenCount": answer.usage.input, "totalTokenCount": answer.usage.input}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": answer.model, "responseId": "r-1"}


def _usage(answer: EmulatedAnswer) -> dict[str, int]:
    used = answer.usage
    counts = {
        "promptTokenCount": used.input,
        "candidatesTokenCount": used.output - used.reasoning,
        "thoughtsTokenCount": used.reasoning,
        "cachedContentTokenCount": used.cached,
        "totalTokenCount": used.input + used.output,
    }
    return {key: count for key, count in counts.items() if count}


def _check_thinking(model: str, thinking: Mapping[str, Any]) -> None:
    """Check the level or the budget, of which a model takes one, within its range."""
    least, most = (128, 32_768) if "-pro" in model else (512, 24_576)
    budget, level = thinking.get("thinkingBudget"), thinking.get("thinkingLevel")
    if "2.5" in model:
        is_taken = budget in {None, -1} or least <= budget <= most or (budget == 0 and "-pro" not in model)
    else:
        known = {"LOW", "HIGH"} if "3-pro" in model else {"MINIMAL", "LOW", "MEDIUM", "HIGH"}
        is_taken = budget is None and (level is None or level.upper() in known)
    if not is_taken or ("2.5" in model and level is not None):
        raise GeminiRefusedError(f"The thinking budget {budget} or level {level} is invalid.")


def _check(model: str, request: Taken) -> None:
    """Check the rules between several members."""
    _check_tools(model, request)
    _check_thinking(model, request.get("generationConfig", {}).get("thinkingConfig", {}))
    if not request.get("contents"):
        raise GeminiRefusedError("GenerateContentRequest.contents: contents is not specified")
    before: list[Taken] = []
    for role, parts in _turns(request["contents"]):
        _check_results(before, [part["functionResponse"] for part in parts if "functionResponse" in part])
        calls = [part for part in parts if "functionCall" in part]
        if calls and role != "model":
            raise GeminiRefusedError("Please ensure that function call turns are the model's.")
        if role != "model" and {"text": ""} in parts:
            raise GeminiRefusedError("GenerateContentRequest.contents: required oneof field 'data' must be initialized")
        if calls and SIGNING_MODEL.match(model) and "thoughtSignature" not in calls[0]:
            raise GeminiRefusedError("Function call is missing a thought_signature in functionCall parts.")
        before = [part["functionCall"] for part in calls]


def _turns(contents: list[Taken]) -> list[tuple[str, list[Taken]]]:
    """Return the consecutive parts of each role."""
    turns: list[tuple[str, list[Taken]]] = []
    for content in contents:
        if not content["parts"]:
            raise GeminiRefusedError("GenerateContentRequest.contents: contents.parts must not be empty.")
        role = content.get("role", "user")
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(content["parts"])
        else:
            turns.append((role, list(content["parts"])))
    return turns


def _check_results(calls: list[Taken], results: list[Taken]) -> None:
    if len(calls) != len(results):
        raise GeminiRefusedError(
            "Please ensure that the number of function response parts is equal to the number of calls."
        )
    asked = sorted((call.get("id", ""), call["name"]) for call in calls)
    if asked != sorted((result.get("id", ""), result["name"]) for result in results):
        raise GeminiRefusedError("Please ensure that function responses belong to the calls before them.")


def _check_tools(model: str, request: Taken) -> None:
    declared = [name["name"] for tool in request.get("tools") or () for name in tool["functionDeclarations"]]
    calling = (request.get("toolConfig") or {}).get("functionCallingConfig") or {}
    config = request.get("generationConfig") or {}
    if calling and not declared:
        raise GeminiRefusedError("Function calling config is set without function_declarations.")
    if calling.get("allowedFunctionNames") and calling["mode"] != "ANY":
        raise GeminiRefusedError("Allowed function names are for the mode ANY only.")
    if not set(calling.get("allowedFunctionNames") or ()) <= set(declared):
        raise GeminiRefusedError("Allowed function names must be declared.")
    if len(set(declared)) < len(declared):
        raise GeminiRefusedError("Duplicate function declaration found.")
    as_json = config.get("responseMimeType") == "application/json"
    if "responseJsonSchema" in config and not as_json:
        raise GeminiRefusedError("A schema is for the response mime type application/json only.")
    if as_json and declared and not SIGNING_MODEL.match(model):
        raise GeminiRefusedError("Function calling with a response mime type: 'application/json' is unsupported")


def _text(value: Any, where: str) -> Any:
    return _of(isinstance(value, str), value, where)


def _flag(value: Any, where: str) -> Any:
    return _of(isinstance(value, bool), value, where)


def _number(value: Any, where: str) -> Any:
    return _of(isinstance(value, int | float) and not isinstance(value, bool), value, where)


def _int32(value: Any, where: str) -> Any:
    return _of(isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31, value, where)


def _object(value: Any, where: str) -> Any:
    return _of(isinstance(value, dict), value, where)


def _bytes(value: Any, where: str) -> Any:
    try:
        base64.b64decode(str(value).replace("-", "+").replace("_", "/"), validate=True)
    except binascii.Error:
        raise GeminiRefusedError(f"Invalid value at '{where}' (TYPE_BYTES), Base64 decoding failed") from None
    return _text(value, where)


def _one_of(*words: str) -> Take:
    return lambda value, where: _of(value in words, value, where)


def _matching(pattern: re.Pattern[str]) -> Take:
    return lambda value, where: _of(isinstance(value, str) and pattern.fullmatch(value) is not None, value, where)


def _of(fits: object, value: Any, where: str) -> Any:
    if not fits:
        raise GeminiRefusedError(f"Invalid value at '{where}'")
    return value


def _list(take: Take, most: int = 4096) -> Take:
    def taken(value: Any, where: str) -> Any:
        _of(isinstance(value, list) and len(value) <= most, value, where)
        return [take(item, f"{where}[{index}]") for index, item in enumerate(value)]

    return taken


def _message(**fields: Take) -> Take:
    """An object of these members; one whose name ends in an underscore has to be there."""
    known = {name.rstrip("_"): take for name, take in fields.items()}
    needed = {name.rstrip("_") for name in fields if name.endswith("_")}

    def taken(value: Any, where: str) -> Any:
        members = {_camel(key): member for key, member in _object(value, where).items() if member is not None}
        for name in members.keys() - known.keys():
            raise GeminiRefusedError(
                f"Invalid JSON payload received. Unknown name {name!r} at '{where}': Cannot find field."
            )
        _of(needed <= members.keys(), value, where)
        return {name: known[name](member, f"{where}.{name}") for name, member in members.items()}

    return taken


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


def _part(value: Any, where: str) -> Any:
    part = PART(value, where)
    if len(part.keys() & DATA) != 1:
        raise GeminiRefusedError(
            f"GenerateContentRequest.{where}.data: required oneof field 'data' must have one initialized"
        )
    return part


def _schema(value: Any, where: str) -> Any:
    """A JSON Schema, by the keywords of the reference; references to definitions are none of our business."""
    taken = _message(**SCHEMA)(value, where)
    for name, member in (taken.get("properties") or {}).items():
        _schema(member, f"{where}.properties[{name}]")
    if not set(taken.get("required") or ()) <= set(taken.get("properties") or ()):
        raise GeminiRefusedError(f"{where}.required: property is not defined")
    return taken


def _type(value: Any, where: str) -> Any:
    kinds = {"string", "number", "integer", "boolean", "array", "object", "null"}
    return _of(set(value if isinstance(value, list) else [value]) <= kinds, value, where)


def _enum(value: Any, where: str) -> Any:
    texts = all(isinstance(item, str) and item for item in value)
    numbers = all(isinstance(item, int | float) and not isinstance(item, bool) for item in value)
    return _of(value and (texts or numbers), value, where)


def _open(value: Any, where: str) -> Any:
    return value if isinstance(value, bool) else _schema(value, where)


SCHEMA: Final[Mapping[str, Take]] = {
    **dict.fromkeys(("title", "description", "format"), _text),
    **dict.fromkeys(("minimum", "maximum"), _number),
    **dict.fromkeys(("minItems", "maxItems"), _int32),
    **dict.fromkeys(("required", "propertyOrdering"), _list(_text)),
    **dict.fromkeys(("anyOf", "oneOf", "prefixItems"), _list(_schema)),
    "type": _type,
    "enum": _enum,
    "items": _schema,
    "properties": _object,
    "additionalProperties": _open,
}
BLOB: Final = _message(mimeType_=_text, data_=_bytes, displayName=_text)
CALL: Final = _message(id=_text, name_=_text, args=_object)
RESULT: Final = _message(id=_text, name_=_matching(re.compile(".+")), response_=_object)
PART: Final = _message(
    text=_text, thought=_flag, thoughtSignature=_bytes, inlineData=BLOB, functionCall=CALL, functionResponse=RESULT
)
CONTENT: Final = _message(role=_one_of("user", "model"), parts_=_list(_part))
DECLARATION: Final = _message(
    name_=_matching(FUNCTION_NAME), description=_text, parameters=_object, parametersJsonSchema=_schema
)
THINKING: Final = _message(includeThoughts=_flag, thinkingBudget=_int32, thinkingLevel=_text)
CONFIG: Final = _message(
    temperature=_number,
    topP=_number,
    topK=_number,
    maxOutputTokens=_int32,
    candidateCount=_int32,
    seed=_int32,
    stopSequences=_list(_text, 5),
    presencePenalty=_number,
    frequencyPenalty=_number,
    responseMimeType=_one_of("text/plain", "application/json"),
    responseSchema=_object,
    responseJsonSchema=_schema,
    responseModalities=_list(_text),
    thinkingConfig=THINKING,
)
CALLING: Final = _message(mode_=_one_of("AUTO", "ANY", "NONE", "VALIDATED"), allowedFunctionNames=_list(_text))
GENERATING: Final[Mapping[str, Take]] = {
    "model": _text,
    "contents": _list(CONTENT),
    "systemInstruction": CONTENT,
    "tools": _list(_message(functionDeclarations_=_list(DECLARATION))),
    "toolConfig": _message(functionCallingConfig=CALLING),
    "generationConfig": CONFIG,
    "safetySettings": _list(_message(category_=_text, threshold_=_text)),
    "cachedContent": _text,
}
REQUEST: Final = _message(**GENERATING)
COUNTING: Final = _message(contents=_list(CONTENT), generateContentRequest=_message(**GENERATING))
EMBEDDING: Final = _message(model_=_text, content_=CONTENT, taskType=_text, outputDimensionality=_int32)
EMBEDDINGS: Final = _message(requests_=_list(EMBEDDING, 100))
METHODS: Final[Mapping[str, Callable[[str, Any, EmulatedAnswer], EmulatedResponse]]] = {
    "generateContent": _generate,
    "streamGenerateContent": _stream,
}


def _error(status: int, word: str, message: str, *details: Mapping[str, Any]) -> EmulatedResponse:
    return _json({"error": {"code": status, "message": message, "status": word, "details": list(details)}}, status)


def _json(body: Any, status: int = 200) -> EmulatedResponse:
    return EmulatedResponse(status, JSON, (orjson.dumps(body, option=orjson.OPT_INDENT_2),))
