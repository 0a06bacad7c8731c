"""Stages of the pipeline seed that PREPARE runs: HistorySanitize, ContextGuard, ToolSplit.

A stage takes a value and returns it changed, or raises the Failure that refuses the request. Each runs once and is
timed where it runs. HistorySanitize and ContextGuard count the tokens of the tools that are offered, so ToolSplit runs
before them; the record lists the stages in the order of the seed, which is the order that clients know. AuthResolve
comes before them: the facade asks for the right to send messages, and INIT records how long it took to find the caller.
Execute and FailoverDecide follow: they are sums over the whole execution and are reported by the driver.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Generic, NamedTuple, TypeVar

from portico.capabilities.context.assembly import ContextPieces, assemble
from portico.capabilities.context.compaction import summary_message
from portico.capabilities.context.history import HistoryLimits, SanitizedHistory, sanitize_history, without_history
from portico.capabilities.context.retrieved import retrieved_context
from portico.capabilities.models.context_window import (
    RememberingCounter,
    Window,
    context_exceeded,
    largest_window,
    measure,
)
from portico.capabilities.tools.client_tools import client_offers
from portico.capabilities.tools.registry import ToolRegistry
from portico.domain.access.principal import ALL, Permission, Permissions
from portico.domain.access.tool_policy import ToolCaller
from portico.domain.agents import RequestedAgent
from portico.domain.context.report import NOTHING_CUT, ContextReport, HistoryCut
from portico.domain.context.selection import NO_SKILLS, NOTHING_RETRIEVED, RetrievedContext, SelectedSkills
from portico.domain.context.summary import SessionSummary
from portico.domain.contract.messages import Message, joined, system_prompt
from portico.domain.contract.request import SystemRequest
from portico.domain.fingerprints import fence_mark
from portico.domain.ids import ExecutionId, TenantId
from portico.domain.journal.header import EffectiveLimits
from portico.domain.journal.outcomes import StageTrace
from portico.domain.memory import FoundChunk
from portico.domain.model_call import AttemptFailureReason
from portico.domain.tools import OfferedTool, ToolDefinition
from portico.domain.value import replace, value
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.pattern import Pattern
from portico.orchestration.pipeline.skills import choose_skills, skill_candidates
from portico.ports.model import ConfiguredEngine
from portico.ports.runtime import Clock
from portico.ports.storage import SessionHistory

T = TypeVar("T")


@value
class Stage(Generic[T]):
    """A named step of the pipeline. Raises: the Failure that refuses the request."""

    name: str
    apply: Callable[[T], Awaitable[T]]


@dataclass(slots=True)
class StageTimer:
    """Runs stages and collects their traces, including that of a stage that fails."""

    clock: Clock
    traces: list[StageTrace] = field(default_factory=list)

    async def run(self, stages: Sequence[Stage[T]], value: T) -> T:
        """Run the stages one after the other and return what the last one returns. Raises: what a stage raises."""
        for stage in stages:
            started = self.clock.monotonic()
            outcome = "failed"
            try:
                value = await stage.apply(value)
                outcome = "ok"
            finally:
                self.traces.append(StageTrace(stage.name, (self.clock.monotonic() - started) * 1000, outcome))
        return value

    def in_seed_order(self) -> tuple[StageTrace, ...]:
        """Return the traces in the order of the pipeline seed."""
        by_name = {trace.stage: trace for trace in self.traces}
        return tuple([by_name[name] for name in _SEED_ORDER if name in by_name])


class Preparation(NamedTuple):
    """Inputs of PREPARE and what its stages have found so far; a named tuple, since every stage returns it changed."""

    request: SystemRequest
    limits: EffectiveLimits
    pattern: Pattern
    environment: Environment
    session: SessionHistory
    tenant: TenantId
    agent: RequestedAgent | None = None
    tools: tuple[str, ...] = ()
    """Names of the tools that the execution may offer."""
    offered_tools: tuple[OfferedTool, ...] = ()
    """Tools that are available to the first inference."""
    offered: list[ToolDefinition] = []  # noqa: RUF012 - a default that no stage changes
    """Their definitions, which count towards its context."""
    pieces: ContextPieces = ContextPieces()
    """The conversation that the context is assembled from."""
    cut: HistoryCut = NOTHING_CUT
    redacted: Mapping[str, int] = MappingProxyType({})
    """Number of values of the history that were replaced, by kind."""
    summary: SessionSummary | None = None
    """The summary of the session's turns that do not fit."""
    skills: SelectedSkills = NO_SKILLS
    found: tuple[FoundChunk, ...] = ()
    """The chunks that were found for the request, best first."""
    execution_id: ExecutionId = ExecutionId("")
    retrieved: RetrievedContext = NOTHING_RETRIEVED
    messages: tuple[Message, ...] = ()
    """The assembled context."""
    context: ContextReport | None = None
    permissions: Permissions = ALL
    """Recorded rights of the execution."""
    instructions: str | None = None
    """Instructions of the session, which follow the system prompt."""
    caller: ToolCaller | None = None
    client_tools: tuple[ToolDefinition, ...] = ()
    """The tools that the client runs."""
    models: tuple[str | None, ...] = ()
    """The routes and engines of its inferences, once a stage has looked for them."""
    engines: tuple[ConfiguredEngine, ...] = ()
    """Their engines, in order."""
    known_window: Window | None = None
    """The window of the route, once a stage has looked for it."""
    left_out: tuple[str, ...] = ()
    """Tools beyond the number that may be offered, and those that no chosen skill requires."""

    @property
    def fence_mark(self) -> str:
        """The mark of the fences around untrusted text."""
        return fence_mark(self.execution_id)

    @property
    def room(self) -> int:
        """The tokens that the largest context window of the route has left beside what was chosen so far.

        Skills and then retrieved chunks may take them. The tools count as they are before skills narrow them.
        """
        window = self.window
        used = measure(assemble(self.whole_pieces), self.offered, window.counter).used
        return max(0, window.limit - used)

    @property
    def window(self) -> Window:
        """The window of the route's engines that holds the most text."""
        if self.known_window is not None:
            return self.known_window
        models, environment = self.models or self.pattern.models(self.request), self.environment
        engines = environment.catalogue.engines_for(models)
        return largest_window(engines, self.tenant, environment.token_estimator)

    @property
    def whole_pieces(self) -> ContextPieces:
        """The conversation with the skills and the retrieved context."""
        if not self.skills.messages and self.retrieved.message is None:
            return self.pieces
        return replace(self.pieces, skills=self.skills.messages, retrieved=self.retrieved.message)


