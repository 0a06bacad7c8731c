"""PREPARE: the session's turn and the stages that find out what an execution begins with.

No stage waits, so the effect is instant: it is committed with the INIT event and, if nothing else is waited for, with
the start of the first inference, which is given what the stages have found for it. What has to be waited for is an
effect of its own before it, under a key below that of PREPARE: the search of the memory, if the request asks for it.
Its outcome is recorded, and the stages read it from there. Without it nothing is added to the record.
"""

from collections.abc import Sequence

from portico.capabilities.context.history import inherited_history
from portico.capabilities.models.context_window import Window
from portico.domain.context.summary import SessionSummary
from portico.domain.contract.messages import Message, last_question
from portico.domain.contract.request import SystemRequest
from portico.domain.failures import Failure
from portico.domain.journal.events import ContextAssembled, CorrelationContext, Event, StageEnd
from portico.domain.journal.outcomes import Outcome, Prepared, Refused, Retrieved
from portico.domain.journal.step_key import PREPARE_KEY, RETRIEVAL_KEY
from portico.domain.memory import FoundChunk
from portico.orchestration.execution.effect import Effect
from portico.orchestration.execution.environment import ChunkCheck, Environment
from portico.orchestration.execution.execution import Execution
from portico.orchestration.execution.pattern import Pattern
from portico.orchestration.execution.progress import FirstSetup
from portico.orchestration.execution.retrieval.search import Retrieval, RetrievalQuery
from portico.orchestration.execution.session_turn import SessionTurn
from portico.orchestration.pipeline.stages import (
    PREPARE_STAGES,
    STAGES_BEFORE_RETRIEVAL,
    TOOL_SPLIT,
    Preparation,
    StageTimer,
    build_conversation,
    with_inherited,
    with_skills,
)
from portico.ports.storage import NO_HISTORY, SessionHistory


class Preparer:
    """Prepares one execution: acquires its turn in the session, if it has one, and runs the stages of PREPARE."""

    def __init__(self, execution: Execution, pattern: Pattern, timer: StageTimer) -> None:
        self._execution = execution
        self._pattern = pattern
        self._timer = timer
        session_id = execution.header.request.session_id
        self.turn = None if session_id is None else SessionTurn(execution, session_id)
        self.summary: SessionSummary | None = None
        """The summary of the session's turns that do not fit."""
        self.found: tuple[FoundChunk, ...] = ()
        """The chunks of documents that were found for the request, best first."""
        self.first_setup: FirstSetup | None = None
        """What the stages have found for the first inference."""

    async def acquire_turn(self) -> Sequence[Message]:
        """Wait for the session's turn and return the conversation that a planner reads, which runs before PREPARE."""
        if self.turn is not None:
            await self.turn.acquire()
        if self._pattern.plan is None or self._earlier_messages().message_count == 0:
            return ()
        return build_conversation(self._preparation(self._execution.environment)).messages

    async def run(self, environment: Environment) -> Outcome:
        """Run the stages and return what the execution begins with, or the failure of the stage that refused it."""
        preparation = self._preparation(environment)
        try:
            preparation = await self._timer.run(PREPARE_STAGES, preparation)
        except Failure as refusal:
            return Refused.by(refusal, self._timer.in_seed_order())
        self._keep_setup(preparation)
        return Prepared(
            messages=preparation.messages,
            tools=preparation.tools,
            truncated_history=preparation.cut.messages > 0,
            stages=self._timer.in_seed_order(),
            prior_message_count=preparation.session.message_count,
            left_out=preparation.left_out,
            context=preparation.context,
        )

    async def messages_cut(self) -> tuple[int, Window]:
        """Return how many of the session's first messages do not fit into the context, and its window."""
        preparation = await TOOL_SPLIT.apply(self._preparation(self._execution.environment))
        cut = build_conversation(preparation).cut.messages
        return cut + len(preparation.session.system_messages) if cut else 0, preparation.window

    async def has_room(self) -> bool:
        """Return True if the context has room for retrieved chunks beside all that comes before them."""
        preparation = self._preparation(self._execution.environment)
        try:
            for stage in STAGES_BEFORE_RETRIEVAL:
                preparation = await stage.apply(preparation)
        except Failure:
            # PREPARE will meet the same failure, and reports it.
            return False
        return with_skills(preparation).room > 0

    def _keep_setup(self, preparation: Preparation) -> None:
        """Keep what the first inference is offered, if it reads what was prepared."""
        pattern, window, report = self._pattern, preparation.known_window, preparation.context
        if pattern.starts_with_request and window is not None and report is not None:
            self.first_setup = FirstSetup(
                [*preparation.messages],
                preparation.models,
                preparation.engines,
                preparation.tools,
                preparation.offered_tools,
                preparation.offered,
                window,
                report.terms,
            )

    def _preparation(self, environment: Environment) -> Preparation:
        header, request = self._execution.header, self._execution.header.request
        if header.inherits_whole:
            request = with_inherited(request, header.inherited_messages)
        return Preparation(
            request=request,
            limits=header.bounds,
            pattern=self._pattern,
            environment=environment,
            session=self._earlier_messages(),
            tenant=header.tenant,
            agent=header.agent,
            permissions=header.permissions,
            instructions=header.instructions,
            caller=self._execution.facts.caller,
            client_tools=self._execution.facts.client_tools,
            summary=self.summary,
            found=self.found,
            execution_id=header.execution_id,
        )

    def _earlier_messages(self) -> SessionHistory:
        """Return the messages of the session, or those that were inherited."""
        header = self._execution.header
        if header.inherits_whole:
            return NO_HISTORY
        if header.inherited_messages:
            return inherited_history(header.inherited_messages)
        return NO_HISTORY if self.turn is None else self.turn.history


