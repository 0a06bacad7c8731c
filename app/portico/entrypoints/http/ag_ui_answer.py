"""Answers of AG-UI: a run that starts an execution, or one that answers its interrupts."""

from collections.abc import Callable, Mapping, Sequence

from starlette.responses import Response

from portico.domain.contract.response import Suspension
from portico.domain.failures import Code, RequestFailure
from portico.domain.lifecycle import Mode
from portico.entrypoints.http.body import read_decoded
from portico.entrypoints.http.client_apis.ag_ui.frames import RunStream
from portico.entrypoints.http.client_apis.ag_ui.interrupts import REFUSED_BY_PAYLOAD, payload_of
from portico.entrypoints.http.client_apis.ag_ui.request import InterruptAnswers, RunShown, decode
from portico.entrypoints.http.client_apis.api import DecodedRequest
from portico.entrypoints.http.client_apis.turn import (
    ApprovalItem,
    DisplayTime,
    Item,
    ServerCallItem,
    TurnReader,
    delivery_of,
    turn_of,
)
from portico.entrypoints.http.client_response import ClientStarter, model_names
from portico.entrypoints.http.context import RequestContext
from portico.entrypoints.http.correlation import Correlation, Header
from portico.entrypoints.http.errors import WholeResponse
from portico.entrypoints.http.execution_response import REPLAYED, correlation_of, event_stream_headers
from portico.entrypoints.http.sse import EventStreamResponse
from portico.orchestration.facade import (
    Accepted,
    CatchUpSubscription,
    ExecutionHandle,
    ExecutionView,
    GivenAnswer,
    ResumeAccepted,
    ResumeRequest,
)
from portico.ports.events import Subscription


async def answer_run(context: RequestContext, agent: str) -> Response:
    """Return the stream of a run. Raises: Failure for a run that is refused before its first frame."""
    await context.authenticate()
    context.shows_limits = True
    names = model_names(context)
    decoded = await read_decoded(context, lambda body: decode(body, agent, names))
    if isinstance(decoded, InterruptAnswers):
        return await _InterruptedRun(context, decoded).answer()
    return await _start(context, decoded)


async def _start(context: RequestContext, decoded: DecodedRequest[RunShown]) -> Response:
    starter = ClientStarter(context, decoded)
    try:
        started = await starter.start()
    except RequestFailure as refused:
        raise starter.as_sent(refused) from None
    shown = decoded.shown
    assert shown.run is not None  # noqa: S101 - a request of AG-UI has one
    assert not isinstance(started, Accepted)  # noqa: S101 - nothing runs in the background
    is_new = isinstance(started, ExecutionHandle)
    reader = TurnReader(
        shown.mode, shown.delivery, is_whole=is_new, ends_at_suspension=True, shows_reasoning=True, retracts=True
    )
    stream = RunStream(reader, shown.run, started.request_id, shown.mode)
    if isinstance(started, ExecutionView):  # the first request with the same idempotency key
        log = await context.facade.executions.events(context.principal, started.request_id)
        correlation = context.correlate(started.request_id)
        return _stream(context, CatchUpSubscription(log, 0, None), stream, correlation, REPLAYED)
    assert started.subscription is not None  # noqa: S101 - it was asked for
    leave = None if started.outlives_client else started.cancel
    return _stream(context, started.subscription, stream, correlation_of(context, started), on_disconnect=leave)


def _stream(
    context: RequestContext,
    events: Subscription,
    stream: RunStream,
    correlation: Correlation,
    *extra: Header,
    on_disconnect: Callable[[], None] | None = None,
) -> EventStreamResponse:
    return EventStreamResponse(
        events,
        stream,
        headers=(*event_stream_headers(correlation), *extra),
        is_stopping=context.is_stopping,
        on_disconnect=on_disconnect,
        is_permitted=context.permission_check,
    )


class _InterruptedRun:
    """A run that answers interrupts of an execution, and shows how that goes on."""

    def __init__(self, context: RequestContext, asked: InterruptAnswers) -> None:
        self._context = context
        self._asked = asked

    async def answer(self) -> Response:
        """Give the answers, all or none. Raises: Failure."""
        context, asked = self._context, self._asked
        executions, request_id = context.facade.executions, asked.request_id
        view = await executions.show(context.principal, request_id)
        given = self._given({each.suspension_id: each for each in view.suspensions})
        request = await context.facade.records.input(context.principal, request_id)
        run = self._run(view, view.mode, delivery_of(view.mode, request, request.output))
        if given is None:
            events = await executions.read(context.principal, request_id, after=view.events)
            await executions.cancel(context.principal, request_id)
            return _stream(context, events, run, context.correlate(request_id))
        answers = ResumeRequest(answers=list(given))
        resumed = await executions.resume(context.principal, request_id, answers, subscribe=True)
        if isinstance(resumed, ExecutionHandle):
            assert resumed.subscription is not None  # noqa: S101 - it was asked for
            return _stream(context, resumed.subscription, run, correlation_of(context, resumed))
        rest: Sequence[Suspension] = ()
        if isinstance(resumed, ResumeAccepted):
            rest = resumed.view.suspensions
            if resumed.events is not None:
                resumed.events.close()
        headers = event_stream_headers(context.correlate(request_id))
        return WholeResponse(200, run.suspended(rest), headers)

    def _given(self, open_suspensions: Mapping[str, Suspension]) -> Sequence[GivenAnswer] | None:
        """Return the answers; None if a question is cancelled, which cancels the execution. Raises: RequestFailure."""
        given = []
        for answer in self._asked.answers:
            suspension = open_suspensions.get(answer.suspension_id)
            if suspension is None:
                raise RequestFailure(Code.REQUEST_RESUME_UNEXPECTED, "the interrupt is not open any more")
            if answer.is_cancelled and suspension.kind not in REFUSED_BY_PAYLOAD:
                return None
            payload = payload_of(answer, suspension.kind)
            named = GivenAnswer(payload=payload, suspension_id=suspension.suspension_id, tool_id=suspension.tool_id)
            given.append(named)
        return given

    def _run(self, view: ExecutionView, mode: Mode, delivery: DisplayTime) -> RunStream:
        """Return the encoder of what follows; the client has what the execution had shown when it was suspended."""
        before = view.response
        assert before is not None  # noqa: S101 - a suspended execution has one
        items = turn_of(before).items
        shown: list[Item] = [item for item in items if not isinstance(item, ApprovalItem)]
        reader = TurnReader(
            mode,
            delivery,
            ends_at_suspension=True,
            shows_reasoning=True,
            retracts=True,
            shown_before=shown,
        )
        calls = [item.id for item in shown if isinstance(item, ServerCallItem)]
        waiting = [each.tool_call_id for each in before.suspensions if each.tool_call_id is not None]
        return RunStream(
            reader,
            self._asked.run,
            self._asked.request_id,
            mode,
            calls_shown=[*calls, *waiting],
            results_shown=calls,
            first_position=view.events,
        )