async def _tool_split(preparation: Preparation) -> Preparation:
    """Select the tools that the execution may offer; their availability is checked again before every inference."""
    request, pattern, registry = preparation.request, preparation.pattern, preparation.environment.tool_registry
    models, environment = tuple(pattern.models(request)), preparation.environment
    engines = environment.catalogue.engines_for(models)
    window = largest_window(engines, preparation.tenant, environment.token_estimator)
    if preparation.session.message_count:
        window = Window(window.limit, RememberingCounter(window.counter))
    tools = allowed_tools(request, pattern, registry, preparation.agent, preparation.permissions)
    client_tools, most = preparation.client_tools, preparation.limits.tools
    if not tools and not client_tools:
        return preparation._replace(models=models, engines=engines, known_window=window)
    caller, policy = preparation.caller, registry.policy
    if caller is not None and not policy.is_empty:
        tools = tuple([name for name in tools if policy.offers(name, caller)])
    if client_tools:
        own, most = {tool.name for tool in client_tools}, most - len(client_tools)
        tools = tuple([name for name in tools if name not in own])
    tools, left_out = tools[:most], tools[most:]
    offered_tools, offered = registry.offer(tools) if pattern.starts_with_request else ((), [])
    if client_tools and pattern.starts_with_request:
        offered_tools, offered = (*offered_tools, *client_offers(client_tools)), [*offered, *client_tools]
    return preparation._replace(
        models=models,
        engines=engines,
        known_window=window,
        tools=tools,
        left_out=left_out,
        offered_tools=offered_tools,
        offered=offered,
    )


async def _history_sanitize(preparation: Preparation) -> Preparation:
    """Put as much of the session's history before the request's messages as the limits allow."""
    history = build_conversation(preparation)
    return preparation._replace(pieces=history.pieces, cut=history.cut, redacted=history.redacted)


