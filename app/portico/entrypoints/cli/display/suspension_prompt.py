"""Open suspensions at a terminal: the question as one line, and the answer of a person as its payload."""

from collections.abc import Callable

import orjson
from pydantic import JsonValue

from portico.domain.contract.response import Suspension, SuspensionKind
from portico.domain.strict_json import StrictJsonError, loads
from portico.entrypoints.cli.display.terminal import printable

Ask = Callable[[str], str]
"""Asks one line of the person at the terminal."""


def describe_suspension(suspension: Suspension) -> str:
    """Return the tool and what it asks, without control characters."""
    return question_text(suspension.tool_id, suspension.value)


def question_text(tool: str, value: JsonValue) -> str:
    """Return the tool and the question of its value, without control characters."""
    return printable(f"{tool}: {_text(value)}")


def ask_person(suspension: Suspension, ask: Ask) -> JsonValue:
    """Return the payload that answers the suspension."""
    question = describe_suspension(suspension)
    match suspension.kind:
        case SuspensionKind.APPROVAL:
            decision = _choice(ask, f"{question} [approve/deny]", ("approve", "deny"))
            return {"decision": decision}
        case SuspensionKind.UNKNOWN_OUTCOME:
            decision = _choice(ask, f"{question} [happened/run/give_up]", ("happened", "run", "give_up"))
            result: dict[str, JsonValue] = {"result": ask("result")} if decision == "happened" else {}
            return {"decision": decision, **result}
        case SuspensionKind.QUESTION:
            return ask(question)
        case SuspensionKind.FLOW:
            return _json_or_text(ask(f"{question} [JSON]"))
        case SuspensionKind.AUTHORIZATION:
            decision = _choice(ask, f"{question} [authorized/deny]", ("authorized", "deny"))
            return {"decision": decision}
        case SuspensionKind.CLIENT_TOOL:
            return {"result": _json_or_text(ask(f"{question} [result as JSON]"))}


def _json_or_text(answer: str) -> JsonValue:
    try:
        value: JsonValue = loads(answer.encode())
    except StrictJsonError:
        return answer
    return value


def _choice(ask: Ask, question: str, choices: tuple[str, ...]) -> str:
    while (answer := ask(question).strip()) not in choices:
        pass
    return answer


def _text(value: JsonValue) -> str:
    """Return the question of a value that has one, else the value as JSON."""
    match value:
        case str():
            return value
        case {"question": str(question)}:
            return question
        case _:
            return orjson.dumps(value).decode()
