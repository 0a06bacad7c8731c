"""Setup of an inference: the tools and the candidates that there are now, and what is cut to fit them."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from portico.capabilities.limits.caps import CallSize
from portico.capabilities.limits.quotas import unpriced_failure
from portico.capabilities.models.balancer import Choice, Order, order
from portico.capabilities.models.catalogue import EngineCatalogue
from portico.capabilities.models.context_window import (
    Window,
    capacity,
    context_exceeded,
    largest_window,
    measure,
    results_to_cut,
    with_results_cut,
)
from portico.capabilities.models.deployments import DeployedEngine
from portico.capabilities.models.format_enforcement import candidate_for, choose_enforcement, submit_description
from portico.capabilities.models.tokens import message_sizes
from portico.capabilities.tools.client_tools import client_offers
from portico.domain.context.report import ContextTerms
from portico.domain.journal.outcomes import Candidate, CauseCandidates, InferenceSetup, Refused
from portico.domain.journal.step_key import PREPARE_KEY, StepKey
from portico.domain.model_call import AttemptFailureReason, EngineCall
from portico.domain.tools import OfferedTool, ToolDefinition
from portico.domain.value import replace
from portico.orchestration.execution.branch_settings import BranchSettings, permitted_tools
from portico.orchestration.execution.execution import Execution
from portico.orchestration.execution.progress import Conversation, FirstSetup
from portico.ports.model import ConfiguredEngine, EngineProfile

FoundSetup: TypeAlias = tuple[InferenceSetup, EngineCall, float]
"""The setup, the call with the tools that are offered, and its estimated tokens without correction."""
Place: TypeAlias = tuple[Execution, StepKey, Conversation, ContextTerms]
"""Where an inference stands: its execution, key and conversation, and the terms of that."""


def find_setup(
    execution: Execution,
    key: StepKey,
    settings: BranchSettings,
    conversation: Conversation,
    call: EngineCall,
) -> FoundSetup | Refused:
    """Return the setup as it is now. That of the first inference has been found by PREPARE, unless something changed.

    A conversation that exceeds the windows of the route begins with the engines for `context_exceeded`, if the route
    names any. It is a refusal if the conversation exceeds every context window, or if no engine has a price and the
    caller has a cost limit.
    """
    environment = execution.environment
    cut: tuple[int, ...] = ()
    first, conversation.first_setup = conversation.first_setup, None
    needs_price = execution.facts.quota is not None and execution.facts.quota.has_cost_limit
    causes = (
        _causes(environment.catalogue, settings.model, needs_price=needs_price)
        if environment.catalogue.by_cause
        else {}
    )
    engines: Sequence[ConfiguredEngine]
    if first is not None and not needs_price and _is_of(first, execution, settings, conversation):
        engines, tools, definitions = first.engines, first.tools, first.definitions
        window, terms = first.window, first.terms
    else:
        engines = _engines(environment.catalogue, settings.model, conversation)
        if needs_price:
            engines = [engine for engine in engines if engine.profile.price is not None]
            if not engines:
                return Refused.by(unpriced_failure())
        tools, definitions = offer_tools(execution, settings, settings.tools)
        window = largest_window(engines, execution.header.tenant, environment.token_estimator)
        terms, cut, fits = _measured(conversation, definitions, window)
        larger = causes.get(AttemptFailureReason.CONTEXT_EXCEEDED)
        if larger and (cut or not fits):
            del causes[AttemptFailureReason.CONTEXT_EXCEEDED]
            engines, window = larger, largest_window(larger, execution.header.tenant, environment.token_estimator)
            terms, cut, fits = _measured(conversation, definitions, window)
        if not fits:
            return Refused.by(context_exceeded(terms))
    if definitions:
        call = EngineCall(call.messages, definitions, call.hints, call.schema, call.grammar)
    if len(engines) > 1:
        engines = [engine for engine in engines if _fits(engine, window, terms.used, execution)]
    place = execution, key, conversation, terms
    candidates, left_out, closed_for = _candidates(call, engines, place)
    by_cause = () if not causes else _by_cause(call, causes, window, place)
    setup = InferenceSetup(tools, candidates, left_out, closed_for, cut, terms, by_cause)
    return setup, call, terms.used / window.counter.ratio


def offer_tools(
    execution: Execution, settings: BranchSettings, names: Sequence[str]
) -> tuple[tuple[OfferedTool, ...], list[ToolDefinition]]:
    """Return those of the tools that are available now, those of the client, and that with which the model hands in
    its answer.

    Policy is asked anew. A replica is offered no tool that acts or waits for a person.
    """
    environment = execution.environment
    registry = environment.tool_registry
    if names and (settings.replica is not None or not registry.policy.is_empty):
        names = permitted_tools(environment, settings, names)
    tools, definitions = registry.offer(names) if names else ((), [])
    if settings.client_tools:
        tools, definitions = (*tools, *client_offers(settings.client_tools)), [*definitions, *settings.client_tools]
    if settings.submit is None:
        return tools, definitions
    description, submit = submit_description(environment.prompts), settings.submit
    if description != submit.description:
        submit = replace(submit, description=description)
    return (*tools, OfferedTool(submit.name, unsafe=False)), [*definitions, submit]


def _is_of(first: FirstSetup, execution: Execution, settings: BranchSettings, conversation: Conversation) -> bool:
    """Return True if PREPARE has found the setup of this inference, and nothing was waited for since."""
    return (
        PREPARE_KEY in [step.key for step in execution.recorder.pending_steps]
        and first.models == (settings.model,)
        and first.names == settings.tools
        and settings.submit is None
        and settings.replica is None
        and first.messages == conversation.messages
    )


def _measured(
    conversation: Conversation, definitions: Sequence[ToolDefinition], window: Window
) -> tuple[ContextTerms, tuple[int, ...], bool]:
    """Return the terms of the conversation, what is cut of it to fit, and whether it does fit then."""
    messages, counter = conversation.messages, window.counter
    terms = measure(messages, definitions, counter, window.limit, message_sizes(messages, conversation.sizes))
    over = terms.used - terms.limit
    if over <= 0:
        return terms, (), True
    cut = results_to_cut(messages, turn_starts=conversation.turn_start, over=over, counter=counter)
    terms = measure(with_results_cut(messages, cut), definitions, counter, terms.limit)
    return terms, cut, terms.used <= terms.limit


def _fits(engine: ConfiguredEngine, widest: Window, used: int, execution: Execution) -> bool:
    """Return True if what uses so much of the widest window fits that of the engine, in the tokens of its model."""
    counter = execution.environment.token_estimator.counter(execution.header.tenant, engine.profile.model)
    if counter.ratio == widest.counter.ratio:
        return used <= capacity(engine)
    return used / widest.counter.ratio * counter.ratio <= capacity(engine)


def _engines(catalogue: EngineCatalogue, model: str | None, conversation: Conversation) -> Sequence[ConfiguredEngine]:
    """Return the engines in the order in which they are asked.

    The one that answered last comes first; after a rejected answer, on a rerouting route, it comes last.
    """
    engines, speaker = catalogue.resolve(model), conversation.speaker
    if len(engines) == 1 or speaker is None:
        return engines
    last = speaker.provider
    if not (conversation.was_rejected and catalogue.reroutes_rejected_answers(model)):
        return sorted(engines, key=lambda engine: engine.profile.name != last)
    after = next((index + 1 for index, engine in enumerate(engines) if engine.profile.name == last), 0)
    return [*engines[after:], *engines[:after]]


def _causes(
    catalogue: EngineCatalogue, model: str | None, *, needs_price: bool
) -> dict[AttemptFailureReason, Sequence[ConfiguredEngine]]:
    """Return the engines that are asked after a failure, by cause; only those with a price, if one is needed."""
    return {
        cause: [engine for engine in engines if engine.profile.price is not None or not needs_price]
        for cause, engines in catalogue.causes_of(model).items()
    }


def _by_cause(
    call: EngineCall,
    causes: Mapping[AttemptFailureReason, Sequence[ConfiguredEngine]],
    window: Window,
    place: Place,
) -> tuple[CauseCandidates, ...]:
    """Return the candidates of each cause, of those engines whose window holds the conversation."""
    execution, _, _, terms = place
    found = (
        CauseCandidates(
            cause,
            tuple(
                candidate_for(call, profile, choose_enforcement(call, profile))
                for engine in engines
                if _fits(engine, window, terms.used, execution)
                for profile in _profiles(engine, place)
            ),
        )
        for cause, engines in causes.items()
    )
    return tuple(each for each in found if each.candidates)


def _profiles(engine: ConfiguredEngine, place: Place) -> Sequence[EngineProfile]:
    """Return the profiles of an engine's candidates, those behind an open breaker included."""
    if not isinstance(engine, DeployedEngine):
        return [engine.profile]
    found = _order(engine, place)
    return [each.profile for each in (*found.tried, *found.left_out)][: engine.most]


