"""Recorded answers of the Responses API over HTTP: read later, read on, and continued behind an approval."""

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response

from portico.domain.contract.response import SuspensionKind
from portico.domain.failures import Code, RequestFailure
from portico.domain.ids import RequestId
from portico.domain.journal.header import ClientView
from portico.domain.value import value
from portico.entrypoints.http.client_apis.ids import NamedExecution, named_execution
from portico.entrypoints.http.client_apis.responses.answer import ResponsesShown, extension_member, response_object
from portico.entrypoints.http.client_apis.responses.recorded import RecordedAnswer, RecordedAnswers
from portico.entrypoints.http.client_apis.responses.request import (
    RESPONSE,
    ApprovalAnswer,
    ApprovalAnswers,
    shown_fields,
)
from portico.entrypoints.http.client_apis.turn import ApprovalItem
from portico.entrypoints.http.client_apis.wire_values import invalid
from portico.entrypoints.http.context import RequestContext
from portico.entrypoints.http.execution_response import ExecutionResponder, event_stream_headers
from portico.entrypoints.http.negotiation import ResponseKind
from portico.entrypoints.http.recorded_stream import RecordedEvents, RecordedStream, RecordedStreamResponse
from portico.orchestration.facade import MAX_ANSWERS, ExecutionHandle, GivenAnswer, RecordedTurns, ResumeRequest

NOT_FOUND = "no response has this id"


@value
class RecordedAnswerReader:
    """Reader of the answers of one execution that the caller may read."""

    context: RequestContext
    request_id: RequestId

    async def turns(self) -> RecordedTurns:
        """Return what is recorded. Raises: RequestFailure (REQUEST_NOT_FOUND); StorageFailure."""
        return await self.context.facade.records.turns(self.context.principal, self.request_id)

    async def json(self, number: int) -> Response:
        """Return the answer of that number as it is by now. Raises: as `turns`, also without such an answer."""
        recorded = await self.turns()
        answer = answer_of(recorded, number)
        return self.context.json_response(orjson.dumps(answer_body(recorded, answer)), request_id=self.request_id)

    async def stream(self, number: int, after: int = -1) -> Response:
        """Return the frames of the answer of that number behind `after`, until it ends. Raises: as `json`."""
        events = await self.context.facade.executions.read(self.context.principal, self.request_id)
        try:
            recorded = await self.turns()
            answer_of(recorded, number)
        except BaseException:
            events.close()
            raise
        source = RecordedEvents(events, recorded, self.turns)
        stream = RecordedStream(source, shown_of(recorded), view_of(recorded), number, after)
        context = self.context
        return RecordedStreamResponse(
            source,
            stream,
            headers=event_stream_headers(context.correlate(self.request_id)),
            is_stopping=context.is_stopping,
            is_permitted=context.permission_check,
        )


def named_response(response_id: str) -> NamedExecution:
    """Return the execution and the number of an answer. Raises: RequestFailure (REQUEST_NOT_FOUND)."""
    named = named_execution(response_id, RESPONSE)
    if named is None or not response_id.startswith(f"{RESPONSE}_"):
        raise RequestFailure(Code.REQUEST_NOT_FOUND, NOT_FOUND, condition="path")
    return named


def view_of(recorded: RecordedTurns) -> ClientView:
    """Return what the answers show of the request; of one that came by another API, the name of its agent or model."""
    header = recorded.header
    request = header.request
    return header.client or ClientView(request.agent or request.model or header.mode.value)


def shown_of(recorded: RecordedTurns) -> ResponsesShown:
    """Return what the answers repeat of the request."""
    view, header = view_of(recorded), recorded.header
    fields = shown_fields(header.request, view)
    return ResponsesShown(view.model, header.mode, has_extension=view.has_extension, fields=fields)


def answer_of(recorded: RecordedTurns, number: int) -> RecordedAnswer:
    """Return the answer of that number. Raises: RequestFailure (REQUEST_NOT_FOUND)."""
    answer = RecordedAnswers(recorded, view_of(recorded)).answer(number)
    if answer is None:
        raise RequestFailure(Code.REQUEST_NOT_FOUND, NOT_FOUND, condition="path")
    return answer


def answer_body(recorded: RecordedTurns, answer: RecordedAnswer) -> Mapping[str, Any]:
    """Return the Response object of an answer as it is by now."""
    shown = shown_of(recorded)
    body = response_object(answer.request_id, shown, answer.outcome, answer.output(), number=answer.number)
    return body if answer.rest is None else {**body, **extension_member(answer.rest.response, shown)}


async def continue_approved(context: RequestContext, given: ApprovalAnswers) -> Response:
    """Give the answers to the approvals, all or none, continue their execution, and return the answer behind them.

    Raises: Failure, as `Executions.resume`; RequestFailure (REQUEST_INVALID) for an approval that was not asked for
    and for too many answers; ClientDisconnect, AccessFailure, as `ExecutionResponder.respond`.
    """
    if len(given.answers) > MAX_ANSWERS:
        raise invalid(("input",), f"must end with at most {MAX_ANSWERS} answers to approvals")
    await context.facade.executions.require(context.principal.own, given.request_id)
    reader = RecordedAnswerReader(context, given.request_id)
    recorded = await reader.turns()
    answers = RecordedAnswers(recorded, view_of(recorded))
    approvals = answers.approvals()
    for each in given.answers:
        if each.number >= len(approvals):
            raise invalid((*each.path, "approval_request_id"), "must be the id of an mcp_approval_request")
    number = answers.last + 1
    decisions = [_decision(approvals[each.number], each) for each in given.answers]
    resumed = await context.facade.executions.resume(
        context.principal, given.request_id, ResumeRequest(answers=decisions), subscribe=False
    )
    if isinstance(resumed, ExecutionHandle):
        if not given.is_stream:
            cancel = None if resumed.outlives_client else resumed.cancel
            await ExecutionResponder(context, ResponseKind.RESPONSE).whole(resumed, cancel)
        return await (reader.stream(number) if given.is_stream else reader.json(number))
    return await (reader.stream(number - 1) if given.is_stream else reader.json(number - 1))


def _decision(approval: ApprovalItem, given: ApprovalAnswer) -> GivenAnswer:
    """Return the answer as a resume takes it: of a call whose outcome is not known, whether it runs again."""
    reason = {} if given.reason is None else {"reason": given.reason}
    if approval.kind is SuspensionKind.APPROVAL:
        payload: dict[str, Any] = {"decision": "approve" if given.approves else "deny", **reason}
    elif approval.kind is SuspensionKind.AUTHORIZATION:
        payload = {"decision": "authorized"} if given.approves else {"decision": "deny", **reason}
    else:
        payload = {"decision": "run" if given.approves else "give_up"}
    return GivenAnswer(payload=payload, suspension_id=approval.suspension_id)
