"""Examples of every operation, which the rehearsal engine can answer.

Together they are one conversation with a new service: in this order each gets the status that it names.
"""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any

from portico.domain.value import value


@value
class OperationExample:
    """One request: its parameters by name, its body, and the status of its response."""

    summary: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    status: int = 200


def _user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


_DICE: Mapping[str, str] = MappingProxyType({"request_id": "dice"})
_GAMES: Mapping[str, str] = MappingProxyType({"session_id": "games"})
_ORDERS: Mapping[str, str] = MappingProxyType({"name": "orders"})
_FILE: Mapping[str, str] = MappingProxyType({"session_id": "games", "path": "orders.csv"})
_NONE: Mapping[str, str] = MappingProxyType({"response_id": "resp_019ab3c0d4e87000a1b2c3d4e5f60718"})
_GUIDE: Mapping[str, str] = MappingProxyType({"document_id": "guide"})
_REPORT: Mapping[str, str] = MappingProxyType({"schedule_name": "report"})
_STRUCTURED: Mapping[str, Any] = MappingProxyType(
    {
        "messages": _user("How large is Ulm?"),
        "output": {
            "schema": {
                "type": "object",
                "required": ["size"],
                "properties": {"size": {"enum": ["small", "large"]}},
            }
        },
    }
)
EXAMPLES: Mapping[str, tuple[OperationExample, ...]] = MappingProxyType(
    {
        "getLiveness": (OperationExample("Check that the process lives"),),
        "getReadiness": (OperationExample("Check that work is accepted"),),
        "listTools": (OperationExample("See what tools there are"),),
        "listStepTypes": (OperationExample("See what step types a plan may have"),),
        "listAgents": (OperationExample("See what agents there are"),),
        "listSkills": (OperationExample("See what skills there are"),),
        "listEngines": (OperationExample("See what engines there are"),),
        "listFlows": (OperationExample("See what flows there are"),),
        "listPrompts": (OperationExample("See what the service itself asks models"),),
        "getFlow": (
            OperationExample("Show a flow, which a new service does not have", {"name": "approval"}, status=404),
        ),
        "listErrors": (OperationExample("See every error code"),),
        "listMachines": (OperationExample("See the state machines"),),
        "createChatCompletion": (
            OperationExample(
                "Ask as OpenAI's clients do", body={"model": "default", "messages": _user("Hello"), "portico": {}}
            ),
        ),
        "createResponse": (
            OperationExample("Ask as OpenAI's newer clients do", body={"model": "default", "input": "Hello"}),
        ),
        "getResponse": (OperationExample("Read an answer, which a new service does not have", _NONE, status=404),),
        "listResponseInputItems": (
            OperationExample("List what was sent for an answer, which a new service does not have", _NONE, status=404),
        ),
        "cancelResponse": (OperationExample("Cancel an answer, which a new service does not have", _NONE, status=404),),
        "deleteResponse": (OperationExample("Delete an answer, which a new service does not have", _NONE, status=404),),
        "createMessage": (
            OperationExample(
                "Ask as Anthropic's clients do",
                body={"model": "default", "max_tokens": 256, "messages": _user("Hello"), "portico": {}},
            ),
        ),
        "runAgUi": (
            OperationExample(
                "Run the default route as a page does",
                {"agent": "default"},
                body={
                    "threadId": "t-1",
                    "runId": "r-1",
                    "messages": [{"id": "m-1", **each} for each in _user("Hello")],
                },
            ),
        ),
        "countMessageTokens": (
            OperationExample("Count the tokens of a question", body={"model": "default", "messages": _user("Hello")}),
        ),
        "createEmbedding": (
            OperationExample(
                "Embed a text, for which a new service has no engine",
                body={"model": "embedder", "input": "Ulm has the tallest church."},
                status=404,
            ),
        ),
        "listModels": (OperationExample("See the names that `model` may have"),),
        "getModel": (OperationExample("Show one of them", {"model": "default"}),),
        "quote": (OperationExample("Ask what a request can cost", body={"messages": _user("Hello")}),),
        "execute": (
            OperationExample(
                "Roll dice in a session",
                body={**_DICE, **_GAMES, "messages": _user("Roll two dice with roll_dice, count 2, sides 6.")},
            ),
            OperationExample("Get a JSON value", body={"mode": "structured", **_STRUCTURED}),
            OperationExample("Vote among three answers", body={"mode": "redundant", **_STRUCTURED}),
            OperationExample(
                "Follow a plan",
                body={
                    "mode": "plan",
                    "messages": _user("Tell me of Ulm."),
                    "plan": {"steps": [{"name": "think", "type": "infer"}, {"name": "tell", "type": "infer"}]},
                },
            ),
            OperationExample(
                "Do not wait for the answer",
                {"Prefer": "respond-async"},
                {"request_id": "later", "messages": _user("Hello")},
                status=202,
            ),
            OperationExample(
                "Let a tool ask a person",
                body={"request_id": "question", "messages": _user('Use ask_person: "May I?"')},
                status=202,
            ),
        ),
        "listExecutions": (
            OperationExample("List the ten newest chats", {"mode": "chat", "limit": "10"}),
            OperationExample("List what has ended in a session", {"state": "COMPLETE,ERROR", "q": "games"}),
        ),
        "streamChanges": (OperationExample("Watch one session", {"session_id": "games"}),),
        "getExecution": (OperationExample("Show an execution", _DICE),),
        "getExecutionInput": (OperationExample("Show the request of an execution", _DICE),),
        "getExecutionTranscript": (OperationExample("Show the conversations of an execution", _DICE),),
        "listExecutionSteps": (
            OperationExample("Show the journal of an execution", _DICE),
            OperationExample("Show its first ten steps in brief", {**_DICE, "view": "summary", "limit": "10"}),
        ),
        "getFlowSnapshot": (
            OperationExample("Show where a flow stands; this is no flow", {"request_id": "dice"}, status=404),
        ),
        "streamExecutionEvents": (
            OperationExample("Read the events after the fifth", {**_DICE, "after": "5"}),
            OperationExample("Read only the tool calls", {**_DICE, "types": "tool.start,tool.end"}),
        ),
        "getExecutionTrace": (OperationExample("Summarise an execution", _DICE),),
        "replayExecution": (OperationExample("Replay an execution", _DICE),),
        "forkExecution": (OperationExample("Run an execution again from its start", _DICE, {"from_step": 0}),),
        "quoteFork": (
            OperationExample(
                "Ask what a fork can cost that takes another roll",
                _DICE,
                {"from_step": 2, "edits": [{"key": "1/0/0/0", "content": "Rolled 2d6: [1 1] (sum: 2)"}]},
            ),
        ),
        "cancelExecution": (OperationExample("Cancel an execution, which has ended here", _DICE),),
        "listSuspensions": (OperationExample("List the open questions"),),
        "resumeExecution": (
            OperationExample(
                "Answer a question", {"request_id": "question"}, {"tool_id": "ask_person", "payload": "yes"}
            ),
        ),
        "listGrants": (OperationExample("List what runs unasked"),),
        "revokeGrant": (OperationExample("Revoke a grant; a new service has none", {"grant_id": "0199"}, status=404),),
        "listSessions": (OperationExample("List the ten sessions used last", {"limit": "10"}),),
        "getSession": (OperationExample("Show a session", _GAMES),),
        "updateSession": (OperationExample("Keep a note with a session", _GAMES, {"state": {"topic": "dice"}}),),
        "listSessionMessages": (
            OperationExample("Read the first ten messages of a session", {**_GAMES, "limit": "10"}),
        ),
        "putDocument": (
            OperationExample(
                "Store a document", _GUIDE, {"text": "The church of Ulm is the tallest of all."}, status=201
            ),
        ),
        "listDocuments": (OperationExample("List the first ten documents", {"limit": "10"}),),
        "getDocument": (OperationExample("Show a document", _GUIDE),),
        "searchMemory": (OperationExample("Search the documents", body={"query": "Which church is the tallest?"}),),
        "listCredentials": (OperationExample("List the credentials of one's tools"),),
        "putCredential": (
            OperationExample(
                "Set a credential; a new service has none",
                {"credential_name": "tracker"},
                {"value": "the-token-of-the-tracker"},
                status=404,
            ),
        ),
        "deleteCredential": (
            OperationExample(
                "Delete a value; a new service has no credentials", {"credential_name": "tracker"}, status=404
            ),
        ),
        "putSchedule": (
            OperationExample(
                "Ask each morning of a working day",
                _REPORT,
                {
                    "cron": "0 8 * * 1-5",
                    "timezone": "Europe/Berlin",
                    "request": {"messages": _user("What happened yesterday?")},
                },
                status=201,
            ),
        ),
        "listSchedules": (OperationExample("List the first ten schedules", {"limit": "10"}),),
        "getSchedule": (OperationExample("Show a schedule", _REPORT),),
        "runSchedule": (OperationExample("Run a schedule now", _REPORT, status=202),),
        "listScheduleRuns": (OperationExample("List the last ten runs", {**_REPORT, "limit": "10"}),),
        "putFile": (OperationExample("Write a file; without `[tools.files]` sessions have none", _FILE, status=404),),
        "listFiles": (OperationExample("List the files of a session", _GAMES, status=404),),
        "getFile": (OperationExample("Fetch a file", _FILE, status=404),),
        "deleteFile": (OperationExample("Delete a file", _FILE, status=404),),
        "getStatistics": (
            OperationExample("Count the executions of the last hour by the minute", {"bucket": "minute"}),
        ),
        "getCaller": (OperationExample("See who calls and what it may do"),),
        "listKeys": (
            OperationExample(
                "List the ten newest keys; without authentication there are none", {"limit": "10"}, status=403
            ),
        ),
        "createKey": (
            OperationExample(
                "Make a key for a week; without authentication there are none",
                body={"user": "ann", "permissions": ["can_send_messages", "model:*"], "expires_days": 7},
                status=403,
            ),
        ),
        "revokeKey": (
            OperationExample(
                "Revoke a key; without authentication there are none", {"public_id": "6goluxXK"}, status=403
            ),
        ),
        "putWebhook": (
            OperationExample(
                "Make an endpoint that hears of ends and questions",
                _ORDERS,
                {
                    "url": "https://hooks.example/orders",
                    "events": ["execution.completed", "execution.failed", "execution.suspended"],
                },
                status=201,
            ),
        ),
        "listWebhooks": (OperationExample("List the endpoints"),),
        "getWebhook": (OperationExample("Show an endpoint", _ORDERS),),
        "rotateWebhookSecret": (OperationExample("Make a new secret", _ORDERS),),
        "testWebhook": (OperationExample("Send a test", _ORDERS, status=202),),
        "listDeliveries": (OperationExample("List the ten newest deliveries", {"limit": "10"}),),
        "retryDelivery": (
            OperationExample(
                "Send a delivery again; this one is not there",
                {"delivery_id": "msg_0123456789abcdef0123456789abcdef"},
                status=404,
            ),
        ),
        "deleteWebhook": (OperationExample("Delete an endpoint", _ORDERS, status=204),),
        "getUsage": (OperationExample("Add up what each model has taken", {"by": "model"}),),
        "getMetrics": (OperationExample("Read the metrics"),),
        "deleteSchedule": (OperationExample("Delete a schedule", _REPORT, status=204),),
        "deleteDocument": (OperationExample("Delete a document", _GUIDE, status=204),),
        "deleteExecution": (OperationExample("Delete an execution", {"request_id": "question"}, status=204),),
        "deleteSession": (
            OperationExample(
                "Delete a session, and the forks of its executions", {**_GAMES, "forks": "delete"}, status=204
            ),
        ),
    }
)
"""The examples by operation id."""


def add_examples(document: dict[str, Any]) -> None:
    """Add the examples to the operations of an API description."""
    for path in document["paths"].values():
        for operation in path.values():
            _add_to_operation(operation, EXAMPLES[operation["operationId"]])


def _add_to_operation(operation: dict[str, Any], examples: tuple[OperationExample, ...]) -> None:
    for parameter in operation.get("parameters", ()):
        values = [each.parameters[parameter["name"]] for each in examples if parameter["name"] in each.parameters]
        if values:
            parameter["example"] = int(values[0]) if parameter["schema"].get("type") == "integer" else values[0]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if body is not None:
        body["examples"] = {
            each.summary.lower().replace(" ", "-"): {"summary": each.summary, "value": each.body} for each in examples
        }
