"""Requests and replies of structured mode."""

import json
from typing import Any

from portico.domain.contract.request import SystemRequest
from portico.domain.lifecycle import Mode
from portico.ports.model import EngineCapabilities
from tests.support.harness import chat_request

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "size": {"enum": ["small", "large"]}},
    "required": ["city", "size"],
}
GOOD = {"city": "Köln", "size": "large"}
NATIVE = EngineCapabilities(schema=True, schema_with_tools=True, grammar=True)
ROLL = {"tool_calls": [{"name": "roll_dice", "arguments": {"count": 1, "sides": 6}}]}


def said(value: Any) -> dict[str, Any]:
    return {"text": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}


def asking(output: dict[str, Any], **fields: Any) -> SystemRequest:
    return chat_request("Which city?", mode=Mode.STRUCTURED, output=output, **fields)
