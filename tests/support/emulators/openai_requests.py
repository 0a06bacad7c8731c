"""The checks of both of OpenAI's APIs on a request, and their refusals."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from tests.support.emulators.answers import EmulatedResponse, json_response

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
REASONING_MODEL = re.compile(r"(o[1-9]|gpt-5|gpt-6|codex)")
EFFORTLESS = frozenset({"gpt-5.1", "gpt-5.2", "gpt-5.4", "gpt-5.4-mini", "gpt-5.4-nano"})
"""Models whose effort is `none` unless asked for."""
EFFORTS = (
    (r"gpt-5-pro", "high"),
    (r"gpt-5\.\d-pro", "medium high xhigh"),
    (r"o\d|gpt-5-codex|gpt-5.1-codex(?!-max)", "low medium high"),
    (r"gpt-5\.\d-codex", "low medium high xhigh"),
    (r"gpt-5\.1", "none low medium high"),
    (r"gpt-5\.[2-5]", "none low medium high xhigh"),
    (r"gpt-5\.", "none low medium high xhigh max"),
    (r"gpt-5", "minimal low medium high"),
)
"""The efforts of the models that begin so, the first that fits."""
STRICT_KEYWORDS = {
    *("type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf"),
    *("$ref", "$defs", "title", "description"),
}


class OpenAiRefusedError(Exception):
    """The request is at fault."""

    def __init__(self, message: str, *, status: int = 400, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        kind = "invalid_request_error"
        self.response = json_response(
            {"error": {"message": message, "type": kind, "param": param, "code": code}}, status
        )


def answered(
    headers: Mapping[str, str], body: bytes, answer: Callable[[dict[str, Any]], EmulatedResponse]
) -> EmulatedResponse:
    """The answer to a request that says who asks and is an object; or why there is none."""
    try:
        known = re.fullmatch(r"Bearer \S+", headers.get("authorization", ""))
        require(known, "Incorrect API key provided", status=401, code="invalid_api_key")
        require(headers.get("content-type") == "application/json", "Unsupported content type", status=415)
        return answer(_object(body))
    except OpenAiRefusedError as refused:
        return refused.response


def _object(body: bytes) -> dict[str, Any]:
    try:
        request = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise OpenAiRefusedError("We could not parse the JSON body of your request.") from None
    require(isinstance(request, dict), "the body is no object")
    return request


def require(
    held: object, message: str, *, status: int = 400, code: str | None = None, param: str | None = None
) -> None:
    if not held:
        raise OpenAiRefusedError(message, status=status, code=code, param=param)


def only(value: Any, where: str, required: set[str], optional: set[str] = frozenset()) -> None:
    """The value is an object that holds these members and no others."""
    require(isinstance(value, dict), f"{where} is no object", param=where)
    for member in required - value.keys():
        raise OpenAiRefusedError(f"Missing required parameter: '{where}.{member}'.", code="missing_required_parameter")
    for member in value.keys() - required - optional:
        raise OpenAiRefusedError(f"Unknown parameter: '{where}.{member}'.", code="unknown_parameter")


def check_sampling(request: Mapping[str, Any], refused: tuple[str, ...], effort: object) -> None:
    """Bounds of the numbers, and what a model that reasons does not take."""
    efforts = next((words for family, words in EFFORTS if re.match(family, request["model"])), "")
    require(effort is None or not efforts or effort in efforts.split(), f"Unsupported value: '{effort}'")
    default = "none" if request["model"] in EFFORTLESS else "medium"
    if REASONING_MODEL.match(request["model"]) and (effort or default) != "none":
        for member in refused:
            require(member not in request, f"Unsupported parameter: '{member}'", code="unsupported_parameter")
    require(0 <= request.get("temperature", 1) <= 2, "temperature is out of bounds", param="temperature")
    require(0 <= request.get("top_p", 1) <= 1, "top_p is out of bounds", param="top_p")


def check_json_schema(form: Mapping[str, Any], where: str) -> None:
    """The form an answer must have; strict mode takes its subset only."""
    require(NAME.fullmatch(form["name"]), f"{where}.name does not match the pattern")
    require(form["schema"].get("type") == "object", f"{where}: schema must be of type object")
    if form.get("strict"):
        _check_strict(form["schema"])


def _check_strict(schema: Any) -> None:
    require(isinstance(schema, dict), "a schema is no object", code="invalid_json_schema")
    unknown = schema.keys() - STRICT_KEYWORDS
    require(not unknown, f"{sorted(unknown)} is not permitted", code="invalid_json_schema")
    members = schema.get("properties", {})
    if "object" in schema.get("type", ()):
        require(schema.get("additionalProperties") is False, "additionalProperties must be false")
        require(set(schema.get("required", ())) == set(members), "required must hold every property")
    inner = [*members.values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", ())]
    for part in [*inner, *([schema["items"]] if "items" in schema else ())]:
        _check_strict(part)
