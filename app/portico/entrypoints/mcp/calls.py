"""One call that runs an execution: its progress, its cancellation, and the people that it asks.

Theory of operation

1. A call begins an execution as `POST /v1/execute` does, and ends with it. What is suspended lives in the journal, and
   the call holds nothing but a place to wait in.
2. A client of 2026-07-28 with forms gets the questions as its result, and calls again with the answers, here or at
   another replica. Its `requestState` is the execution's id and grants nothing: the second call is authorised like a
   resume, and must be for the same request.
3. A client that this server can send requests to is asked form by form. A form is withdrawn once another person has
   answered elsewhere.
4. Any other client waits for an answer from elsewhere, until `wait` seconds after its call began.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import anyio
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from portico.domain.access.principal import Permission, Principal
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import Suspension, SuspensionKind
from portico.domain.failures import Code, RequestFailure
from portico.domain.ids import RequestId, SuspensionId
from portico.domain.journal.events import RESTING_EVENTS, ExecutionResumed, LiveDelta, StoredEvent
from portico.domain.journal.suspensions import ABOUT_CALLS
from portico.domain.lifecycle import TERMINAL, State
from portico.domain.value import value
from portico.entrypoints.mcp.progress import report
from portico.entrypoints.mcp.questions import Form, LeftOpen, answer_of, form_of
from portico.entrypoints.mcp.results import CallOutcome, result_of
from portico.entrypoints.mcp.tools import strict_text
from portico.entrypoints.person_waits import WaitingRequests
from portico.orchestration.facade import (
    CallOptions,
    ExecutionHandle,
    Facade,
    GivenAnswer,
    ResumeAccepted,
    ResumeRequest,
)
from portico.ports.events import Subscription

ToolResult = types.CallToolResult | types.InputRequiredResult
CHECK_SECONDS: Final = 1.0
"""Time between two looks at whether the service is stopping."""
_OUTRUN: Final = frozenset({Code.REQUEST_RESUME_UNEXPECTED, Code.REQUEST_RESUME_MISMATCH})
"""Refusals of an answer that another person was faster with."""


@value
class CallRules:
    """Rules of all calls of one server.

    A call waits up to `wait` seconds for a person. `cancels` tells whether the end of a request of the handshake era is
    the client's wish: without sessions it can be a broken connection.
    """

    wait: float
    max_depth: int
    self_approval: bool
    cancels: bool
    waiting: WaitingRequests
    is_stopping: Callable[[], bool]


class McpCall:
    """One call that runs an execution, or goes on with one."""

    def __init__(
        self,
        context: ServerRequestContext[Any, Any],
        principal: Principal,
        options: CallOptions,
        *,
        facade: Facade,
        rules: CallRules,
    ) -> None:
        self._context = context
        self._principal = principal
        self._options = options
        self._facade = facade
        self._rules = rules
        self._deadline = anyio.current_time() + rules.wait
        self._is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        self._left_open: set[SuspensionId] = set()
        self._flow: str | None = None
        """Flow that runs, if any."""

    async def begin(self, request: SystemRequest) -> ToolResult:
        """Run a request. Raises: Failure if it is refused."""
        self._flow = _flow_of(request)
        handle = await self._facade.execute(request, self._principal, self._options)
        assert isinstance(handle, ExecutionHandle)  # noqa: S101 - neither in the background nor with a key
        return await self._rest(await self._follow(handle))

    async def go_on(self, request: SystemRequest, params: types.CallToolRequestParams) -> ToolResult:
        """Go on with the execution of an earlier call, with what people have answered.

        Raises: MCPError if it was for another request; Failure if it is refused.
        """
        request_id, self._flow = RequestId(params.request_state or ""), _flow_of(request)
        if not await self._facade.records.ran(self._principal, request_id, request):
            raise MCPError(types.INVALID_PARAMS, "requestState is of a call of another tool or with other arguments")
        outcome = await self._outcome(request_id)
        answers = self._answers(outcome, params.input_responses or {})
        if answers:
            outcome = await self._answer(outcome, answers)
        if outcome.state not in TERMINAL and outcome.state is not State.SUSPENDED:
            outcome = await self._next(outcome)
        return await self._rest(outcome)

    async def resume(self, request_id: RequestId, suspension: Suspension, answer: Any) -> ToolResult:
        """Answer a suspension for a model and go on with its execution. Raises: Failure if the answer is refused."""
        given = GivenAnswer(suspension_id=suspension.suspension_id, payload=answer)
        self._flow = _flow_of(await self._facade.records.input(self._principal, request_id))
        return await self._rest(await self._resumed(request_id, [given], is_untrusted=True))

    async def _rest(self, outcome: CallOutcome) -> ToolResult:
        """Return the result once the execution has ended, or is left suspended."""
        while outcome.state is State.SUSPENDED and not self._rules.is_stopping():
            forms = self._forms(outcome)
            if not forms:
                following = await self._wait(outcome)
            elif self._is_modern:
                return types.InputRequiredResult(
                    input_requests={name: _elicitation(form) for name, form in forms.items()},
                    request_state=outcome.request_id,
                )
            else:
                following = await self._ask(outcome, forms)
            if following is None:
                break
            outcome = following
        return result_of(outcome)

    def _forms(self, outcome: CallOutcome) -> Mapping[SuspensionId, Form]:
        """Return the forms of the suspensions that the client can be asked; none without forms on its side."""
        capabilities = self._context.session.client_capabilities
        elicitation = None if capabilities is None else capabilities.elicitation
        has_forms = elicitation is not None and (elicitation.form is not None or elicitation.url is None)
        if not has_forms or not (self._is_modern or self._context.session.can_send_request):
            return {}
        forms = {
            each.suspension_id: form_of(each, self._answer_schema(each))
            for each in outcome.suspensions
            if each.suspension_id not in self._left_open and self._may_answer(each)
        }
        return {name: form for name, form in forms.items() if form is not None}

    def _answer_schema(self, suspension: Suspension) -> Mapping[str, Any] | None:
        """Return the JSON Schema of the answer to a flow's question; None of any other."""
        if self._flow is None or suspension.kind is not SuspensionKind.FLOW:
            return None
        return self._facade.introspection.models.answer_schema(self._flow, suspension.tool_id)

    def _may_answer(self, suspension: Suspension) -> bool:
        permissions = self._principal.permissions
        if suspension.kind in ABOUT_CALLS:
            approvals = suspension.approvals
            has_given = approvals is not None and self._principal.user in {each.user for each in approvals.given}
            return permissions.allows(Permission.APPROVE) and self._rules.self_approval and not has_given
        return permissions.allows(Permission.SEND_MESSAGES)

    def _answers(self, outcome: CallOutcome, responses: Mapping[str, Any]) -> list[GivenAnswer]:
        """Return the answers to what is still open. Raises: RequestFailure (REQUEST_INVALID)."""
        still_open = {each.suspension_id: each for each in outcome.suspensions}
        answers: list[GivenAnswer] = []
        for name, response in responses.items():
            suspension = still_open.get(SuspensionId(name))
            if suspension is not None and isinstance(response, types.ElicitResult):
                answers += self._given(suspension, response)
        return answers

    def _given(self, suspension: Suspension, response: types.ElicitResult) -> list[GivenAnswer]:
        if response.content is not None:
            strict_text(response.content, self._rules.max_depth)
        answer = answer_of(suspension, response.action, response.content, self._answer_schema(suspension))
        if isinstance(answer, LeftOpen):
            self._left_open.add(suspension.suspension_id)
            return []
        return [GivenAnswer(suspension_id=suspension.suspension_id, payload=answer)]

    async def _answer(self, outcome: CallOutcome, answers: Sequence[GivenAnswer]) -> CallOutcome:
        """Give answers that another person may have been faster with."""
        try:
            return await self._resumed(outcome.request_id, answers)
        except RequestFailure as failure:
            if failure.code not in _OUTRUN:
                raise
        return await self._outcome(outcome.request_id)

    async def _resumed(
        self, request_id: RequestId, answers: Sequence[GivenAnswer], *, is_untrusted: bool = False
    ) -> CallOutcome:
        request = ResumeRequest(answers=[*answers])
        subscribe = self._options.subscribe
        resumed = await self._facade.executions.resume(
            self._principal, request_id, request, subscribe=subscribe, is_untrusted=is_untrusted
        )
        if isinstance(resumed, ExecutionHandle):
            return await self._follow(resumed)
        if isinstance(resumed, ResumeAccepted):
            if resumed.events is not None:
                resumed.events.close()
            return CallOutcome.of_view(resumed.view)
        raise RuntimeError("an own execution was resumed like that of another user")

    async def _follow(self, handle: ExecutionHandle) -> CallOutcome:
        """Return the outcome of an execution that runs here. A client that gives up cancels it, outside of sessions."""
        with self._cancelling(handle):
            if handle.subscription is not None:
                await report(handle.subscription, self._report)
            await handle.wait()
        if handle.response is None:
            return await self._outcome(handle.request_id)
        return CallOutcome.of_response(handle.response)

    @contextmanager
    def _cancelling(self, handle: ExecutionHandle) -> Iterator[None]:
        try:
            yield
        except anyio.get_cancelled_exc_class():
            if (self._is_modern or self._rules.cancels) and not handle.is_in_session:
                handle.cancel()
            raise

    async def _report(self, number: float, message: str) -> None:
        await self._context.session.report_progress(number, message=message)

    async def _ask(self, outcome: CallOutcome, forms: Mapping[SuspensionId, Form]) -> CallOutcome | None:
        """Ask form by form; return what follows, None if the person leaves all open."""
        suspensions = {each.suspension_id: each for each in outcome.suspensions}
        for name, form in forms.items():
            response = await self._elicit(outcome.request_id, name, form)
            if response is None:
                return await self._next(outcome)
            answers = self._given(suspensions[name], response)
            if answers:
                return await self._answer(outcome, answers)
        return None

    async def _elicit(self, request_id: RequestId, name: SuspensionId, form: Form) -> types.ElicitResult | None:
        """Return what the person does with a form; None if it was withdrawn, since another has answered."""
        response: types.ElicitResult | None = None
        async with self._events(request_id) as events, anyio.create_task_group() as group:

            async def withdraw() -> None:
                await self._is_answered(events, name)
                group.cancel_scope.cancel()

            group.start_soon(withdraw)
            response = await self._context.session.elicit_form(
                form.message, dict(form.schema), related_request_id=self._context.request_id
            )
            group.cancel_scope.cancel()
        return response

    async def _is_answered(self, events: Subscription, name: SuspensionId) -> None:
        """Return once a suspension has its answer, or the execution rests again, or the service is stopping."""
        while items := await self._items(events):
            for item in items:
                event = item.event if isinstance(item, StoredEvent) else None
                if type(event) in RESTING_EVENTS:
                    return
                if isinstance(event, ExecutionResumed) and event.suspension_id == name:
                    return

    async def _items(self, events: Subscription) -> Sequence[StoredEvent | LiveDelta]:
        """Return the next events; none at their end, or once the service is stopping."""
        while not self._rules.is_stopping():
            with anyio.move_on_after(CHECK_SECONDS):
                return await events.next()
        return ()

    async def _wait(self, outcome: CallOutcome) -> CallOutcome | None:
        """Wait for answers from elsewhere; None if there are none in time, or there is no place to wait."""
        remaining = self._deadline - anyio.current_time()
        if self._left_open or remaining <= 0 or not self._rules.waiting.enter(self._principal):
            return None
        try:
            with anyio.move_on_after(remaining):
                return await self._next(outcome)
        finally:
            self._rules.waiting.leave(self._principal)
        return None

    async def _next(self, before: CallOutcome) -> CallOutcome:
        """Return the outcome once the execution rests elsewhere than before; as it is by then, if the service stops."""
        known = {each.suspension_id for each in before.suspensions}
        async with self._events(before.request_id) as events:
            while True:
                outcome = await self._outcome(before.request_id)
                is_known = {each.suspension_id for each in outcome.suspensions} == known
                if outcome.state in TERMINAL or (outcome.state is State.SUSPENDED and not is_known):
                    return outcome
                if not await self._items(events):
                    return outcome

    @asynccontextmanager
    async def _events(self, request_id: RequestId) -> AsyncIterator[Subscription]:
        """Give the events from now on."""
        view = await self._facade.executions.show(self._principal, request_id)
        events = await self._facade.executions.read(self._principal, request_id, after=view.events)
        try:
            yield events
        finally:
            events.close()

    async def _outcome(self, request_id: RequestId) -> CallOutcome:
        return CallOutcome.of_view(await self._facade.executions.show(self._principal, request_id))


def _flow_of(request: SystemRequest) -> str | None:
    return None if request.flow is None else request.flow.name


def _elicitation(form: Form) -> types.ElicitRequest:
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=form.message, requested_schema=dict(form.schema))
    )
