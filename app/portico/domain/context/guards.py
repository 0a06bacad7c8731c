"""Guards: checks of what clients send, by configuration, before a model reads it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from portico.domain.contract.messages import Message
from portico.domain.contract.request import ExecutionHints, OutputContract, PlanStep, SystemRequest
from portico.domain.contract.rules import Rule
from portico.domain.failures import Code, ValidationFailure
from portico.domain.value import value

GuardType = Literal["rules", "pii", "injection", "judge"]
GuardAction = Literal["refuse", "flag"]
SensitiveKind = Literal["authorization", "token", "password", "secret", "api_key", "email", "card"]
INPUT_RULES: Final = "input_rules"
"""Name under which the rules of a request itself are reported."""
GUARDRAIL_FAILED: Final = "guardrail_failed"
"""Flag of an answer for which a judge that only flags gave no judgement."""
RESERVED_NAMES: Final = frozenset({INPUT_RULES, GUARDRAIL_FAILED, "usage_implausible", "redacted"})
"""Names that a guard must not have, since they mean something else among the flags of an answer."""

_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords of a JSON schema whose members have names of their own."""
_CONSTANTS: Final = frozenset({"const", "enum", "default", "examples"})
_STRUCTURE: Final = frozenset(
    {
        "$schema",
        "$id",
        "$ref",
        "$anchor",
        "$dynamicRef",
        "$dynamicAnchor",
        "type",
        "format",
        "pattern",
        "required",
        "contentEncoding",
        "contentMediaType",
    }
)


@value
class ConfiguredGuard:
    """A guard: the check that it makes, its consequence, and the routes and agents that it is limited to.

    Without `routes` and `agents` it checks every request, otherwise those for any of them. `kinds` belong to type pii,
    `rules` to rules, `patterns` to injection, `intent` and `model` to judge.
    """

    name: str
    type: GuardType
    action: GuardAction = "refuse"
    routes: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    rules: tuple[str | Rule, ...] = ()
    kinds: tuple[SensitiveKind, ...] = ()
    patterns: tuple[str, ...] = ()
    intent: str = ""
    model: str | None = None

    def watches(self, routes: Iterable[str], agents: Iterable[str]) -> bool:
        """Return True if the guard checks a request that may use these routes and agents."""
        if not self.routes and not self.agents:
            return True
        return not frozenset(self.routes).isdisjoint(routes) or not frozenset(self.agents).isdisjoint(agents)


@value(slots=False)
class GuardVerdict:
    """The result of a guard that ran before an execution, or with an answer to its suspension."""

    guard: str
    action: GuardAction
    tripped: bool


@value(slots=False)
class RequestedJudge:
    """A judge of what an execution is asked, as it was configured at admission."""

    guard: str
    action: GuardAction
    intent: str
    model: str | None = None


class InputText(NamedTuple):
    """A text that a client sent; in a JSON value with the key that it stands under.

    A key is such a text itself, and so is a number, which may be one of a card; `is_prose` is False for both.
    """

    text: str
    key: str | None = None
    is_prose: bool = True


def refused_input(guard: str) -> ValidationFailure:
    """Return the failure of an input that a guard refused. It names the guard and nothing of the text."""
    message = f"the guard {guard} of the service refused the input"
    return ValidationFailure(Code.VALIDATION_INPUT_REFUSED, message, {"guard": guard})


def broken_input_rules(violations: Sequence[Mapping[str, Any]]) -> ValidationFailure:
    """Return the failure of an input that breaks the rules of its own request."""
    details = {"guard": INPUT_RULES, "violations": list(violations)}
    return ValidationFailure(Code.VALIDATION_INPUT_REFUSED, "the last user message breaks input.rules", details)


def texts_of_request(request: SystemRequest, instructions: str | None) -> Iterator[InputText]:
    """Yield the texts of a request that models or tools may read, and the instructions of its session."""
    yield from texts_of_messages(request.messages)
    if instructions is not None:
        yield InputText(instructions)
    yield from texts_of_hints(request.hints)
    yield from _texts_of_output(request.output)
    if request.plan is not None:
        for step in request.plan.steps or ():
            yield from _texts_of_step(step)
    if request.flow is not None:
        yield from texts_of_value(request.flow.input)


