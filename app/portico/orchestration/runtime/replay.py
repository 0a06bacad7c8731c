"""Offline replay of stored executions: over HTTP, before a resume, and from the command line."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
from pydantic import BaseModel, Field, JsonValue
from pydantic_core import to_jsonable_python

from portico.capabilities.context.redaction import Redactor
from portico.capabilities.tools.code_tool import RUN_CODE
from portico.domain import json_path
from portico.domain.access.principal import AccessScope
from portico.domain.failures import Code, RequestFailure
from portico.domain.ids import RequestId, TenantId
from portico.domain.journal.events import EVENT_FIELDS, WIRE_NAMES
from portico.domain.journal.outcomes import CodeStarted
from portico.domain.lifecycle import Mode, State
from portico.domain.value import replace, value
from portico.orchestration.execution.effect import Effect
from portico.orchestration.execution.execution import Execution
from portico.orchestration.execution.pattern import Pattern
from portico.orchestration.execution.progress import RunProgress
from portico.orchestration.execution.recorder import ReplayDiverged
from portico.orchestration.runtime.driver import pattern_for, replay, require_current_version, run_pattern
from portico.orchestration.runtime.resume import as_suspended
from portico.orchestration.runtime.step_list import OUTCOMES
from portico.ports.code import CodeInterpreter
from portico.ports.journal import ExecutionHistory
from portico.ports.storage import ExecutionFilter, ExecutionStore, StoredExecution

_PAGE_SIZE = 100
MAX_VALUE: Final = 200
"""Characters of a value that differs, as JSON."""


class ReplayReport(BaseModel):
    """Result of an offline replay."""

    identical: bool = Field(description="True if the replay equals the record, step by step.")
    steps: int | None = Field(None, description="The number of steps.")
    step: str | None = Field(None, description="The first step that differs.")
    field: str | None = Field(
        None,
        description="Path of the first value that differs, such as `$.outcome`; `$` if one side has nothing.",
    )
    recorded: str | None = Field(None, description="The value in the record as JSON, cut to 200 characters.")
    replayed: str | None = Field(None, description="The value in the replay as JSON, cut to 200 characters.")


@value
class SuspendedFlow:
    """A suspended execution of a flow, or of code that calls tools, whose name is that of the tool.

    `obstacle` is the reason for which it would not resume; None if it would.
    """

    request_id: RequestId
    flow: str
    obstacle: str | None


class OfflineReplayer:
    """Replays histories with today's patterns, without an event loop and without an environment."""

    def __init__(self, patterns: Mapping[Mode, Pattern]) -> None:
        self._patterns = patterns

    def replay(self, history: ExecutionHistory, *, redacted: bool = True) -> ReplayReport:
        """Replay the history; of a suspended one, the answers recorded since are left out.

        The values of a difference are redacted unless the reader may see them. Raises: StorageFailure
        (STORAGE_SNAPSHOT_INVALID) if the pattern has another version by now.
        """
        require_current_version(history.header, self._patterns)
        history = as_suspended(history)
        execution = Execution(history.header, environment=None, journal=None, history=history)
        try:
            steps = replay(execution, pattern_for(history.header, self._patterns))
        except ReplayDiverged as difference:
            return _difference(difference, redacted=redacted)
        return ReplayReport(identical=True, steps=steps)


async def follows_record(
    history: ExecutionHistory, patterns: Mapping[Mode, Pattern], interpreter: CodeInterpreter
) -> bool:
    """Return True if the code of calls that have not ended, run by this interpreter, goes the recorded way.

    Nothing is called: recorded results take the place of all calls.
    """
    execution = Execution(history.header, environment=None, journal=None, history=as_suspended(history))
    execution.facts = replace(execution.facts, code=interpreter)
    termination = await run_pattern(execution, RunProgress(), pattern_for(history.header, patterns), None)
    return termination.state is State.SUSPENDED


def open_code(history: ExecutionHistory) -> Sequence[CodeStarted]:
    """Return the starts of code whose calls have not ended."""
    return [
        step.outcome
        for key, step in history.steps.items()
        if isinstance(step.outcome, CodeStarted) and key.parent.child(1) not in history.steps
    ]


