"""Guards of what comes in: the checks of a request before there is an execution, of an answer, and of chunks.

Guards of the types rules, pii and injection decide here. The judges among them are only selected: they need a model, so
the execution asks them. A refusal names the guard and nothing of the text.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import orjson
from pydantic import JsonValue

from portico.capabilities.answer_contract import AnswerContract, ValidatedAnswer
from portico.capabilities.guards.catalogue import LONG_TEXT, total_length
from portico.domain.agents import models_of
from portico.domain.context.guards import (
    INPUT_RULES,
    ConfiguredGuard,
    GuardVerdict,
    InputText,
    RequestedJudge,
    broken_input_rules,
    refused_input,
    texts_of_request,
    texts_of_value,
)
from portico.domain.contract.request import OutputContract, SystemRequest
from portico.domain.contract.rules import AnswerContent, Rule
from portico.domain.failures import RequestFailure
from portico.domain.plan.parsed_plan import ParsedStep
from portico.domain.plan.steps import STEP_SPECS
from portico.domain.raised_exception import CodeKind
from portico.domain.value import value
from portico.orchestration.contracts import check_contract
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.exception_report import ExceptionReporter
from portico.orchestration.execution.pattern import Pattern


@value
class GuardResult:
    """The verdicts of the guards of an accepted request, and the judges that the execution has to ask."""

    verdicts: tuple[GuardVerdict, ...] = ()
    judges: tuple[RequestedJudge, ...] = ()


_OF_CHUNKS: Final = frozenset({"pii", "injection"})
"""Types of the guards that check chunks of documents, too."""
NOTHING_GUARDED: Final = GuardResult()


async def check_input(
    environment: Environment, pattern: Pattern, request: SystemRequest, instructions: str | None, edits: Sequence[str]
) -> GuardResult:
    """Return what the rules of the request and the guards found in it and in the edits of a fork.

    Raises: as `check_request`; RequestFailure for rules that cannot be checked, or are too costly.
    """
    contract = _input_contract(request)
    if contract is not None:
        try:
            await check_contract(environment, contract)
        except RequestFailure as refusal:
            raise _of_input(refusal) from None
    return await check_request(environment, pattern, request, instructions, edits)


async def check_request(
    environment: Environment,
    pattern: Pattern,
    request: SystemRequest,
    instructions: str | None,
    edits: Sequence[str] = (),
) -> GuardResult:
    """Return what the rules of the request and the guards of the configuration found in it and in a fork's `edits`.

    Raises: ValidationFailure (VALIDATION_INPUT_REFUSED); RequestFailure for rules that cannot be used.
    """
    verdicts = await _check_input_rules(environment, request)
    if environment.guards.is_empty:
        return GuardResult(verdicts)
    guards = _watching(environment, pattern, request)
    texts = [*texts_of_request(request, instructions), *map(InputText, edits)]
    verdicts += await _check(environment, request, guards, texts)
    judges = [RequestedJudge(each.name, each.action, each.intent, each.model) for each in guards if _is_judge(each)]
    return GuardResult(verdicts, tuple(judges))


async def check_later_text(
    pattern: Pattern, request: SystemRequest, environment: Environment, payload: JsonValue
) -> tuple[GuardVerdict, ...]:
    """Return what the guards of an execution found in what came in after its request.

    That is the answer to a suspension, or the text of a document that was fetched.

    Raises: ValidationFailure (VALIDATION_INPUT_REFUSED).
    """
    if environment.guards.is_empty:
        return ()
    guards = _watching(environment, pattern, request)
    return await _check(environment, request, guards, list(texts_of_value(payload)))


async def dropped_chunks(
    pattern: Pattern, request: SystemRequest, environment: Environment, chunks: Sequence[str]
) -> Mapping[int, str]:
    """Return the chunks on which a guard of type pii or injection of the request trips, by index, with its name.

    They are dropped under either action, the guard's name becomes a flag of the answer, and the request goes on.
    """
    guards = [each for each in _watching(environment, pattern, request) if each.type in _OF_CHUNKS]

    def search() -> dict[int, str]:
        tripped: dict[int, str] = {}
        for guard in guards:
            for index, chunk in enumerate(chunks):
                if index not in tripped and environment.guards.trips(guard, [InputText(chunk)]):
                    tripped[index] = guard.name
        return tripped

    if not guards:
        return {}
    is_long = sum(map(len, chunks)) > LONG_TEXT
    return await environment.thread_pool.run(search) if is_long else search()


def _input_contract(request: SystemRequest) -> AnswerContract | None:
    """Return the rules of the request for its input as a contract; None without rules."""
    if request.input is None or not request.input.rules:
        return None
    return AnswerContract(OutputContract(rules=list(request.input.rules)))


def _of_input(refusal: RequestFailure) -> RequestFailure:
    """Return the refusal of unusable rules with their place in the input instead of the output."""
    errors = [{**each, "field": _renamed(each["field"])} for each in refusal.details.get("errors", ())]
    return RequestFailure(refusal.code, _renamed(refusal.message), {"errors": errors})


def _renamed(text: str) -> str:
    return text.replace("output.rules", "input.rules", 1)


async def _check_input_rules(environment: Environment, request: SystemRequest) -> tuple[GuardVerdict, ...]:
    contract = _input_contract(request)
    if contract is None:
        return ()
    text = next((each.text for each in reversed(request.messages) if each.role == "user"), "")
    validated = await _validated(environment, request, contract, text)
    if validated.failure is not None:
        raise broken_input_rules(validated.failure.details.get("violations", ()))
    return (GuardVerdict(INPUT_RULES, "flag", tripped=bool(validated.validation.warnings)),)


async def _check(
    environment: Environment,
    request: SystemRequest,
    guards: Sequence[ConfiguredGuard],
    texts: Sequence[InputText],
) -> tuple[GuardVerdict, ...]:
    """Return the verdicts of these guards without the judges. Raises: ValidationFailure of the first that refuses."""
    verdicts: list[GuardVerdict] = []
    is_long = total_length(texts) > LONG_TEXT
    for guard in guards:
        if _is_judge(guard):
            continue
        if guard.type == "rules":
            tripped = await _breaks_rules(environment, request, guard, texts)
        else:
            search = partial(environment.guards.trips, guard, texts)
            tripped = await environment.thread_pool.run(search) if is_long else search()
        if tripped and guard.action == "refuse":
            raise refused_input(guard.name)
        verdicts.append(GuardVerdict(guard.name, guard.action, tripped))
    return tuple(verdicts)


async def _breaks_rules(
    environment: Environment, request: SystemRequest, guard: ConfiguredGuard, texts: Sequence[InputText]
) -> bool:
    contract = AnswerContract(OutputContract(rules=list(guard.rules)))
    for each in texts:
        if each.is_prose and (await _validated(environment, request, contract, each.text)).failure is not None:
            return True
    return False


async def _validated(
    environment: Environment, request: SystemRequest, contract: AnswerContract, text: str
) -> ValidatedAnswer:
    """Return the text validated where an answer of its size would be: here, on a thread, or by a worker."""
    content = AnswerContent(text, _value_of(text) if _has_path(contract.output.rules) else None)
    if not contract.size.is_small_with(text):
        on_exception = partial(ExceptionReporter(environment, request).report, CodeKind.RULE)
        outcome = await environment.answer_validator.validate(contract.output, content, 1, on_exception)
        return ValidatedAnswer.recorded(text, outcome)
    validated = contract.validate_quickly(content, 1)
    if validated is not None:
        return validated
    return await environment.thread_pool.run(partial(contract.validate, content, 1))


def _has_path(rules: Sequence[str | Rule]) -> bool:
    return any(not isinstance(rule, str) and rule.path is not None for rule in rules)


def _value_of(text: str) -> JsonValue:
    """Return the JSON value that the text is; None for any other text."""
    try:
        value: JsonValue = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value


def _watching(environment: Environment, pattern: Pattern, request: SystemRequest) -> list[ConfiguredGuard]:
    """Return the guards of the routes and agents that the request may use.

    An engine that the request names counts as every route that it is on.
    """
    named = [*_named_tools(environment, request), *pattern.own_tools(request)]
    reached = environment.agents.behind_any(named)
    agents = {*(each.name for each in reached), *pattern.own_agents(request), *filter(None, [request.agent])}
    routes: set[str] = set()
    for model in (*pattern.models(request), *models_of(reached)):
        routes |= _routes_of(environment, model)
    return environment.guards.watching(routes, agents)


def _named_tools(environment: Environment, request: SystemRequest) -> Iterator[str]:
    """Yield the tools that the request names, or else those of its agent."""
    agent = None if request.agent is None else environment.agents.get(request.agent)
    yield from request.tools if request.tools is not None else () if agent is None else agent.tools
    if request.plan is not None:
        for step in request.plan.steps or ():
            if step.type in STEP_SPECS:
                yield from (name for _, name in ParsedStep(step).named_tools)


def _routes_of(environment: Environment, model: str | None) -> set[str]:
    catalogue = environment.catalogue
    name = catalogue.name_of(model)
    return {name} if name in catalogue.routes else {*catalogue.routes_of(name)}


def _is_judge(guard: ConfiguredGuard) -> bool:
    return guard.type == "judge"
