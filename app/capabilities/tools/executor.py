"""Runs one attempt at one tool call, whatever the tool does."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import anyio
import jsonschema_rs
import orjson

from app.capabilities.tools.definition import ToolArgumentError
from app.capabilities.tools.registry import ToolRegistry, tool_availability
from app.domain.contract.messages import UNREADABLE_ARGUMENTS, ToolCall
from app.domain.failures import Code, ConfigurationFailure
from app.domain.ids import IdempotencyKey
from app.domain.journal.outcomes import ToolCallSuspended, ToolEnded
from app.ports.runtime import Clock, Entropy
from app.ports.tool import Tool, ToolContext, ToolError, ToolSuspended

_FAULTS_NAMED = 5
_CUT_MARK = "\n[cut: the result was longer]"


@dataclass(frozen=True, slots=True)
class _Ending:
    content: str
    code: Code | None = None
    repeatable: bool = False
    """Whether the same call might go better a second time."""
    ran: bool = True
    asked: ToolSuspended | None = None


class ToolExecutor:
    """The one place where tools run.

    Promises that every attempt ends as a `ToolEnded`, or as a `ToolAsked` where the tool has a question, within the
    smaller of the tool's own timeout and the time left, with a text of at most `result_bytes` UTF-8 bytes, and that a
    cancellation is never swallowed. A second attempt is granted once, to an idempotent tool, where it may help: after
    a timeout only when the time for a whole second attempt is left.

    Raises: ConfigurationFailure (CONFIG_INVALID) for a tool whose parameters are no JSON Schema of their own.
    """

    def __init__(self, registry: ToolRegistry, clock: Clock, entropy: Entropy, result_bytes: int) -> None:
        self._registry = registry
        self._clock = clock
        self._entropy = entropy
        self._result_bytes = result_bytes
        self._validators = {tool.info().name: _validator(tool) for tool in registry.tools()}

    async def attempt(
        self, call: ToolCall, *, key: IdempotencyKey, attempt: int, seconds_left: float
    ) -> ToolEnded | ToolCallSuspended:
        """One attempt; `attempt` counts from 0, `key` is the call's idempotency key."""
        began = self._clock.monotonic()
        tool = self._registry.get(call.name)
        if tool is None:
            return self._ended(_Ending("There is no tool of that name.", Code.TOOL_NOT_FOUND, ran=False), began)
        ending = self._refusal(tool, call) or await self._run(tool, call, key, seconds_left)
        retry = ending.repeatable and attempt == 0 and tool.info().idempotent
        return self._ended(ending, began, retry=retry)

    def _ended(self, ending: _Ending, began: float, *, retry: bool = False) -> ToolEnded | ToolCallSuspended:
        duration_ms = (self._clock.monotonic() - began) * 1000
        if ending.asked is not None:
            return ToolCallSuspended(ending.asked.value, duration_ms)
        content = _cut(ending.content, self._result_bytes)
        return ToolEnded(content, ending.code is not None, ending.code, duration_ms, retry, ending.ran)

    def _refusal(self, tool: Tool, call: ToolCall) -> _Ending | None:
        found = tool_availability(tool)
        if not found.available:
            return _Ending(f"The tool cannot run right now: {found.reason}.", Code.TOOL_UNAVAILABLE, ran=False)
        if UNREADABLE_ARGUMENTS in call.arguments:
            return _refused("they are no JSON object")
        faults = _faults(self._validators[call.name], call.arguments)
        return _refused(faults) if faults else None

    async def _run(self, tool: Tool, call: ToolCall, key: IdempotencyKey, seconds_left: float) -> _Ending:
        own = tool.info().timeout
        limit = seconds_left if own is None else min(own, seconds_left)
        if limit <= 0:
            return _Ending("There was no time left for the tool.", Code.TOOL_TIMEOUT)
        context = ToolContext(call.id, limit, self._clock, self._entropy, key)
        with anyio.move_on_after(limit):
            return await _guarded(tool, call.arguments, context)
        whole_second = seconds_left - limit >= limit
        return _Ending(f"The tool did not finish within {limit:g} s.", Code.TOOL_TIMEOUT, repeatable=whole_second)


async def _guarded(tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> _Ending:
    try:
        text: object = await tool.execute(arguments, context)
        return _Ending(text) if isinstance(text, str) else _failed(f"it returned {type(text).__name__}, not text")
    except ToolArgumentError as error:
        return _refused(str(error))
    except ToolSuspended as question:
        return _Ending("", asked=question) if _is_json(question.value) else _failed("what it asks is no JSON")
    except ToolError as error:
        return _failed(str(error))
    except asyncio.CancelledError as stray:
        if _being_cancelled():
            raise
        return _failed(type(stray).__name__)
    except (Exception, SystemExit) as crash:  # noqa: BLE001 - other people's code: whatever it raises is its result
        return _failed(type(crash).__name__)


def _refused(faults: str) -> _Ending:
    return _Ending(f"The arguments were refused: {faults}.", Code.TOOL_EXECUTION_FAILED, ran=False)


def _failed(why: str) -> _Ending:
    return _Ending(f"The tool failed: {why}", Code.TOOL_EXECUTION_FAILED, repeatable=True)


def _is_json(value: object) -> bool:
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


def _being_cancelled() -> bool:
    """Whether somebody cancels us, rather than the tool having let out the cancellation of a task of its own."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _validator(tool: Tool) -> jsonschema_rs.Validator:
    """The tool's arguments are checked without fetching anything, by patterns that take linear time."""
    definition = tool.definition()
    try:
        return jsonschema_rs.validator_for(
            dict(definition.parameters), mask="the value", offline=True, pattern_options=jsonschema_rs.RegexOptions()
        )
    except ValueError as cause:
        message = f"the parameters of tool {definition.name} cannot be used: {_first_line(cause)}"
        raise ConfigurationFailure(Code.CONFIG_INVALID, message) from cause


def _faults(validator: jsonschema_rs.Validator, arguments: Mapping[str, Any]) -> str:
    """What is wrong, by path; empty when nothing is."""
    try:
        errors = list(islice(validator.iter_errors(arguments), _FAULTS_NAMED))
    except ValueError as cause:
        return f"they cannot be read: {_first_line(cause)}"
    return "; ".join(f"{_path(error.instance_path)}: {error.message}" for error in errors)


def _path(parts: list[str | int]) -> str:
    return ".".join(map(str, parts)) or "arguments"


def _first_line(cause: ValueError) -> str:
    return str(cause).partition("\n")[0]


def _cut(text: str, most_bytes: int) -> str:
    """The text, or its beginning and a mark, in at most that many UTF-8 bytes; lone surrogates become `?`."""
    data = text.encode("utf-8", "replace")
    if len(data) > most_bytes:
        data = data[: max(0, most_bytes - len(_CUT_MARK))] + _CUT_MARK.encode()
    return data.decode("utf-8", "ignore")