class HistoryReader:
    """Reads stored executions of all users beside a running service. Raises: StorageFailure, in every method."""

    def __init__(self, store: ExecutionStore, patterns: Mapping[Mode, Pattern], interpreter: str | None) -> None:
        self._store = store
        self._patterns = patterns
        self._interpreter = interpreter
        self._replayer = OfflineReplayer(patterns)

    async def newest(self, tenant: TenantId, count: int) -> list[RequestId]:
        """Return the request ids of the newest `count` executions, newest first."""
        names: list[RequestId] = []
        after: str | None = None
        while len(names) < count:
            limit = min(_PAGE_SIZE, count - len(names))
            page = await self._store.executions(AccessScope(tenant), ExecutionFilter(), after=after, limit=limit)
            names += [each.request_id for each in page.items]
            if page.next is None:
                break
            after = page.next
        return names

    async def replay(self, tenant: TenantId, request_id: RequestId) -> ReplayReport:
        """Replay a stored execution.

        Raises: RequestFailure (REQUEST_NOT_FOUND) if it or its journal is not stored, (REQUEST_IN_PROGRESS) while it
        runs.
        """
        stored = await self._store.find(AccessScope(tenant), request_id)
        if stored is None:
            raise RequestFailure(Code.REQUEST_NOT_FOUND, "no execution has this id", condition="path")
        require_at_rest(stored)
        history = await self._store.load(tenant, stored.execution_id)
        if history is None:
            raise RequestFailure(Code.REQUEST_NOT_FOUND, "the execution's journal was deleted", condition="path")
        return self._replayer.replay(history)

    async def suspended_flows(self, tenant: TenantId) -> list[SuspendedFlow]:
        """Return all suspended executions of flows, newest first, and if they would resume with today's graphs.

        So are those whose code another interpreter ran than the one that is installed.
        """
        selected = ExecutionFilter((State.SUSPENDED,))
        found: list[SuspendedFlow] = []
        after: str | None = None
        while True:
            page = await self._store.executions(AccessScope(tenant), selected, after=after, limit=_PAGE_SIZE)
            for stored in page.items:
                history = await self._store.load(tenant, stored.execution_id)
                if history is not None:
                    found += self._suspended(stored.request_id, history)
            if page.next is None:
                return found
            after = page.next

    def _suspended(self, request_id: RequestId, history: ExecutionHistory) -> Iterator[SuspendedFlow]:
        flow, interpreter = history.header.request.flow, self._interpreter or "none"
        others = sorted({each.interpreter for each in open_code(history)} - {interpreter})
        other = f"its code ran in {', '.join(others)}, and {interpreter} is installed here" if others else None
        if flow is not None:
            yield SuspendedFlow(request_id, flow.name, self._obstacle(history) or other)
        elif other is not None:
            yield SuspendedFlow(request_id, RUN_CODE, other)

    def _obstacle(self, history: ExecutionHistory) -> str | None:
        header, pattern = history.header, self._patterns[Mode.FLOW]
        fingerprint = None if pattern.fingerprint is None else pattern.fingerprint(header.request)
        if fingerprint is None:
            return "the flow is not registered"
        if fingerprint != header.flow_fingerprint:
            return "the graph of the flow has changed"
        if not pattern.can_continue(header):
            return "another version of this service wrote its journal"
        report = self._replayer.replay(history)
        return None if report.identical else f"the flow differs from its record at step {report.step}"


def _difference(difference: ReplayDiverged, *, redacted: bool) -> ReplayReport:
    """Return the report of a difference. Its values are redacted as parts of the whole, then cut."""
    sides = [_as_json(difference.recorded), _as_json(difference.replayed)]
    path = _first_difference(*sides)
    if redacted:
        sides = [Redactor().value(side) for side in sides]
    recorded, replayed = (_value_at(side, path) for side in sides)
    field = json_path.format_path(path)
    return ReplayReport(identical=False, step=difference.step, field=field, recorded=recorded, replayed=replayed)


def _as_json(part: Any) -> JsonValue:
    """Return one side as JSON: an event as readers get it, an outcome as a list of the steps shows it."""
    match part:
        case None:
            return None
        case str():
            return {"fingerprint": part}
        case Effect():
            return {"request": part.asked()}
        case _ if (shown := OUTCOMES.get(type(part))) is not None:
            return {"kind": shown[0], "outcome": to_jsonable_python(shown[1](part))}
    fields = {WIRE_NAMES.get(name, name): getattr(part, name) for name in EVENT_FIELDS[type(part)]}
    event: JsonValue = to_jsonable_python({"type": part.type, **fields})
    return event


def _first_difference(recorded: JsonValue, replayed: JsonValue) -> tuple[str | int, ...]:
    """Return the path of the first value that differs; the empty one if the sides have nothing in common."""
    names: Iterable[str | int] = ()
    if isinstance(recorded, dict) and isinstance(replayed, dict):
        names = dict.fromkeys([*recorded, *replayed])
    elif isinstance(recorded, list) and isinstance(replayed, list):
        names = range(max(len(recorded), len(replayed)))
    for name in names:
        before, now = _member(recorded, name), _member(replayed, name)
        if before != now:
            return (name, *_first_difference(before, now))
    return ()


def _member(value: Any, name: str | int) -> JsonValue:
    """Return a member of an object or a list; None if it has none of that name."""
    if isinstance(value, dict):
        return value.get(name)
    return value[name] if isinstance(value, list) and isinstance(name, int) and name < len(value) else None


def _value_at(side: JsonValue, path: Sequence[str | int]) -> str | None:
    """Return the value at the path as JSON, or the redaction on the way there; None if the side has nothing there."""
    for name in path:
        if isinstance(side, dict | list):
            side = _member(side, name)
    return None if side is None else orjson.dumps(side).decode()[:MAX_VALUE]


def require_at_rest(stored: StoredExecution) -> None:
    """Raise RequestFailure (REQUEST_IN_PROGRESS) unless the execution has ended, or is suspended and unowned."""
    if stored.owner is not None or not (stored.status.ended or stored.status.state is State.SUSPENDED):
        raise RequestFailure(Code.REQUEST_IN_PROGRESS, "the execution is still running", retry_after=1.0)
