"""A service whose only engine is a provider that plays a script in the words of chat completions."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson

from portico.bootstrap.service import Service
from portico.settings import Secret
from tests.support.http_server import RunningServer
from tests.support.portico import portico
from tests.support.upstream import Script, ScriptedUpstream, UpstreamAction, event, event_stream, reply

Call = tuple[str, str, Mapping[str, Any]]
"""Id, name and arguments of a call."""
USAGE = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25, "prompt_tokens_details": {"cached_tokens": 8}}


@dataclass(frozen=True)
class ScriptedService:
    """A service, and the provider behind it."""

    served: RunningServer
    service: Service
    provider: ScriptedUpstream

    def sent_messages(self, number: int = -1) -> list[dict[str, Any]]:
        """Return the messages that the provider got with that request."""
        found: list[dict[str, Any]] = self.provider.requests[number].json()["messages"]
        return found


@asynccontextmanager
async def scripted_service(*scripts: Script, **tables: Any) -> AsyncIterator[ScriptedService]:
    """Run a service with this provider, which plays one script a request."""
    async with ScriptedUpstream(*scripts) as provider:
        engine = {"model": "openai://scripted", "base_url": provider.url, "api_key_env": Secret("k")}
        async with portico(engines={"primary": engine}, **tables) as (served, service):
            yield ScriptedService(served, service, provider)


def answered(text: str = "", *calls: Call, finish: str | None = None) -> Script:
    """Return a whole answer with this text and these calls."""
    made = [_call(call) for call in calls]
    message = {"role": "assistant", "content": text or None, **({"tool_calls": made} if made else {})}
    choice = {"index": 0, "message": message, "finish_reason": finish or ("tool_calls" if made else "stop")}
    return reply({"choices": [choice], "usage": USAGE, "model": "scripted"})


def streamed(text: str = "", *calls: Call, finish: str | None = None, broken: UpstreamAction | None = None) -> Script:
    """Return the same answer as a stream with a chunk for each word; one that is `broken` ends so behind them."""
    words = [word + " " for word in text.split(" ")[:-1]] + text.split(" ")[-1:] if text else []
    chunks: list[Any] = [_chunk({"content": word}) for word in words]
    chunks += [_chunk({"tool_calls": [{"index": number, **_call(call)}]}) for number, call in enumerate(calls)]
    if broken is None:
        chunks += [_chunk({}, finish or ("tool_calls" if calls else "stop")), {"choices": [], "usage": USAGE}, "[DONE]"]
        return event_stream(*map(event, chunks))
    return [*event_stream(*map(event, chunks), end=False), broken]


def _chunk(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"model": "scripted", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _call(call: Call) -> dict[str, Any]:
    call_id, name, arguments = call
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": orjson.dumps(arguments).decode()},
    }


def folded_message(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the message that the events of a stream of Messages fold to."""
    message: dict[str, Any] = {}
    for each in events:
        match each["type"]:
            case "message_start":
                message = {**each["message"]}
            case "content_block_start":
                assert each["index"] == len(message["content"])
                message["content"] = [*message["content"], {**each["content_block"], "json": ""}]
            case "content_block_delta":
                _extend(message["content"][each["index"]], each["delta"])
            case "content_block_stop":
                block = message["content"][each["index"]]
                written = block.pop("json")
                if block["type"] == "tool_use":
                    block["input"] = orjson.loads(written)
            case "message_delta":
                rest = {name: value for name, value in each.items() if name not in {"type", "delta"}}
                message |= each["delta"] | rest
    return message


def _extend(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    name = {"text_delta": "text", "input_json_delta": "json"}[delta["type"]]
    block[name] += delta["text" if name == "text" else "partial_json"]
