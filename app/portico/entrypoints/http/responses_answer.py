"""Answers to `POST /v1/responses`: as of any client API, and in the background, behind an answer or an approval."""

from collections.abc import Sequence
from typing import Final, TypeAlias

import anyio
import orjson
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from portico.domain.access.principal import Permission
from portico.domain.contract.messages import Message, ToolCall
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code, Failure, RequestFailure
from portico.domain.ids import ExecutionId, RequestId
from portico.domain.journal.header import ClientView
from portico.domain.lifecycle import State
from portico.domain.value import replace, value
from portico.entrypoints.http.body import read_decoded
from portico.entrypoints.http.client_apis.api import ClientApi, DecodedRequest, JsonObject
from portico.entrypoints.http.client_apis.ids import called_execution
from portico.entrypoints.http.client_apis.models import ModelNames
from portico.entrypoints.http.client_apis.responses.answer import QUEUED, ResponsesShown, response_object
from portico.entrypoints.http.client_apis.responses.request import (
    ApprovalAnswers,
    DecodedResponsesRequest,
    approval_answers,
    decode,
    unknown_item,
    unknown_response,
)
from portico.entrypoints.http.client_apis.stream import waits_for_approval
from portico.entrypoints.http.client_apis.turn import DisplayTime, Item, ItemEnded, TurnReader, turn_of
from portico.entrypoints.http.client_apis.wire_values import invalid
from portico.entrypoints.http.client_response import ClientResponder, model_names, stored
from portico.entrypoints.http.context import RequestContext
from portico.entrypoints.http.recorded_answer import RecordedAnswerReader, continue_approved
from portico.orchestration.facade import Accepted, ExecutionHandle, ExecutionView

SECOND_LOOK_SECONDS: Final = 0.3
"""How long an unknown answer may still be on its way from another replica."""
Started: TypeAlias = ExecutionHandle | Accepted | ExecutionView


async def create(context: RequestContext) -> Response:
    """Return the answer to a request, or to the answers to approvals. Raises: as `client_response.answer`."""
    await context.authenticate()
    context.shows_limits = True
    names = model_names(context)
    decoded = await read_decoded(context, lambda body: _decode(body, names))
    if isinstance(decoded, ApprovalAnswers):
        return await continue_approved(context, decoded)
    return await _ResponsesResponder(context, _stored(context, decoded)).answer()


def _stored(context: RequestContext, decoded: DecodedResponsesRequest) -> DecodedResponsesRequest:
    """Return the request as `stored` does, and let its answers say so."""
    request = stored(context, decoded).request
    if request is decoded.request:
        return decoded
    fields = {**decoded.shown.fields, "store": request.store}
    return replace(decoded, request=request, shown=replace(decoded.shown, fields=fields))


def _decode(body: JsonObject, names: ModelNames) -> DecodedResponsesRequest | ApprovalAnswers:
    return approval_answers(body) or decode(body, names)


