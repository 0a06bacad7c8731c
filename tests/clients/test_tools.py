"""Tools of a program: the definition of a function, its arguments, and the results that go back."""

import asyncio
import threading
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest

from portico_client import AsyncClient, Client, Tool
from portico_client.tools import run_in_turn, tool_of
from tests.support.scripted_provider import ScriptedService, answered, scripted_service

PAIR = (("c1", "lookup", {"key": "a"}), ("c2", "lookup", {"key": "b"}))


class Unit(Enum):
    CELSIUS = "C"
    KELVIN = "K"


@dataclass
class Place:
    city: str
    unit: Unit = Unit.CELSIUS


class Options(TypedDict):
    deep: bool
    note: NotRequired[str]


def forecast(place: Place, days: Annotated[int, "From today."], mode: Literal["short", "long"] = "short") -> Place:
    """Tell the weather.

    Not for the model.
    """
    assert days > 0, "days must be above 0"
    return Place(f"{place.city} {days} {mode}", place.unit)


def call_of(tool: str, arguments: dict[str, Any]) -> Any:
    return {"suspension_id": "s", "kind": "client_tool", "tool_id": tool, "value": arguments}


def result_of(function: Any, arguments: dict[str, Any]) -> Any:
    tool = tool_of(function)
    [answer] = run_in_turn({tool.name: tool}, [call_of(tool.name, arguments)])
    return answer["payload"]


def test_a_signature_and_a_docstring_describe_a_function() -> None:
    tool = tool_of(forecast)
    assert (tool.name, tool.description) == ("forecast", "Tell the weather.")
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "place": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "K"]}},
                "required": ["city"],
                "additionalProperties": False,
            },
            "days": {"type": "integer", "description": "From today."},
            "mode": {"enum": ["short", "long"]},
        },
        "required": ["place", "days"],
        "additionalProperties": False,
    }


def test_other_types_have_schemas_too() -> None:
    def tool(a: list[int], b: dict[str, float], c: str | None, d: Options, e: Any = None) -> None: ...

    properties = tool_of(tool).parameters["properties"]
    assert properties["a"] == {"type": "array", "items": {"type": "integer"}}
    assert properties["b"] == {"type": "object", "additionalProperties": {"type": "number"}}
    assert properties["c"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert properties["d"]["required"] == ["deep"]
    assert properties["e"] == {}


def test_what_has_no_json_or_no_type_is_refused() -> None:
    def untyped(a) -> None: ...

    def foreign(a: complex) -> None: ...

    def open_ended(*a: int) -> None: ...

    for function, message in ((untyped, "must have a type"), (foreign, "complex"), (open_ended, "with a name")):
        with pytest.raises(TypeError, match=message):
            tool_of(function)


def test_a_function_gets_values_of_its_types_and_its_result_is_json() -> None:
    arguments = {"place": {"city": "Rome", "unit": "K"}, "days": 2, "mode": "long"}
    assert result_of(forecast, arguments) == {"result": {"city": "Rome 2 long", "unit": "K"}}


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        ({"place": {"city": "Rome"}, "days": 0}, "AssertionError: days must be above 0"),
        ({"place": {"city": "Rome"}, "days": True}, "TypeError: expected int, got true"),
        ({"place": {"city": "Rome", "unit": "F"}, "days": 1}, "ValueError: 'F' is not a valid"),
        ({"place": {}, "days": 1}, "TypeError: "),
        ({"place": {"city": "Rome"}, "days": 1, "mode": "odd"}, "ValueError: "),
        ({"place": {"city": "Rome"}, "days": 1, "other": 1}, "KeyError: "),
        ({}, "TypeError: "),
    ],
)
def test_the_model_reads_what_fails(arguments: dict[str, Any], result: str) -> None:
    payload = result_of(forecast, arguments)
    assert payload["is_error"]
    assert payload["result"].startswith(result)


@pytest.mark.parametrize("result", [float("nan"), object(), {1, 2}])
def test_a_result_that_is_no_json_is_an_error(result: Any) -> None:
    tool = Tool("odd", "", {"type": "object"}, lambda: result)
    [answer] = run_in_turn({"odd": tool}, [call_of("odd", {})])
    assert answer["payload"]["is_error"]


def results(scripted: ScriptedService) -> list[str]:
    """Return the results that the model reads."""
    return [each["content"] for each in scripted.sent_messages() if each["role"] == "tool"]


async def test_calls_of_an_event_loop_run_side_by_side_and_once_each() -> None:
    both = asyncio.Barrier(2)
    called = []

    async def lookup(key: str) -> str:
        """Look up a key."""
        called.append(key)
        await both.wait()
        return key.upper()

    async with (
        scripted_service(answered("", *PAIR), answered("Found.")) as scripted,
        AsyncClient(scripted.served.url) as client,
    ):
        response = await client.run("Look", tools=[lookup])
    assert (response["content"], sorted(called)) == ("Found.", ["a", "b"])
    assert results(scripted) == ["A", "B"]


async def test_the_blocking_client_runs_tools_of_the_service_and_its_own_and_asks_a_person() -> None:
    threads = set()

    def lookup(key: str) -> str:
        threads.add(threading.current_thread())
        raise LookupError(f"no {key}")

    scripts = (
        answered("", ("c1", "lookup", {"key": "a"}), ("c2", "ask_person", {"question": "May I?"})),
        answered("Done."),
    )
    async with scripted_service(*scripts) as scripted:

        def play() -> Any:
            with Client(scripted.served.url) as client:
                return client.run(
                    [{"role": "user", "content": "Look"}],
                    tools=[lookup, "ask_person"],
                    on_suspension=lambda suspension: f"yes to {suspension['kind']}",
                )

        response = await asyncio.to_thread(play)
    assert response["content"] == "Done."
    assert len(threads) == 1
    texts = results(scripted)
    assert "LookupError: no a" in texts[0]
    assert "yes to question" in texts[1]


async def test_a_call_without_an_answer_leaves_the_execution_suspended() -> None:
    def other() -> None: ...

    scripts = (answered("", ("c1", "ask_person", {"question": "May I?"})),)
    async with scripted_service(*scripts) as scripted, AsyncClient(scripted.served.url) as client:
        asked = []

        def leave_open(suspension: Any) -> None:
            asked.append(suspension["tool_id"])

        response = await client.run("Ask", tools=[other, "ask_person"], on_suspension=leave_open)
    assert (response["state"], asked) == ("SUSPENDED", ["ask_person"])