async def _context_guard(preparation: Preparation) -> Preparation:
    """Choose the skills, assemble the context and check the budget equation for the largest window of the route.

    What exceeds it may fit the engines that the route names for `context_exceeded`. Tools count whole for the skills
    and chunks that are chosen beside them, and narrowed in the equation.

    Raises: InferenceFailure (INFERENCE_CONTEXT_EXCEEDED) with every term of the equation.
    """
    if preparation.request.context.skills is not None or preparation.agent is not None:
        preparation = with_skills(preparation)
    if preparation.found:
        preparation = preparation._replace(retrieved=_fitting_chunks(preparation))
    if preparation.skills.tools is not None:
        preparation = _narrowed(preparation, preparation.skills.tools)
    messages, skills = assemble(preparation.whole_pieces), preparation.skills
    window = preparation.known_window or preparation.window
    terms = measure(messages, preparation.offered, window.counter, window.limit)
    if terms.used > terms.limit:
        wider = _window_by_cause(preparation)
        if wider is None:
            raise context_exceeded(terms)
        terms = measure(messages, preparation.offered, wider.counter, wider.limit)
        if terms.used > terms.limit:
            raise context_exceeded(terms)
        # The first inference asks other engines than those that were found before.
        preparation = preparation._replace(known_window=None)
    report = ContextReport(
        terms,
        preparation.cut,
        dict(preparation.redacted),
        skills.skills,
        skills.excluded,
        preparation.retrieved.chunks,
    )
    return preparation._replace(messages=messages, context=report)


def _window_by_cause(preparation: Preparation) -> Window | None:
    """Return the largest window of the engines that are asked if the context exceeds all others, if there are any."""
    environment, models = preparation.environment, preparation.models or preparation.pattern.models(preparation.request)
    engines = [
        engine
        for model in models
        for engine in environment.catalogue.causes_of(model).get(AttemptFailureReason.CONTEXT_EXCEEDED, ())
    ]
    return largest_window(engines, preparation.tenant, environment.token_estimator) if engines else None


def with_skills(preparation: Preparation) -> Preparation:
    """Return the preparation with the requested skills that fit."""
    library = preparation.environment.skills
    if library is None:
        return preparation
    names = skill_candidates(library.catalogue, preparation.request, preparation.agent)
    if not names:
        return preparation
    selected = choose_skills(library, names, preparation.tools, preparation.room, preparation.window.counter)
    return preparation._replace(skills=selected)


def _narrowed(preparation: Preparation, required: Collection[str]) -> Preparation:
    """Return the preparation with only those tools that the chosen skills require."""
    left_out = tuple([name for name in preparation.tools if name not in required])
    return preparation._replace(
        tools=tuple([name for name in preparation.tools if name in required]),
        offered_tools=tuple([tool for tool in preparation.offered_tools if tool.name not in left_out]),
        offered=[definition for definition in preparation.offered if definition.name not in left_out],
        left_out=(*preparation.left_out, *left_out),
    )


def _fitting_chunks(preparation: Preparation) -> RetrievedContext:
    """Return the found chunks with the message of those that fit beside all else."""
    prompts, counter = preparation.environment.prompts, preparation.window.counter
    return retrieved_context(preparation.found, preparation.room, prompts, counter, preparation.fence_mark)


AUTH_RESOLVE: Final = "AuthResolve"
"""Name of the stage before INIT, in which a refused caller leaves no execution behind."""
HISTORY_SANITIZE: Final = Stage("HistorySanitize", _history_sanitize)
CONTEXT_GUARD: Final = Stage("ContextGuard", _context_guard)
TOOL_SPLIT: Final = Stage("ToolSplit", _tool_split)
PREPARE_STAGES: Final[Sequence[Stage[Preparation]]] = (TOOL_SPLIT, HISTORY_SANITIZE, CONTEXT_GUARD)
"""Stages of PREPARE in the order in which they run."""
STAGES_BEFORE_RETRIEVAL: Final = PREPARE_STAGES[:-1]
"""Stages that find what comes before retrieved context; the last one chooses the chunks that fit beside it."""
_SEED_ORDER: Final = tuple(stage.name for stage in (HISTORY_SANITIZE, CONTEXT_GUARD, TOOL_SPLIT))