class PrepareEffect(Effect):
    """PREPARE: the stages that find out what the execution begins with. An offline replay has no preparer."""

    is_instant = True

    def __init__(self, correlation: CorrelationContext, preparer: Preparer | None) -> None:
        self.key = PREPARE_KEY
        self.fingerprint = PREPARE_KEY
        self.correlation = correlation
        self._preparer = preparer

    async def run(self, environment: Environment) -> Outcome:
        """Run the stages."""
        if self._preparer is None:
            raise RuntimeError("an offline replay prepares nothing")
        return await self._preparer.run(environment)

    def end_events(self, outcome: Outcome) -> list[Event]:
        """Return the ends of the stages, and the context if there is more in it than the request."""
        stages = outcome.stages if isinstance(outcome, Prepared | Refused) else ()
        ends: list[Event] = [StageEnd(stage.stage, stage.duration_ms, stage.outcome) for stage in stages]
        report = outcome.context if isinstance(outcome, Prepared) else None
        has_history = isinstance(outcome, Prepared) and outcome.prior_message_count > 0
        if report is not None and (has_history or report.skills or report.excluded or report.chunks):
            chosen = (report.skills, report.excluded, report.chunks)
            ends.append(ContextAssembled(report.terms, report.cut, report.redacted, *chosen))
        return ends


async def retrieve_context(execution: Execution, preparer: Preparer | None, chunk_check: ChunkCheck | None) -> None:
    """Search the memory for what the request asks, unless that is recorded, and give the preparer what was found."""
    has_room = None if preparer is None else preparer.has_room
    query = _query_of(execution.header.request)
    search = Retrieval(execution, RETRIEVAL_KEY, execution.correlation, query, chunk_check, has_room)
    step = await execution.perform(search)
    if preparer is not None and isinstance(step.outcome, Retrieved):
        preparer.found = step.outcome.chunks


def _query_of(request: SystemRequest) -> RetrievalQuery:
    """Return the search for the text of the request's last user message."""
    return RetrievalQuery(last_question(request.messages), request.context.max_chunks, request.context.min_score)
