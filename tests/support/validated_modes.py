"""Requests, replies and runs of the modes that validate an answer."""

import json
from collections.abc import Mapping
from typing import Any

from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import SystemResponse
from portico.domain.lifecycle import Mode
from portico.orchestration.patterns.agent_loop import agent_loop
from portico.orchestration.patterns.redundant_loop import redundant_loop
from portico.orchestration.patterns.specialized_loop import specialized_loop
from portico.ports.journal import ExecutionHistory
from portico.ports.model import EngineCapabilities
from tests.support.harness import Harness, chat_request, replay_offline
from tests.support.judges import judgement
from tests.support.recovery import is_complete_log, open_starts

NATIVE = EngineCapabilities(schema=True, schema_with_tools=True, grammar=True)
PATTERNS: Mapping[Mode, Any] = {
    Mode.CHAT: agent_loop,
    Mode.STRUCTURED: specialized_loop,
    Mode.REDUNDANT: redundant_loop,
}
SHORT = {"type": "length", "max": 5}
ROLL = {"tool_calls": [{"name": "roll_dice", "arguments": {"count": 1, "sides": 6}}]}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
YES, NO = judgement(score=0.9), judgement("It is no city.", "It is rude.", valid=False, score=0.25)


async def run(world: Harness, request: SystemRequest) -> tuple[SystemResponse, ExecutionHistory]:
    """Return the response and the history, which replays identically."""
    pattern = PATTERNS[request.mode]
    response, record = await world.run(request, pattern)
    assert replay_offline(record, pattern) == len(record.steps)
    assert is_complete_log(record)
    assert open_starts(record.events) == []
    return response, record


def chat(output: dict[str, Any], **fields: Any) -> SystemRequest:
    return chat_request("Which city?", output=output, **fields)


def structured(output: dict[str, Any], **fields: Any) -> SystemRequest:
    return chat_request("Which city?", mode=Mode.STRUCTURED, output={"schema": CITY} | output, **fields)


def city(name: str) -> dict[str, Any]:
    return {"text": json.dumps({"city": name})}
