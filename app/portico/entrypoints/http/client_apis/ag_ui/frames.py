"""Streams of AG-UI: the events of an execution as its frames, which fold to the messages of a page.

A frame is a `data:` line whose JSON has neither nulls nor a number of its own. Each is valid for version 1.0 of the
protocol and for clients of 0.0.59, whose schemas are closed: what these refuse is sent to clients of 1.0 only.

A text that was taken back is followed by a snapshot: the input's messages and what stands of this run.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from portico.domain.contract.response import StepStatus, Suspension, SuspensionKind, SystemError, SystemResponse
from portico.domain.failures import Code, Failure
from portico.domain.ids import RequestId, ToolCallId
from portico.domain.journal.events import (
    FlowStep,
    LiveDelta,
    PlanCreated,
    StepEnd,
    StepStart,
    StoredEvent,
)
from portico.domain.lifecycle import Mode, State
from portico.entrypoints.http.client_apis.ag_ui.interrupts import interrupt_of
from portico.entrypoints.http.client_apis.ag_ui.request import Run
from portico.entrypoints.http.client_apis.ids import digits
from portico.entrypoints.http.client_apis.stream import DENIED, DROPPED, STOPPING
from portico.entrypoints.http.client_apis.turn import (
    ClientCallItem,
    Item,
    ItemEnded,
    ItemStarted,
    ReasoningItem,
    ServerCallItem,
    TextAdded,
    TextItem,
    TextRetracted,
    TurnBroken,
    TurnChange,
    TurnEnded,
    TurnReader,
)

_TEXT: Final = b'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"%b","delta":%b}\n\n'


class RunStream:
    """Implements `EventEncoder` for one run. A stream that does not end well ends with an error, never bare."""

    is_over = False

    def __init__(
        self,
        reader: TurnReader,
        run: Run,
        request_id: RequestId,
        mode: Mode,
        *,
        calls_shown: Sequence[str] = (),
        results_shown: Sequence[str] = (),
        first_position: int = 0,
    ) -> None:
        """`calls_shown` and `results_shown` are what the client has of calls from before a suspension.

        `first_position` is added to the numbers of messages, so that each is new to the client.
        """
        self._reader = reader
        self._run = run
        self._request_id = request_id
        self._mode = mode
        self._begun = self._closed = False
        self._texts: dict[int, bytes] = {}
        """The message ids of the texts that are open, by position."""
        self._messages: dict[int, Mapping[str, Any]] = {}
        """What stands of this run, as messages."""
        self._calls_shown = {*calls_shown}
        self._results_shown = {*results_shown}
        self._first_position = first_position
        self._plan: dict[str, dict[str, str]] = {}

    def encode(self, items: Sequence[StoredEvent | LiveDelta]) -> bytes:
        """Return the frames of these events."""
        frames = [] if self._begun or not items else [self._begin()]
        for item in items:
            if not self._closed:
                frames += self._step_frames(item)
                frames += [self._change(change) for change in self._reader.read([item])]
        return b"".join(frames)

    def end(self, items: Sequence[StoredEvent | LiveDelta], *, is_stopping: bool) -> bytes:
        """Return the frames of the last events, and an error if these do not end the run."""
        data = self.encode(items)
        return data if self._closed else data + self._failed(STOPPING if is_stopping else DROPPED)

    def denied(self) -> bytes:
        """Return the error for a reader who may not read any more."""
        return self._failed(DENIED)

    def suspended(self, suspensions: Sequence[Suspension]) -> bytes:
        """Return the whole stream of a run that finds the execution waiting still."""
        return self._begin() + b"".join(self._interrupted(suspensions))

    def _begin(self) -> bytes:
        self._begun = True
        started = {"type": "RUN_STARTED", **self._ids(), "metadata": {"portico": {"request_id": self._request_id}}}
        if self._run.is_version_1:
            started["protocolVersion"] = "1.0"
        return _frame(started)

    def _ids(self) -> dict[str, Any]:
        return {"threadId": self._run.thread_id, "runId": self._run.run_id}

    def _message_id(self, position: int) -> str:
        return f"msg_{digits(self._request_id)}_{self._first_position + position}"

    def _change(self, change: TurnChange) -> bytes:  # noqa: PLR0911 - one for each kind of change
        match change:
            case TextAdded(position, text):
                if position in self._texts:
                    return _TEXT % (self._texts[position], orjson.dumps(text))
                return _frame(_reasoning("CONTENT", self._message_id(position), delta=text))
            case ItemStarted(position, TextItem()):
                self._texts[position] = self._message_id(position).encode()
                start = {"type": "TEXT_MESSAGE_START", "messageId": self._message_id(position), "role": "assistant"}
                return _frame(start)
            case ItemStarted(position, ReasoningItem()):
                message_id = self._message_id(position)
                return _frame({"type": "REASONING_START", "messageId": message_id}) + _frame(
                    _reasoning("START", message_id, role="reasoning")
                )
            case TextRetracted(position):
                return self._retract(position)
            case ItemEnded(position, item):
                return self._end_item(position, item)
            case TurnEnded(turn):
                return b"".join(self._end_turn(turn.response, turn.items))
            case TurnBroken(error):
                return self._break(error)
            case _:
                return b""

    def _end_item(self, position: int, item: Item) -> bytes:
        match item:
            case TextItem(text):
                del self._texts[position]
                message_id = self._message_id(position)
                self._messages[position] = {"id": message_id, "role": "assistant", "content": text}
                return _frame({"type": "TEXT_MESSAGE_END", "messageId": message_id})
            case ReasoningItem():
                message_id = self._message_id(position)
                return _frame(_reasoning("END", message_id)) + _frame(
                    {"type": "REASONING_END", "messageId": message_id}
                )
            case ServerCallItem() if item.arguments is not None and item.output is not None:
                return self._server_call(position, item)
            case ClientCallItem():
                return _call(item.id, item.name, item.arguments)
            case _:
                return b""

    def _server_call(self, position: int, call: ServerCallItem) -> bytes:
        """Return the call and its result, or only the result if the client has the call."""
        self._results_shown.add(call.id)
        message_id = self._message_id(position)
        arguments, output = call.arguments or {}, call.output or ""
        function = {"name": call.name, "arguments": orjson.dumps(arguments).decode()}
        named = [{"id": call.id, "type": "function", "function": function}]
        self._messages[position] = {"id": call.id, "role": "assistant", "toolCalls": named}
        result = {"id": message_id, "role": "tool", "toolCallId": call.id, "content": output}
        self._messages[position + _BEHIND] = result
        shown = b"" if call.id in self._calls_shown else _call(call.id, call.name, arguments)
        self._calls_shown.add(call.id)
        ended = {"type": "TOOL_CALL_RESULT", "messageId": message_id, "toolCallId": call.id, "content": output}
        return shown + _frame({**ended, "role": "tool"})

    def _retract(self, position: int) -> bytes:
        """End the text if it is open, and return what stands."""
        was_open = self._texts.pop(position, None) is not None
        self._messages.pop(position, None)
        end = _frame({"type": "TEXT_MESSAGE_END", "messageId": self._message_id(position)}) if was_open else b""
        order = sorted(self._messages, key=lambda key: (key % _BEHIND, key))
        standing = [*self._run.messages, *(self._messages[key] for key in order)]
        return end + _frame({"type": "MESSAGES_SNAPSHOT", "messages": standing})

    def _end_turn(self, response: SystemResponse, items: Sequence[Item]) -> list[bytes]:
        """Return the results that were not known before, the last snapshot, and the end of the run."""
        frames = [
            self._server_call(position, item)
            for position, item in enumerate(items)
            if isinstance(item, ServerCallItem) and item.id not in self._results_shown
        ]
        frames += [
            self._server_call(
                len(items) + number, ServerCallItem(ToolCallId(made.id), made.name, made.arguments, made.result)
            )
            for number, made in enumerate(response.tool_calls_made)
            if made.id in self._calls_shown - self._results_shown and made.result is not None  # it was refused
        ]
        if response.state is State.SUSPENDED:
            return frames + self._interrupted(response.suspensions)
        if self._mode is not Mode.CHAT:
            frames.append(self._snapshot(response))
        self._closed = True
        return [*frames, *self._finished_steps(), _frame(self._finish(response))]

    def _finish(self, response: SystemResponse) -> dict[str, Any]:
        """Return the end of a run that ended well."""
        result: dict[str, Any] = {"request_id": response.request_id}
        if response.structured_output is not None:
            result["structured_output"] = response.structured_output
        if response.confidence is not None:
            result["confidence"] = response.confidence
        finished = {"type": "RUN_FINISHED", **self._ids(), "result": result, "outcome": {"type": "success"}}
        if self._run.is_version_1:
            finished["usage"] = [_usage(response)]
            calls = [f"call_{digits(response.request_id)}_{number}" for number in range(len(response.client_calls))]
            if calls:
                finished["outcome"] = {"type": "success", "pendingToolCallIds": calls}
        return finished

    def _interrupted(self, suspensions: Sequence[Suspension]) -> list[bytes]:
        """Return the calls that wait, which the client does not have yet, and the end of the run."""
        self._closed = True
        frames = []
        for each in suspensions:
            if each.tool_call_id is not None and each.tool_call_id not in self._calls_shown:
                self._calls_shown.add(each.tool_call_id)
                frames.append(_call(each.tool_call_id, each.tool_id, _arguments(each)))
        interrupts = [interrupt_of(self._request_id, each) for each in suspensions]
        outcome = {"type": "interrupt", "interrupts": interrupts}
        end = _frame({"type": "RUN_FINISHED", **self._ids(), "outcome": outcome})
        return [*frames, *self._finished_steps(), end]

    def _break(self, error: SystemError) -> bytes:
        self._closed = True
        if error.code is Code.CANCELLED_SIGNAL and self._run.is_version_1:
            finished = {"type": "RUN_FINISHED", **self._ids(), "outcome": {"type": "cancelled"}}
            return self._ended_texts() + b"".join(self._finished_steps()) + _frame(finished)
        return _frame({"type": "RUN_ERROR", "message": error.message, "code": error.code})

    def _failed(self, failure: Failure) -> bytes:
        begin = b"" if self._begun else self._begin()
        self._closed = True
        return begin + _frame({"type": "RUN_ERROR", "message": failure.message, "code": failure.code})

    def _ended_texts(self) -> bytes:
        ended = [{"type": "TEXT_MESSAGE_END", "messageId": each.decode()} for each in self._texts.values()]
        self._texts.clear()
        return b"".join(map(_frame, ended))

    def _step_frames(self, item: StoredEvent | LiveDelta) -> list[bytes]:
        """Return the frames of plan steps and of steps of a flow, and a snapshot behind each plan step."""
        name = item.correlation.step_name
        match item.event:
            case PlanCreated(steps=steps) if name is None:
                self._plan = {step["name"]: _planned(step) for step in steps}
            case StepStart(step_type=step_type) if name is not None and name not in self._open_steps():
                self._plan[name] = {"name": name, "type": step_type, "status": _RUNNING}
                return [_frame({"type": "STEP_STARTED", "stepName": name})]
            case StepEnd(status=status) if name is not None and name in self._open_steps():
                self._plan[name]["status"] = status
                return [_frame({"type": "STEP_FINISHED", "stepName": name}), self._snapshot(None)]
            case FlowStep(node=node):
                return [_frame({"type": kind, "stepName": node}) for kind in ("STEP_STARTED", "STEP_FINISHED")]
            case _:
                pass
        return []

    def _open_steps(self) -> list[str]:
        return [name for name, step in self._plan.items() if step["status"] == _RUNNING]

    def _finished_steps(self) -> list[bytes]:
        """Return the ends of the steps that are open; a run ends with none."""
        return [_frame({"type": "STEP_FINISHED", "stepName": name}) for name in self._open_steps()]

    def _snapshot(self, response: SystemResponse | None) -> bytes:
        ours: dict[str, Any] = {}
        if response is not None and response.structured_output is not None:
            ours["output"] = response.structured_output
        if response is not None and response.plan is not None:
            ours["plan"] = [
                {"name": step.name, "type": step.type, "status": step.status} for step in response.plan.steps
            ]
        elif self._plan:
            ours["plan"] = [*self._plan.values()]
        state = self._run.state if isinstance(self._run.state, dict) else {}
        return _frame({"type": "STATE_SNAPSHOT", "snapshot": {**state, "portico": ours}})


_RUNNING: Final = "running"
"""The status of a plan step between its start and its end."""
_BEHIND: Final = 1_000_000
"""Added to the position of a call, it is that of its result."""


def _planned(step: Mapping[str, Any]) -> dict[str, str]:
    return {"name": step["name"], "type": step["type"], "status": StepStatus.PENDING}


def _arguments(suspension: Suspension) -> Mapping[str, Any]:
    found = suspension.value
    if suspension.kind in {SuspensionKind.APPROVAL, SuspensionKind.UNKNOWN_OUTCOME}:
        arguments = found.get("arguments") if isinstance(found, dict) else None
        return arguments if isinstance(arguments, dict) else {}
    return found if isinstance(found, dict) else {"question": found}


def _call(call_id: str, name: str, arguments: Mapping[str, Any]) -> bytes:
    text = orjson.dumps(arguments).decode()
    return (
        _frame({"type": "TOOL_CALL_START", "toolCallId": call_id, "toolCallName": name})
        + _frame({"type": "TOOL_CALL_ARGS", "toolCallId": call_id, "delta": text})
        + _frame({"type": "TOOL_CALL_END", "toolCallId": call_id})
    )


def _reasoning(kind: str, message_id: str, **fields: str) -> dict[str, Any]:
    return {"type": f"REASONING_MESSAGE_{kind}", "messageId": message_id, **fields}


def _usage(response: SystemResponse) -> dict[str, Any]:
    usage, named = response.token_usage, response.metadata
    counted: dict[str, Any] = {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.total_tokens,
        "reasoningTokens": usage.reasoning_tokens,
        "cachedInputTokens": usage.cached_tokens,
        "cacheWriteInputTokens": usage.cache_write_tokens,
    }
    return counted | {
        name: text for name, text in (("provider", named.provider), ("model", named.model)) if text is not None
    }


def _frame(event: Mapping[str, Any]) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(event)