def texts_of_hints(hints: ExecutionHints) -> Iterator[InputText]:
    """Yield the texts that end an answer, and those of the options of an engine."""
    stop = hints.stop
    yield from map(InputText, () if stop is None else [stop] if isinstance(stop, str) else stop)
    yield from texts_of_value(hints.options)


def _texts_of_output(output: OutputContract) -> Iterator[InputText]:
    """Yield the texts of the format that a model reads, of the intent of a judge, and of paths in violations."""
    if output.schema_ is not None:
        yield from texts_of_schema(output.schema_)
    if output.grammar is not None:
        yield InputText(output.grammar, is_prose=False)
    if isinstance(output.semantic, str):
        yield InputText(output.semantic)
    for rule in output.rules:
        if not isinstance(rule, str):
            yield from _texts_of_rule(rule.model_dump())


def _texts_of_step(step: PlanStep) -> Iterator[InputText]:
    """Yield the texts of a step of a plan: its name, its input and its options."""
    yield InputText(step.name, is_prose=False)
    yield from texts_of_value(step.input)
    options = dict(step.model_extra or {})
    yield from texts_of_schema(options.pop("schema", None))
    rules = options.pop("rules", None)
    for rule in rules if isinstance(rules, list) else ():
        yield from _texts_of_rule(rule)
    yield from texts_of_value(options)


def _texts_of_rule(rule: object) -> Iterator[InputText]:
    """Yield the paths of a rule: a model reads nothing else of it."""
    if isinstance(rule, Mapping):
        paths = (rule.get("path"), rule.get("other"))
        yield from (InputText(path, is_prose=False) for path in paths if isinstance(path, str))


def texts_of_schema(schema: object) -> Iterator[InputText]:
    """Yield the texts of a JSON schema, constants with the name of the member that they belong to.

    Names of members, types, formats, patterns and references are no prose.
    """
    unread: list[tuple[str, str | None, object]] = [("", None, schema)]
    while unread:
        keyword, member, each = unread.pop()
        if keyword in _CONSTANTS:
            yield from texts_of_value(each, member)
        elif isinstance(each, str):
            yield InputText(each, is_prose=keyword not in _STRUCTURE)
        elif isinstance(each, list):
            unread += ((keyword, member, element) for element in each)
        elif isinstance(each, Mapping):
            yield from (InputText(name, is_prose=False) for name in each)
            is_named = keyword in _NAMED
            unread += (("", name, value) if is_named else (name, member, value) for name, value in each.items())
        else:
            yield from texts_of_value(each)


def texts_of_messages(messages: Iterable[Message]) -> Iterator[InputText]:
    """Yield the texts of messages: what they say, their authors' names, and ids, names and arguments of their calls."""
    for message in messages:
        yield InputText(message.text)
        if message.content.__class__ is list:
            yield from (InputText(document.plain_text or document.name or "") for document in message.documents)
        for name in filter(None, (message.name, message.tool_call_id)):
            yield InputText(name, is_prose=False)
        for call in message.tool_calls or ():
            yield InputText(call.id, is_prose=False)
            yield InputText(call.name, is_prose=False)
            yield from texts_of_value(call.arguments)


def texts_of_value(value: object, key: str | None = None) -> Iterator[InputText]:
    """Yield the texts of a JSON value, which stands under the key: its strings, its keys, and its numbers."""
    unread: list[tuple[str | None, object]] = [(key, value)]
    while unread:
        key, each = unread.pop()
        if isinstance(each, str):
            yield InputText(each, key)
        elif isinstance(each, Mapping):
            yield from (InputText(name, is_prose=False) for name in each)
            unread += each.items()
        elif isinstance(each, list | tuple):
            unread += ((key, element) for element in each)
        elif isinstance(each, int | float) and not isinstance(each, bool):
            yield InputText(str(each), key, is_prose=False)
