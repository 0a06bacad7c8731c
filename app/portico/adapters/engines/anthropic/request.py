"""Requests to Anthropic's Messages API, except for the conversation itself.

`max_tokens` is obligatory: without a hint it is the engine's response reserve, and a thinking budget on top, since
thinking counts against it. A parameter that the model refuses beside another one is left out: a seed always, sampling
beside thinking or where the model samples by itself, `top_p` beside a temperature, thinking where a call is forced or
where it continues an answer that began without a thought. A value out of range is sent, so that the API refuses it in
its own words.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from portico.adapters.engines.anthropic.schemas import decoder_schema
from portico.adapters.engines.anthropic.turns import Turn, answer_began_with_thinking, build_turns
from portico.adapters.engines.claude_levels import ClaudeThinking, claude_thinking
from portico.adapters.engines.claude_sampling import refuses_temperature, refuses_top_p
from portico.adapters.engines.unsupported import translated_hints
from portico.domain.contract.request import ExecutionHints, NamedTool
from portico.domain.model_call import EngineCall
from portico.domain.tools import ToolDefinition
from portico.ports.model import EngineProfile

PARAMETER_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "max_tokens": "max_tokens",
        "temperature": "temperature",
        "top_p": "top_p",
        "stop": "stop_sequences",
        "tool_choice": "tool_choice",
    }
)
TOOL_CHOICES: Final[Mapping[str, str]] = MappingProxyType({"auto": "auto", "none": "none", "required": "any"})
FORCED_CHOICES: Final = ("any", "tool")
MIN_RESERVE: Final = 4096
CACHED: Final[Mapping[str, str]] = {"type": "ephemeral"}
"""The mark of the end of a cached prefix; at the top level it is that of the last block that can have one."""


def build_request(call: EngineCall, profile: EngineProfile) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the body of a request, without its `stream`, and `hints.reasoning` if it has not that level."""
    hints, model = call.hints, profile.known_as or profile.model
    body: dict[str, Any] = {key: value for key, value in hints.options.items() if key in profile.options}
    system, turns = build_turns(call.messages, model)
    body |= {"model": profile.model, "messages": turns}
    if system:
        body["system"] = system if call.cache_key is None else [_cached_text(system)]
    if call.cache_key is not None:
        body.setdefault("cache_control", CACHED)
    if call.tools:
        body["tools"] = [_tool(tool) for tool in call.tools]
        body |= _choice(hints)
    answer_tokens = hints.max_tokens or profile.response_reserve or MIN_RESERVE
    level = _level(call, body, model, answer_tokens)
    if "thinking" in body and not _may_think(body["thinking"], body.get("tool_choice"), turns):
        del body["thinking"]
        level = None
    if level is not None and level.effort is not None:
        body["output_config"] = {**_members(body.get("output_config")), "effort": level.effort}
    if call.schema is not None:
        body["output_config"] = _output_config(body.get("output_config"), call.schema)
    thinking: Any = body.get("thinking")
    if call.shows_reasoning and _thinks(thinking):
        body["thinking"] = {"display": "summarized"} | thinking
    body |= _sampling(hints, model, thinks=_thinks(thinking))
    body["max_tokens"] = _max_tokens(call, thinking, level, answer_tokens)
    is_exact = hints.reasoning is None or (level is not None and level.is_exact)
    return body, () if is_exact else ("hints.reasoning",)


def _level(call: EngineCall, body: dict[str, Any], model: str, answer_tokens: int) -> ClaudeThinking | None:
    """Put the thinking of the level into the body, and return it; None if there is none or an option replaces it."""
    if "thinking" in body or "effort" in _members(body.get("output_config")):
        return None
    level = claude_thinking(call, model, answer_tokens)
    if level is not None:
        body["thinking"] = level.thinking
    return level


def _max_tokens(call: EngineCall, thinking: Any, level: ClaudeThinking | None, answer_tokens: int) -> int:
    """Return the tokens of answer and thoughts; a budget that an option gives is within those of the hint."""
    if level is not None:
        return answer_tokens if call.is_limited else answer_tokens + level.budget
    return answer_tokens if call.hints.max_tokens else answer_tokens + _budget(thinking)


def _members(option: Any) -> Mapping[str, Any]:
    return option if isinstance(option, dict) else {}


def _cached_text(text: str) -> dict[str, Any]:
    """Return a block behind which the tools and this text are cached, also for conversations that go on otherwise."""
    return {"type": "text", "text": text, "cache_control": CACHED}


def _choice(hints: ExecutionHints) -> dict[str, Any]:
    choice = hints.tool_choice
    if isinstance(choice, NamedTool):
        return {"tool_choice": {"type": "tool", "name": choice.name}}
    return {"tool_choice": {"type": TOOL_CHOICES[choice]}} if choice else {}


@lru_cache(maxsize=1024)
def _tool(tool: ToolDefinition) -> Mapping[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": {"type": "object", **tool.parameters}}


def _output_config(option: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the output configuration: the schema, and an option's other members, such as the effort."""
    format_ = {"type": "json_schema", "schema": decoder_schema(schema)}
    return {**option, "format": format_} if isinstance(option, dict) else {"format": format_}


def _thinks(thinking: Any) -> bool:
    return isinstance(thinking, dict) and thinking.get("type") != "disabled"


def _may_think(thinking: Any, choice: Any, turns: list[Turn]) -> bool:
    """Tell whether the API takes the option here. It refuses, or does not think, where a call is forced."""
    if not _thinks(thinking):
        return True
    forced = isinstance(choice, dict) and choice.get("type") in FORCED_CHOICES
    return not forced and (thinking.get("type") != "enabled" or answer_began_with_thinking(turns))


def _budget(thinking: Any) -> int:
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    return budget if isinstance(budget, int) and budget > 0 else 0


def _sampling(hints: ExecutionHints, model: str, *, thinks: bool) -> dict[str, Any]:
    stops = [hints.stop] if isinstance(hints.stop, str) else hints.stop or ()
    sampling = translated_hints(hints, PARAMETER_NAMES) | {
        "stop_sequences": [stop for stop in stops if stop.strip()] or None
    }
    if refuses_temperature(model, thinks=thinks):
        sampling["temperature"] = None
    if refuses_top_p(hints, model, thinks=thinks):
        sampling["top_p"] = None
    return {key: value for key, value in sampling.items() if value is not None}
