"""Requests to Bedrock's Converse API, except for the conversation itself.

Options go where the API has them: a few beside the conversation, all others to the model, as
`additionalModelRequestFields`. A level of reasoning goes there, too, to Claude alone: each other model has words of its
own. A parameter that Claude refuses beside another one is left out, as at Anthropic. There is no choice `none`: a
request without tools means the same.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import orjson

from portico.adapters.engines.bedrock.turns import Turn, answer_began_with_reasoning, build_turns, safe_name
from portico.adapters.engines.claude_levels import ClaudeThinking, claude_thinking
from portico.adapters.engines.claude_sampling import refuses_temperature, refuses_top_p
from portico.adapters.engines.unsupported import translated_hints
from portico.domain.contract.request import ExecutionHints, NamedTool
from portico.domain.model_call import EngineCall
from portico.domain.tools import ToolDefinition
from portico.ports.model import EngineProfile

PARAMETER_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "max_tokens": "maxTokens",
        "temperature": "temperature",
        "top_p": "topP",
        "stop": "stopSequences",
        "tool_choice": "toolChoice",
    }
)
TOP_LEVEL_OPTIONS: Final = frozenset(
    {"guardrailConfig", "outputConfig", "performanceConfig", "requestMetadata", "serviceTier"}
)
"""Options that are not for the model."""
TOOL_CHOICES: Final[Mapping[str, str]] = MappingProxyType({"auto": "auto", "required": "any"})
FORCED_CHOICES: Final = frozenset({"any", "tool"})
CACHE_POINT: Final[Mapping[str, Any]] = MappingProxyType({"cachePoint": {"type": "default"}})
CLAUDE: Final = "claude"
MIN_RESERVE: Final = 4096


def build_request(call: EngineCall, profile: EngineProfile) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the body of a request, streamed or not, and `hints.reasoning` if it has not that level."""
    options = {key: value for key, value in call.hints.options.items() if key in profile.options}
    body: dict[str, Any] = {key: value for key, value in options.items() if key in TOP_LEVEL_OPTIONS}
    offers_tools = bool(call.tools) and call.hints.tool_choice != "none"
    system, turns = build_turns(call.messages, offers_tools=offers_tools)
    if offers_tools:
        body["toolConfig"] = {"tools": [_tool(tool) for tool in call.tools], **_choice(call.hints)}
    if call.schema is not None:
        body["outputConfig"] = {**body.get("outputConfig", {}), "textFormat": _format(call.schema)}
    extra = {key: value for key, value in options.items() if key not in TOP_LEVEL_OPTIONS}
    level = _level(call, extra, profile)
    if "thinking" in extra and not _may_think(extra["thinking"], body, turns):
        del extra["thinking"]
        level = None
    if level is not None and level.effort is not None:
        extra["output_config"] = {**_members(extra.get("output_config")), "effort": level.effort}
    thinking: Any = extra.get("thinking")
    if call.shows_reasoning and _thinks(thinking):
        extra["thinking"] = {"display": "summarized"} | thinking
    if extra:
        body["additionalModelRequestFields"] = extra
    config = _config(call, profile, thinking, level)
    if config:
        body["inferenceConfig"] = config
    if call.cache_key is not None:
        _mark_caches(system, turns)
    is_exact = call.hints.reasoning is None or (level is not None and level.is_exact)
    whole = body | ({"system": system} if system else {}) | {"messages": turns}
    return whole, () if is_exact else ("hints.reasoning",)


def _level(call: EngineCall, extra: dict[str, Any], profile: EngineProfile) -> ClaudeThinking | None:
    """Put the thinking of the level among the fields of the model, and return it.

    None if there is none, if the model is another than Claude, or if an option replaces it.
    """
    model = profile.known_as or profile.model
    if CLAUDE not in model or "thinking" in extra or "effort" in _members(extra.get("output_config")):
        return None
    level = claude_thinking(call, model, _answer_tokens(call.hints, profile))
    if level is not None:
        extra["thinking"] = level.thinking
    return level


def _members(option: Any) -> Mapping[str, Any]:
    return option if isinstance(option, dict) else {}


def _answer_tokens(hints: ExecutionHints, profile: EngineProfile) -> int:
    return hints.max_tokens or profile.response_reserve or MIN_RESERVE


def _mark_caches(system: list[dict[str, Any]], turns: list[Turn]) -> None:
    """Add a cache point behind the system prompt, which has the tools before it, and behind the conversation."""
    if system:
        system.append(dict(CACHE_POINT))
    if turns:
        turns[-1]["content"].append(dict(CACHE_POINT))


def _choice(hints: ExecutionHints) -> dict[str, Any]:
    choice = hints.tool_choice
    if isinstance(choice, NamedTool):
        return {"toolChoice": {"tool": {"name": safe_name(choice.name)}}}
    return {"toolChoice": {TOOL_CHOICES[choice]: {}}} if choice else {}


@lru_cache(maxsize=1024)
def _tool(tool: ToolDefinition) -> Mapping[str, Any]:
    description = {"description": tool.description} if tool.description else {}
    schema = {"json": {"type": "object", **tool.parameters}}
    return {"toolSpec": {"name": safe_name(tool.name), **description, "inputSchema": schema}}


def _format(schema: Mapping[str, Any]) -> dict[str, Any]:
    described = {"schema": orjson.dumps(dict(schema)).decode(), "name": "answer"}
    return {"type": "json_schema", "structure": {"jsonSchema": described}}


def _thinks(thinking: Any) -> bool:
    return isinstance(thinking, dict) and thinking.get("type") != "disabled"


def _may_think(thinking: Any, body: Mapping[str, Any], turns: list[Turn]) -> bool:
    """Tell whether Claude takes the option here. It refuses where a call is forced."""
    if not _thinks(thinking):
        return True
    forced = not FORCED_CHOICES.isdisjoint(body.get("toolConfig", {}).get("toolChoice", {}))
    return not forced and (thinking.get("type") != "enabled" or answer_began_with_reasoning(turns))


def _config(call: EngineCall, profile: EngineProfile, thinking: Any, level: ClaudeThinking | None) -> dict[str, Any]:
    """Return sampling and the limit of the answer. Only Claude always gets one: others have their own."""
    hints, model = call.hints, profile.known_as or profile.model
    stops = [hints.stop] if isinstance(hints.stop, str) else hints.stop or ()
    config = translated_hints(hints, PARAMETER_NAMES) | {"stopSequences": [stop for stop in stops if stop.strip()]}
    if CLAUDE in model:
        config |= _claude_config(hints, profile, thinking)
        if level is not None:
            tokens = _answer_tokens(hints, profile)
            config["maxTokens"] = tokens if call.is_limited else tokens + level.budget
    return {key: value for key, value in config.items() if value not in (None, [])}


def _claude_config(hints: ExecutionHints, profile: EngineProfile, thinking: Any) -> dict[str, Any]:
    model, thinks = profile.known_as or profile.model, _thinks(thinking)
    changed: dict[str, Any] = {}
    if refuses_temperature(model, thinks=thinks):
        changed["temperature"] = None
    if refuses_top_p(hints, model, thinks=thinks):
        changed["topP"] = None
    if hints.max_tokens is None:
        budget = thinking.get("budget_tokens") if thinks else None
        changed["maxTokens"] = _answer_tokens(hints, profile) + (budget if type(budget) is int else 0)
    return changed
