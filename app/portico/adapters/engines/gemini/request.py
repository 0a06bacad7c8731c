"""Requests to the Gemini API.

A conversation has two roles, user and model, and parts; consecutive messages of one role are one content. System
prompts are outside of it, wherever they were, and results of tools belong to the user. Gemini signs its thoughts: a
signature belongs to one part, and models from the third generation on refuse calls without theirs. So parts are sent
back as they came, and where calls come from another model, the first of each answer carries the placeholder that Google
defines for that case.

Options go where the API has them: a few beside the conversation, all others into `generationConfig`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from portico.adapters.engines.dialect import opaque_blocks
from portico.adapters.engines.gemini.schemas import sanitize_schema
from portico.adapters.engines.levels import GEMINI_BUDGETS, GEMINI_LEVELS, SentLevel, find_level
from portico.adapters.engines.unsupported import translated_hints
from portico.domain.contract.messages import Message, Part, TextPart, ToolCall
from portico.domain.contract.request import ExecutionHints, NamedTool
from portico.domain.model_call import EngineCall
from portico.domain.tools import ToolDefinition
from portico.ports.model import EngineProfile

TOP_LEVEL_OPTIONS: Final = frozenset({"cachedContent", "labels", "safetySettings", "serviceTier", "store"})
"""Options that are not part of `generationConfig`."""
MODES: Final[Mapping[str, str]] = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
PARAMETER_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "max_tokens": "maxOutputTokens",
        "temperature": "temperature",
        "top_p": "topP",
        "stop": "stopSequences",
        "seed": "seed",
        "tool_choice": "toolConfig",
    }
)
OUR_ID = re.compile(r"(call_\d+)?")
SIGNING_MODEL = re.compile(r"(models/)?gemini-([3-9]|\d\d|.*latest)")
FROM_ANOTHER_MODEL: Final = "skip_thought_signature_validator"
SEED_BITS: Final = 31


def build_request(call: EngineCall, profile: EngineProfile) -> dict[str, Any]:
    """Return the body of a request, streamed or not."""
    options = {key: value for key, value in call.hints.options.items() if key in profile.options}
    body: dict[str, Any] = {key: value for key, value in options.items() if key in TOP_LEVEL_OPTIONS}
    prompts = [{"text": message.text} for message in call.messages if message.role == "system" and message.text]
    if prompts:
        body["systemInstruction"] = {"role": "user", "parts": prompts}
    body["contents"] = _contents(call.messages, signing=bool(SIGNING_MODEL.match(profile.known_as or profile.model)))
    if call.tools:
        body["tools"] = [{"functionDeclarations": [_tool(tool) for tool in call.tools]}]
        body |= _choice(call.hints)
    config = {key: value for key, value in options.items() if key not in TOP_LEVEL_OPTIONS} | _sampling(call.hints)
    thinking = _thinking(call, profile, config.get("thinkingConfig"))
    if thinking:
        config["thinkingConfig"] = thinking
    if call.schema is not None:
        config |= {"responseMimeType": "application/json", "responseJsonSchema": sanitize_schema(call.schema)}
    return body | {"generationConfig": config}


def sent_level(call: EngineCall, profile: EngineProfile) -> tuple[str, SentLevel | None]:
    """Return the parameter of `thinkingConfig` for the level of reasoning of a call, and what it is for that level."""
    wanted, model = call.hints.reasoning, profile.known_as or profile.model
    if wanted is None:
        return "", None
    budget = find_level(wanted, GEMINI_BUDGETS, model)
    if budget is not None:
        return "thinkingBudget", budget
    return "thinkingLevel", find_level(wanted, GEMINI_LEVELS, model)


def has_level(call: EngineCall, profile: EngineProfile, config: Mapping[str, Any]) -> bool:
    """Tell whether the configuration of a request has exactly the level of reasoning of its call."""
    if call.hints.reasoning is None:
        return True
    name, level = sent_level(call, profile)
    thinking = config.get("thinkingConfig")
    return level is not None and level.is_exact and isinstance(thinking, dict) and thinking.get(name) == level.value


def _thinking(call: EngineCall, profile: EngineProfile, option: Any) -> Any:
    """Return the configuration of thinking. What an option says of it is kept, also if it is none."""
    if not (option is None or isinstance(option, dict)):
        return option
    thinking: dict[str, Any] = dict(option or {})
    name, level = sent_level(call, profile)
    if level is not None and thinking.keys().isdisjoint({"thinkingBudget", "thinkingLevel"}):
        thinking[name] = level.value
    if call.shows_reasoning and profile.capabilities.reasoning:
        thinking.setdefault("includeThoughts", True)
    return thinking


def _sampling(hints: ExecutionHints) -> dict[str, Any]:
    sampling = translated_hints(hints, PARAMETER_NAMES)
    if isinstance(hints.stop, str):
        sampling["stopSequences"] = [hints.stop]
    if hints.seed is not None:
        sampling["seed"] = _seed(hints.seed)
    return sampling


def _seed(seed: int) -> int:
    """Return a seed of 32 bits: Gemini refuses larger ones, which become another and always the same one."""
    return seed if -(2**SEED_BITS) <= seed < 2**SEED_BITS else seed % 2**SEED_BITS


def _choice(hints: ExecutionHints) -> dict[str, Any]:
    choice = hints.tool_choice
    if isinstance(choice, NamedTool):
        return {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [choice.name]}}}
    return {"toolConfig": {"functionCallingConfig": {"mode": MODES[choice]}}} if choice else {}


@lru_cache(maxsize=1024)
def _tool(tool: ToolDefinition) -> Mapping[str, Any]:
    parameters = {"type": "object"} | sanitize_schema(tool.parameters)
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": parameters}


def _contents(messages: Sequence[Message], *, signing: bool) -> list[dict[str, Any]]:
    """Return the contents of user and model in turn. Empty parts are left out, since Gemini refuses them."""
    contents: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for message in messages:
        names |= {call.id: call.name for call in message.tool_calls or ()}
        parts = _message_parts(message, names, signing=signing)
        role = "model" if message.role == "assistant" else "user"
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"] += parts
        elif parts:
            contents.append({"role": role, "parts": parts})
    return contents


def _message_parts(message: Message, names: Mapping[str, str], *, signing: bool) -> list[dict[str, Any]]:
    match message.role:
        case "system":
            return []
        case "user":
            return _parts(message.content)
        case "tool":
            return _result(message, names)
        case "assistant":
            return [*_answer_parts(message), *_call_parts(message, signing=signing)]


def _parts(content: str | Sequence[Part]) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"text": content}] if content else []
    return [_part(part) for part in content if not isinstance(part, TextPart) or part.text]


def _part(part: Part) -> dict[str, Any]:
    if not isinstance(part, TextPart):
        media_type = "text/plain" if part.media_type == "text/markdown" else part.media_type
        return {"inlineData": {"mimeType": media_type, "data": part.data}}
    return {"text": part.text}


def _result(message: Message, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a tool's result: an object by rule, whose `output` is the tool's text, followed by its images."""
    call_id = message.tool_call_id or ""
    response = {"name": names.get(call_id) or message.name or "", "response": {"output": message.text}}
    return [{"functionResponse": _id(call_id) | response}, *map(_part, message.images)]


