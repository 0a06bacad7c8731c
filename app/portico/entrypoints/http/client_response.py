"""Responses of client APIs: one body, or a stream, of an execution that a client's request has started."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError
from starlette.responses import Response

from portico.domain.access.principal import Principal
from portico.domain.contract.constrained_types import SessionIdText
from portico.domain.contract.request import NamedTool, SystemRequest
from portico.domain.contract.response import SystemError, SystemResponse
from portico.domain.credentials import NO_CREDENTIALS
from portico.domain.failures import Failure, RequestFailure, invalid_request
from portico.domain.ids import RequestId, SessionId
from portico.domain.journal.header import ClientView
from portico.domain.lifecycle import State
from portico.domain.value import replace, value
from portico.entrypoints.http.body import read_decoded
from portico.entrypoints.http.client_apis.api import ClientApi, DecodedRequest, Shown
from portico.entrypoints.http.client_apis.continuation import (
    continued_request,
    sent_conversation,
    whole_field,
)
from portico.entrypoints.http.client_apis.errors import client_error
from portico.entrypoints.http.client_apis.models import ModelNames
from portico.entrypoints.http.client_apis.stream import STOPPING, TurnStream, resume_required
from portico.entrypoints.http.client_apis.turn import TurnReader, turn_of
from portico.entrypoints.http.client_errors import error_response
from portico.entrypoints.http.context import CREDENTIALS_KEY, RequestContext, tool_credentials
from portico.entrypoints.http.correlation import Correlation, Header
from portico.entrypoints.http.errors import JSON, WholeResponse
from portico.entrypoints.http.exception_handlers import location_header
from portico.entrypoints.http.execution_response import (
    REPLAYED,
    ExecutionResponder,
    correlation_of,
    event_stream_headers,
)
from portico.entrypoints.http.negotiation import ResponseKind, request_headers
from portico.entrypoints.http.parameters import parse_idempotency_key
from portico.entrypoints.http.person_wait import ClientStreamResponse, PersonWaiter
from portico.orchestration.facade import (
    Accepted,
    CallOptions,
    CatchUpSubscription,
    ExecutionHandle,
    Executions,
    ExecutionView,
)
from portico.ports.events import Subscription
from portico.ports.tracing import TRACE_KEY

S = TypeVar("S", bound=Shown)
Cancel = Callable[[], None]
SESSION_HEADER: Final = b"portico-session"
STORE_HEADER: Final = b"portico-store"
_SESSION_ID = TypeAdapter[SessionId](SessionIdText)
_SHOWN_NAMES: Final = 32
_SHOWN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


async def answer(context: RequestContext, api: ClientApi[S]) -> Response:
    """Return the answer to the request of a client API.

    Raises: Failure for a request that is refused before there is an execution; ClientDisconnect.
    """
    await context.authenticate()
    context.shows_limits = True
    names = model_names(context)
    decoded = await read_decoded(context, lambda body: api.decode(body, names))
    return await ClientResponder(context, stored(context, _in_session(context, decoded)), api).answer()


async def _read(executions: Executions, principal: Principal, request_id: RequestId, after: int) -> Subscription:
    return await executions.read(principal, request_id, after=after)


def _in_session(context: RequestContext, decoded: DecodedRequest[S]) -> DecodedRequest[S]:
    """Return the request in the session that the header `portico-session` names. Raises: RequestFailure."""
    given = request_headers(context.scope).values.get(SESSION_HEADER)
    if given is None:
        return decoded
    if len(given) > 1 or decoded.request.session_id is not None:
        raise invalid_request((SESSION_HEADER.decode(), "must be the only name of the session"))
    try:
        session_id = _SESSION_ID.validate_python(given[0].decode("latin-1"))
    except ValidationError:
        raise invalid_request((SESSION_HEADER.decode(), "must be the id of a session")) from None
    return replace(decoded, request=decoded.request.model_copy(update={"session_id": session_id}))


def stored(context: RequestContext, decoded: DecodedRequest[S]) -> DecodedRequest[S]:
    """Return the request with `store` if the header `portico-store` is true: some clients always send `store: false`.

    Raises: RequestFailure for another value.
    """
    given = request_headers(context.scope).values.get(STORE_HEADER)
    if given is None:
        return decoded
    if {*given} != {b"true"}:
        raise invalid_request((STORE_HEADER.decode(), "must be true, or absent"))
    return replace(decoded, request=decoded.request.model_copy(update={"store": True}))


async def count_tokens(context: RequestContext, api: ClientApi[S]) -> int:
    """Return the tokens of the request of a client API. Raises: as `answer`."""
    await context.authenticate()
    names = model_names(context)
    decoded = await read_decoded(context, lambda body: api.decode(body, names))
    return await ClientResponder(context, _in_session(context, decoded), api).count_tokens()


def model_names(context: RequestContext) -> ModelNames:
    """Return the names of models as the caller sees them."""
    aliases, served = context.service.settings.ingress.models, context.facade.introspection.models.served
    return ModelNames(aliases, served, context.principal.permissions)


def ignored_header(ignored: Sequence[str]) -> tuple[Header, ...]:
    """Return the header that names what has no effect; none if everything has one."""
    names = {name if _SHOWN_NAME.fullmatch(name) else "other" for name in ignored}
    return ((b"portico-ignored", ", ".join(sorted(names)[:_SHOWN_NAMES]).encode()),) if names else ()


@value
class ClientStarter(Generic[S]):
    """Start of the execution that a request of a client API asks for."""

    context: RequestContext
    decoded: DecodedRequest[S]

    @property
    def reads_reasoning(self) -> bool:
        """True if events are read for the reasoning of a JSON answer, since nothing is stored that has it."""
        shown = self.decoded.shown
        return shown.with_reasoning and not (shown.is_stream or self.decoded.request.store)

    async def start(self, client: ClientView | None = None) -> ExecutionHandle | Accepted | ExecutionView:
        """Start the execution, as `execute` does; `client` is for answers that are read later. Raises: Failure."""
        context, headers = self.context, request_headers(self.context.scope)
        keys, has_trace = headers.idempotency_key, headers.traceparent or TRACE_KEY in context.scope
        trace_id, parent_span_id, sampled = context.trace if has_trace else (None, None, None)
        options = CallOptions(
            trace_id=trace_id,
            parent_span_id=parent_span_id,
            sampled=sampled,
            subscribe=self.decoded.shown.is_stream or self.reads_reasoning,
            idempotency_key=parse_idempotency_key(keys) if keys else None,
            authentication_ms=context.authentication_ms,
            credentials=tool_credentials(context) if CREDENTIALS_KEY in context.scope else NO_CREDENTIALS,
            client=client,
        )
        request, options = await self._continued(options)
        try:
            return await context.facade.execute(request, context.principal, options)
        except Failure as refused:
            if request is self.decoded.request:
                raise
            raise _with_names(refused, partial(whole_field, self.decoded.request, request)) from None

    async def _continued(self, options: CallOptions) -> tuple[SystemRequest, CallOptions]:
        """Return the request, after the execution whose conversation it sends again, if it sends one."""
        request, context = self.decoded.request, self.context
        if request.after is not None or request.session_id is not None:
            return request, options
        sent = sent_conversation(request.messages)
        if sent is None:
            return request, options
        found = await context.facade.records.find_predecessor(context.principal, sent.request_id)
        if found is None:
            return request, options
        continued = continued_request(request, sent, found.header.received_digest, found.response)
        if continued is None:
            return request, options
        transcript = replace(found.transcript, is_whole=True)
        return continued, replace(options, transcript=transcript, received=request.messages)

    def as_sent(self, refused: Failure) -> Failure:
        """Return the refusal with the names of the fields as they were sent."""
        tools = refused.details.get("tools")
        if isinstance(tools, list) and tools:
            named = _field_with(self.decoded.request, tools[0])
            refused = replace(refused, details={**refused.details, "field": named})
        return _with_names(refused, self._sent_name)

    def _sent_name(self, name: str) -> str:
        return ".".join(self.decoded.path_of(name.split(".")))


@value
class ClientResponder(ClientStarter[S]):
    """The responses to one request of a client API."""

    api: ClientApi[S]

    async def answer(self) -> Response:
        """Start the execution, or compute its bounds, and return the answer. Raises: as `answer`."""
        try:
            if self.decoded.shown.is_quote:
                return await self._quote()
            started = await self.start()
        except Failure as refused:
            raise self.as_sent(refused) from None
        if isinstance(started, ExecutionView):
            return await self.repeat(started)
        assert not isinstance(started, Accepted)  # noqa: S101 - only Responses run in the background
        return await self.respond(started)

    async def count_tokens(self) -> int:
        """Return the tokens that the first inference reads. Raises: as `answer`."""
        try:
            return await self.context.facade.count_tokens(self.decoded.request, self.context.principal)
        except Failure as refused:
            raise self.as_sent(refused) from None

    async def respond(self, handle: ExecutionHandle) -> Response:
        """Return the answer of a running execution, whole or as a stream. Raises: as `ExecutionResponder.respond`."""
        if handle.subscription is not None and self.decoded.shown.is_stream:
            return self.stream(handle.subscription, correlation_of(self.context, handle), handle=handle)

        def show(response: SystemResponse, correlation: Correlation, *extra: Header) -> WholeResponse:
            return self.whole(response, correlation, *extra, has_acted=handle.has_acted)

        responder = ExecutionResponder(self.context, ResponseKind.RESPONSE)
        first = await responder.whole(handle, None if handle.outlives_client else handle.cancel, show)
        if handle.response is None:
            failed = client_error(SystemError.of(STOPPING), handle.request_id, has_acted=handle.has_acted)
            correlation = correlation_of(self.context, handle)
            return error_response(failed, self.api.errors, correlation, location_header(handle.request_id))
        if not handle.is_suspended or self.decoded.shown.ends_at_suspension:
            return first
        waiter = self._waiter(handle)
        response = await waiter.wait(self.context.scope, self.context.receive, handle.response)
        return self.whole(response, correlation_of(self.context, handle), has_acted=True)

    async def repeat(self, first: ExecutionView) -> Response:
        """Return the answer of the first request with the same idempotency key."""
        correlation = ExecutionResponder(self.context, ResponseKind.RESPONSE).correlation(first)
        assert first.response is not None  # noqa: S101 - else the request was refused
        if not self.decoded.shown.is_stream:
            response = first.response.model_copy(update={"suspensions": first.suspensions})
            return self.whole(response, correlation, REPLAYED)
        log = await self.context.facade.executions.events(self.context.principal, first.request_id)
        return self.stream(CatchUpSubscription(log, 0, None), correlation, REPLAYED)

    def whole(
        self, response: SystemResponse, correlation: Correlation, *extra: Header, has_acted: bool = False
    ) -> WholeResponse:
        """Return the JSON answer of a response, or its error."""
        error = response.error
        if response.state is State.SUSPENDED:
            error = SystemError.of(resume_required(response))
            extra = (*extra, location_header(response.request_id))
        headers = (*extra, *ignored_header(self.decoded.ignored))
        if error is not None:
            failed = client_error(error, response.request_id, has_acted=has_acted)
            return error_response(failed, self.api.errors, correlation, *headers)
        body = self.api.encode(turn_of(response), self.decoded.shown)
        return WholeResponse(200, body, (JSON, *correlation.headers(), *headers))

    def stream(
        self, events: Subscription, correlation: Correlation, *extra: Header, handle: ExecutionHandle | None = None
    ) -> ClientStreamResponse:
        """Return the events as frames of the API, as they happen; without a handle they were stored before."""
        shown, request_id = self.decoded.shown, RequestId(correlation.request_id)
        reader = TurnReader(
            shown.mode,
            shown.delivery,
            is_whole=handle is not None,
            ends_at_suspension=shown.ends_at_suspension,
            shows_reasoning=shown.with_reasoning,
        )
        encoder = TurnStream(reader, self.api.frames(request_id, shown), request_id)
        context = self.context
        response = ClientStreamResponse(
            events,
            encoder,
            headers=(*event_stream_headers(correlation), *extra, *ignored_header(self.decoded.ignored)),
            is_stopping=context.is_stopping,
            on_disconnect=None if handle is None or handle.outlives_client else handle.cancel,
            is_permitted=context.permission_check,
        )
        if handle is not None:
            encoder.has_acted = lambda: handle.has_acted or response.has_successor
            if not shown.ends_at_suspension:
                response.wait_with(encoder, self._waiter(handle))
        return response

    def _waiter(self, handle: ExecutionHandle) -> PersonWaiter:
        """Return how this request waits for persons."""
        context, executions = self.context, self.context.facade.executions
        read = partial(_read, executions, context.principal, handle.request_id)
        cancel = None if handle.outlives_client else partial(executions.cancel, context.principal, handle.request_id)
        seconds = context.service.settings.ingress.approval_wait
        return PersonWaiter(
            context.scope["app"].state.waiting, context.principal, seconds, read, cancel, context.permission_check
        )

    def json(self, body: bytes, started: ExecutionHandle | Accepted) -> WholeResponse:
        """Return the body of an execution that this request has started."""
        headers = (JSON, *correlation_of(self.context, started).headers(), *ignored_header(self.decoded.ignored))
        return WholeResponse(200, body, headers)

    async def _quote(self) -> Response:
        request = self.decoded.request
        quote = await self.context.facade.quote(request, self.context.principal)
        request_id = RequestId(self.context.facade.new_id())
        headers = (JSON, *self.context.correlate(request_id).headers(), *ignored_header(self.decoded.ignored))
        return WholeResponse(200, self.api.encode_quote(quote, request_id, self.decoded.shown), headers)


def _with_names(refused: Failure, new_name: Callable[[str], str]) -> Failure:
    """Return the refusal with other names of the fields that it is about."""
    errors, field = refused.details.get("errors"), refused.details.get("field")
    if isinstance(field, str):
        return replace(refused, details={**refused.details, "field": new_name(field)})
    if not isinstance(refused, RequestFailure) or not isinstance(errors, list):
        return refused
    named = invalid_request(*((new_name(each["field"]), each["message"]) for each in errors))
    return replace(refused, message=named.message, details={**refused.details, **named.details})


def _field_with(request: SystemRequest, tool: str) -> str:
    """Return the field of the request that names the tool; else that which says what runs."""
    choice = request.hints.tool_choice
    if isinstance(choice, NamedTool) and choice.name == tool:
        return "hints.tool_choice"
    if "tools" in request.model_fields_set and tool in (request.tools or ()):
        return "tools"
    return "plan" if request.plan is not None else "agent"