def allowed_tools(
    request: SystemRequest,
    pattern: Pattern,
    registry: ToolRegistry,
    agent: RequestedAgent | None = None,
    permissions: Permissions = ALL,
) -> tuple[str, ...]:
    """Return the names of the registered tools that request, agent and rights together allow, available or not.

    Agents are tools only where they are named. The tools of the request's `agent` are named by it.
    """
    named = request.tools if agent is None else agent.allowed(request.tools)
    if named is not None:
        return permissions.permitted_tools(registry.names(named))
    if not pattern.offers_all_tools:
        return ()
    names = registry.names_without_agents
    return tuple(names) if permissions is ALL else permissions.permitted_tools(names)


def expected_messages(preparation: Preparation) -> tuple[Message, ...]:
    """Return the messages of the first inference as far as they are known before any stage."""
    preparation = preparation._replace(pieces=build_conversation(preparation).pieces)
    return assemble(with_skills(preparation).whole_pieces)


def with_inherited(request: SystemRequest, inherited: Sequence[Message]) -> SystemRequest:
    """Return the request with the inherited messages as its own, so that they are read whole."""
    return request.model_copy(update={"messages": list(joined(inherited, request.messages))})


def build_conversation(preparation: Preparation) -> SanitizedHistory:
    """Return the conversation that the first inference reads: the latest turns that fit, then the request.

    The prompt of the agent comes before every other.
    """
    own, agents_own = preparation.request.messages, tuple[Message, ...]()
    if preparation.instructions is not None:
        own = _with_instructions(preparation, preparation.instructions)
    if preparation.agent is not None:
        agents_own = preparation.agent.messages
    if preparation.session.message_count == 0:
        history = without_history(own)
    else:
        history = _with_session(preparation, own, agents_own)
    if agents_own:
        pieces = replace(history.pieces, system=(*agents_own, *history.pieces.system))
        history = replace(history, pieces=pieces)
    return history


def _with_session(preparation: Preparation, own: Sequence[Message], agents_own: Sequence[Message]) -> SanitizedHistory:
    """Return the request's `own` messages after those of the session that fit, beside the prompt of the agent."""
    limits, window = preparation.limits, preparation.window
    counter = window.counter
    tokens = window.limit - counter.tools(preparation.offered)
    tokens -= sum(map(counter.message, agents_own))
    redacts = not preparation.permissions.allows(Permission.VIEW_FULL_HISTORY)
    history_limits = HistoryLimits(
        limits.history_messages, limits.history_tokens, tokens, redacts, leaves_room=bool(preparation.offered)
    )
    history = sanitize_history(own, preparation.session, history_limits, counter)
    if preparation.summary is not None and history.cut.messages:
        history = _with_summary(preparation, preparation.summary, history, own, history_limits)
    return history


def _with_summary(
    preparation: Preparation,
    summary: SessionSummary,
    history: SanitizedHistory,
    own: Sequence[Message],
    limits: HistoryLimits,
) -> SanitizedHistory:
    """Return the history with the summary before it, in the same room; as it is if the summary takes all of it."""
    counter = preparation.window.counter
    message = summary_message(summary, preparation.environment.prompts, preparation.fence_mark)
    size = counter.message(message)
    used = sum(map(counter.message, (*history.pieces.system, *history.pieces.request)))
    if size > limits.history_tokens(used):
        return history
    smaller = replace(limits, tokens=limits.tokens - size, conversation_tokens=limits.conversation_tokens - size)
    cut_again = sanitize_history(own, preparation.session, smaller, counter)
    cut = replace(cut_again.cut, summarised=min(summary.covered, cut_again.cut.messages))
    return replace(cut_again, pieces=replace(cut_again.pieces, summary=message), cut=cut)


def _with_instructions(preparation: Preparation, instructions: str) -> list[Message]:
    """Return the messages of the request with the session's instructions behind the system prompt."""
    own = preparation.request.messages
    own_prompt = system_prompt(own)
    prompt = own_prompt or tuple(preparation.session.system_messages)
    return [*prompt, Message(role="system", content=instructions), *own[len(own_prompt) :]]