def _id(call_id: str) -> dict[str, Any]:
    """Return the id of a call that a provider gave; ours repeat in every answer."""
    return {} if OUR_ID.fullmatch(call_id) else {"id": call_id}


def _answer_parts(message: Message) -> list[dict[str, Any]]:
    """Return the thoughts and the text of the model.

    A signature belongs to the text it came with, the last of its kind, and is left out with a text that is gone.
    """
    signed = [dict(block["part"]) for block in opaque_blocks(message) if "part" in block]
    if not signed or not isinstance(message.content, str):
        return _parts(message.content)
    rest, backwards = message.content, []
    for part in reversed([part for part in signed if not part.get("thought")]):
        start = rest.rfind(part["text"])
        if start >= 0:
            backwards += [*_parts(rest[start + len(part["text"]) :]), part]
            rest = rest[:start]
    return [*(part for part in signed if part.get("thought")), *_parts(rest), *reversed(backwards)]


def _call_parts(message: Message, *, signing: bool) -> Iterator[dict[str, Any]]:
    signatures = {block["call"]: block["signature"] for block in opaque_blocks(message) if "call" in block}
    for number, call in enumerate(message.tool_calls or ()):
        missing = FROM_ANOTHER_MODEL if signing and number == 0 else ""
        signature = signatures.get(call.id, missing)
        yield _call(call) | ({"thoughtSignature": signature} if signature else {})


def _call(call: ToolCall) -> dict[str, Any]:
    return {"functionCall": _id(call.id) | {"name": call.name, "args": call.arguments}}