def _candidates(
    call: EngineCall, engines: Sequence[ConfiguredEngine], place: Place
) -> tuple[tuple[Candidate, ...], tuple[Candidate, ...], float]:
    """Return the engines whose breaker allows an attempt, the others, and in how many seconds one of these does."""
    candidates, left_out, seconds_until_probe = [], [], []
    breakers = place[0].environment.health.breakers
    has_format = call.schema is not None or call.grammar is not None
    for engine in engines:
        if isinstance(engine, DeployedEngine):
            found = _order(engine, place)
            for each in found.tried:
                way = choose_enforcement(call, each.profile) if has_format else None
                candidates.append(candidate_for(call, each.profile, way))
            left_out += [candidate_for(call, each.profile, None) for each in found.left_out]
            seconds_until_probe += [found.closed_for] if found.left_out else []
            continue
        breaker = breakers[engine.profile.name]
        if breaker.allows_attempt:
            way = choose_enforcement(call, engine.profile) if has_format else None
            candidates.append(candidate_for(call, engine.profile, way))
        else:
            left_out.append(candidate_for(call, engine.profile, None))
            seconds_until_probe.append(breaker.seconds_until_probe)
    return tuple(candidates), tuple(left_out), min(seconds_until_probe, default=0.0)


def _order(engine: DeployedEngine, place: Place) -> Order:
    """Return the order of an engine's deployments for an inference."""
    execution, key, conversation, terms = place
    header, environment = execution.header, execution.environment
    written = header.request.hints.max_tokens or engine.profile.response_reserve
    speaker = conversation.speaker
    session_id = header.request.session_id
    choice = Choice(
        seed=session_id or f"{header.execution_id}:{key}",
        in_session=session_id is not None,
        last=None if speaker is None or speaker.provider != engine.profile.name else speaker.deployment,
        size=CallSize(terms.used + written, 0.0),
    )
    return order(engine, choice, environment.health, environment.catalogue.lanes)
