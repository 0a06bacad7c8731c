"""An MCP server over standard input and output that misbehaves on request; a program of its own, without a library.

Its argument is a behaviour: `older` and `modern` are protocols, `silent` never answers `tools/list`, `garbage` writes
no JSON, `many` lists 200 tools, `stubborn` ignores the end of its input and SIGTERM.
"""

import json
import os
import signal
import sys
from typing import Any

BEHAVIOUR = sys.argv[1] if len(sys.argv) > 1 else "older"
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
tools: list[dict[str, Any]] = [
    {"name": "echo", "description": "Return the text.", "inputSchema": TEXT, "annotations": {"readOnlyHint": True}},
    {"name": "write", "description": "W.", "inputSchema": NOTHING, "annotations": {"openWorldHint": False}},
    {"name": "refuse", "description": "Fail.", "inputSchema": NOTHING},
    {"name": "die", "description": "End the server.", "inputSchema": NOTHING},
    {"name": "flood", "description": "Write a line without an end.", "inputSchema": NOTHING},
    {"name": "hang", "description": "Never return.", "inputSchema": NOTHING},
    {"name": "work", "description": "Say how far it is.", "inputSchema": NOTHING},
    {"name": "grow", "description": "Add a tool.", "inputSchema": NOTHING},
    {"name": "ask", "description": "Ask the user.", "inputSchema": NOTHING},
    {"name": "environment", "description": "Show variables.", "inputSchema": NOTHING},
    {"name": "bad.name/é", "description": "Poisoned\x1b[2J\x00 text.", "inputSchema": NOTHING},
]
if BEHAVIOUR == "many":
    tools += [{"name": f"tool_{number:03}", "description": "T.", "inputSchema": NOTHING} for number in range(200)]


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(value: str, *, is_error: bool = False) -> dict[str, Any]:
    result: dict[str, Any] = {"content": [{"type": "text", "text": value}], "isError": is_error}
    return result | ({"resultType": "complete"} if BEHAVIOUR == "modern" else {})


def answer_of_user() -> dict[str, Any]:
    send(id="q", method="elicitation/create", params={"message": "Sure?", "requestedSchema": NOTHING})
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == "q":
            found: dict[str, Any] = message
            return found
    raise SystemExit


def call(name: str, arguments: dict[str, Any], params: dict[str, Any]) -> dict[str, Any] | None:
    if name == "hang":
        return None
    if name == "ask":
        return ask(params) if BEHAVIOUR == "modern" else text(json.dumps(answer_of_user().get("result")))
    if name == "work":
        token = (params.get("_meta") or {}).get("progressToken")
        if token is not None:
            report = {"progressToken": token, "progress": 3, "total": 4, "message": "page 3 of 4"}
            send(method="notifications/progress", params=report)
    if name == "grow":
        tools.append({"name": "late", "description": "Came late.", "inputSchema": NOTHING})
        send(method="notifications/tools/list_changed")
    if name == "die":
        os._exit(3)
    if name == "environment":
        return text(json.dumps({**os.environ, "home": os.listdir(os.environ["HOME"]), "PID": os.getpid()}))
    if name == "flood":
        sys.stdout.write("x" * (40 * 1024 * 1024))
        sys.stdout.flush()
    if name == "refuse":
        return text("there is no such order", is_error=True)
    return text(f"\x1b[1m{arguments.get('text', name)}")


def ask(params: dict[str, Any]) -> dict[str, Any]:
    """Ask two questions, one after the other, and return both answers."""
    answers = params.get("inputResponses")
    if answers is None:
        return required("first", "Which size?", "state-1")
    if params.get("requestState") == "state-1":
        return required("second", "Which colour?", "state-2:" + json.dumps(answers))
    return text(f"{params['requestState']} {json.dumps(answers)}")


def required(key: str, question: str, state: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"value": {"type": "string"}}}
    request = {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": question, "requestedSchema": schema},
    }
    return {"resultType": "input_required", "inputRequests": {key: request}, "requestState": state}


def handle(message: dict[str, Any]) -> None:
    method, number = message.get("method"), message.get("id")
    params = message.get("params") or {}
    capabilities = {"tools": {"listChanged": True}}
    who = {"name": "test", "version": "1"}
    if method == "initialize":
        send(id=number, result={"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": who})
    elif method == "server/discover" and BEHAVIOUR == "modern":
        found = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "serverInfo": who}
        send(id=number, result={**found, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"})
    elif method == "tools/list":
        if BEHAVIOUR != "silent":
            send(id=number, result={"tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"})
    elif method == "tools/call":
        result = call(params["name"], params.get("arguments") or {}, params)
        if result is not None:
            send(id=number, result=result)
    elif number is not None and method is not None:
        send(id=number, error={"code": -32601, "message": "Method not found"})


if __name__ == "__main__":
    sys.stderr.write("starting with hunter2\n")
    sys.stderr.flush()
    if BEHAVIOUR == "garbage":
        sys.stdout.write("this is no JSON\x00" * 100 + "\n")
    if BEHAVIOUR == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for row in sys.stdin:
        handle(json.loads(row))
    while BEHAVIOUR == "stubborn":
        signal.pause()