@value
class _ResponsesResponder:
    """The responses to one request."""

    context: RequestContext
    decoded: DecodedResponsesRequest

    async def answer(self) -> Response:
        """Start the execution and return the answer. Raises: as `ClientResponder.answer`."""
        responder = self._responder()
        if responder.decoded.shown.is_quote:
            return await (await self._resolved(responder)).answer()
        try:
            started = await self._start(responder)
        except Failure as refused:
            raise responder.as_sent(refused) from None
        return await self._respond(responder, started)

    async def _start(self, responder: ClientResponder[ResponsesShown]) -> Started:
        """Start the execution; what it follows is looked up once more, since another replica may still write it."""
        view = self._view(responder.decoded.shown)
        try:
            return await (await self._resolved(responder)).start(view)
        except RequestFailure as refused:
            if self.decoded.request.after is None or refused.code is not Code.REQUEST_NOT_FOUND:
                raise
        await anyio.sleep(SECOND_LOOK_SECONDS)
        try:
            return await (await self._resolved(responder)).start(view)
        except RequestFailure as refused:
            raise unknown_response() if refused.code is Code.REQUEST_NOT_FOUND else refused from None

    async def _respond(self, responder: ClientResponder[ResponsesShown], started: Started) -> Response:
        request, shown = responder.decoded.request, responder.decoded.shown
        if isinstance(started, Accepted):
            body = response_object(started.view.request_id, shown, QUEUED, [])
            return responder.json(orjson.dumps(body), started)
        if request.background:
            if isinstance(started, ExecutionHandle) and started.subscription is not None:
                started.subscription.close()
            reader = RecordedAnswerReader(self.context, started.request_id)
            return await (reader.stream(0) if shown.is_stream else reader.json(0))
        if isinstance(started, ExecutionView):
            return await responder.repeat(started)
        if responder.reads_reasoning:
            return await _with_reasoning(responder, started)
        response = await responder.respond(started)
        if not shown.is_stream and request.store and self._is_recorded(shown, started.response):
            return await RecordedAnswerReader(self.context, started.request_id).json(0)
        return response

    def _is_recorded(self, shown: ResponsesShown, response: SystemResponse | None) -> bool:
        """Return True if the record has more of the answer than the response: reasoning, or what came before a wait."""
        if response is None or response.error is not None:
            return False
        is_suspended = response.state is State.SUSPENDED
        return shown.ends_at_suspension and waits_for_approval(response) if is_suspended else shown.with_reasoning

    def _view(self, shown: ResponsesShown) -> ClientView:
        view = self.decoded.view
        is_same = view.client_approves == shown.ends_at_suspension
        return view if is_same else replace(view, client_approves=shown.ends_at_suspension)

    def _responder(self) -> ClientResponder[ResponsesShown]:
        """Return the responder of the request as it is for this caller."""
        decoded: DecodedRequest[ResponsesShown] = self.decoded
        api: ClientApi[ResponsesShown] = self.context.scope["app"].state.responses_api
        if decoded.shown.ends_at_suspension and not self._may_approve:
            decoded = replace(decoded, shown=replace(decoded.shown, ends_at_suspension=False))
        return ClientResponder(self.context, decoded, api)

    @property
    def _may_approve(self) -> bool:
        can_approve = self.context.principal.permissions.allows(Permission.APPROVE)
        return can_approve and self.context.service.settings.policy.self_approval

    async def _resolved(self, responder: ClientResponder[ResponsesShown]) -> ClientResponder[ResponsesShown]:
        """Return the responder of the request with the ids that the previous answer has.

        Raises: RequestFailure for an item or a call that no answer before has; StorageFailure.
        """
        request, after = self.decoded.request, self.decoded.request.after
        if after is None:
            return responder
        if self.decoded.references:
            await self._require_items(after)
        if not any(_is_result(message, after) for message in request.messages):
            return responder
        return replace(responder, decoded=replace(responder.decoded, request=await self._with_call_ids(after)))

    async def _require_items(self, after: RequestId) -> None:
        """Raise RequestFailure (REQUEST_INVALID) unless each item that is referred to is in an answer before."""
        previous = await self.context.facade.records.predecessor(self.context.principal, after)
        for request_id, path in self.decoded.references:
            if ExecutionId(request_id) not in previous.header.ancestors:
                raise unknown_item(path)

    async def _with_call_ids(self, after: RequestId) -> SystemRequest:
        """Return the request with the ids that the calls of the previous answer have in its record.

        Raises: RequestFailure for a call that it has not.
        """
        view = await self.context.facade.executions.show(self.context.principal, after)
        calls = () if view.response is None else view.response.client_calls
        request = self.decoded.request
        messages = [_renamed(message, after, calls) for message in request.messages]
        return request.model_copy(update={"messages": messages})


async def _with_reasoning(responder: ClientResponder[ResponsesShown], handle: ExecutionHandle) -> Response:
    """Return the answer with the reasoning that only its events have. Raises: as `ClientResponder.respond`."""
    assert handle.subscription is not None  # noqa: S101 - such a request subscribes
    shown, events = responder.decoded.shown, handle.subscription
    delivery = DisplayTime.COMMITTED if shown.delivery is DisplayTime.LIVE else shown.delivery
    reader = TurnReader(
        shown.mode, delivery, ends_at_suspension=shown.ends_at_suspension, shows_reasoning=shown.with_reasoning
    )
    items: dict[int, Item] = {}

    async def read() -> None:
        while not (reader.is_over or events.ended):
            changes = reader.read(await events.next())
            items.update({each.position: each.item for each in changes if isinstance(each, ItemEnded)})

    refused: Exception | None = None
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(read)
            try:
                answer = await responder.respond(handle)
            except (Failure, ClientDisconnect) as error:  # raised here, it would come out as a group of one
                refused = error
            if refused is not None or handle.response is None or handle.is_suspended:
                group.cancel_scope.cancel()
    finally:
        events.close()
    if refused is not None:
        raise refused
    response = handle.response
    if response is None or response.state is not State.COMPLETE or not reader.is_over:
        return answer
    turn = replace(turn_of(response), items=[items[position] for position in sorted(items)])
    return responder.json(responder.api.encode(turn, shown), handle)


def _is_result(message: Message, after: RequestId | None) -> bool:
    called = None if message.tool_call_id is None else called_execution(message.tool_call_id)
    return called is not None and called.request_id == after


def _renamed(message: Message, after: RequestId, calls: Sequence[ToolCall]) -> Message:
    called = None if message.tool_call_id is None else called_execution(message.tool_call_id)
    if called is None or called.request_id != after:
        return message
    if called.number is None or called.number >= len(calls):
        raise invalid(("input",), "must have results of calls of the previous answer only")
    return message.model_copy(update={"tool_call_id": calls[called.number].id})
