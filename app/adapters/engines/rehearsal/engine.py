"""An engine without a model: deterministic, always there, and open about what it is.

It calls an offered tool when the last user message means one and no result stands behind that message yet, and tells
the results when they do; otherwise it says what it is and what it was told. Told that its answer was refused, it goes
back to the message that it answered. Asked for a form it answers in it: a value that fits the schema, made of what the
message and the results say where they say it, or the shortest text of the grammar. Asked for a plan it makes one of
the request. The same call gives the same reply.

A text in the last user message makes it misbehave, at every attempt, so that retries and failover can be watched:
`[[fail:429]]` fails as an HTTP status does, `[[slow:2]]` waits that many seconds first, `[[garble]]` breaks off as a
malformed reply, in a stream after its first words. A judge finds an answer good unless `[[refuse]]` stands in what it
is told, which holds the message that was answered. Refused: failing a number of times and then answering, since that
needs memory of earlier attempts; two engines in a route show a recovery as well, and a script of two entries shows an
answer that does not fit before one that does.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import checkpoint

from app.adapters.engines.rehearsal.plans import make_plan
from app.adapters.engines.rehearsal.schema_values import fill, match_forced_tool
from app.adapters.engines.rehearsal.text_arguments import ToolMatch, match_tool
from app.adapters.engines.unsupported import ALL_ROLES, DEFAULT_NAMES, unsent_message_parts, unsent_options
from app.adapters.engines.wire.faults import reason_by_status
from app.capabilities.models.tokens import EstimatingTokenCounter
from app.capabilities.output.grammar import Grammar, GrammarError
from app.capabilities.prompting.prompts.assessment import SemanticValidationOutput
from app.capabilities.prompting.prompts.output_format import REJECTED_ANSWER_NOTICE
from app.domain.contract.messages import Message, ToolCall
from app.domain.contract.request import ExecutionHints, NamedTool
from app.domain.contract.response import TokenUsage
from app.domain.model_call import AttemptFailureReason, EngineCall, Reply
from app.ports.model import EngineError, EngineProfile, Progress
from app.ports.runtime import Clock

MODEL = "rehearsal"
_ECHOED = 300
_GARBLED_WORDS = 3
_PIECE = 8
_COUNTER = EstimatingTokenCounter()
_JUDGEMENT = SemanticValidationOutput.model_json_schema()
_DIRECTIVE = re.compile(
    r"\[\[(?:fail:(?P<fail>\d{3})|slow:(?P<slow>\d{1,6}(?:\.\d{1,3})?)|(?P<garble>garble)|(?P<refuse>refuse))\]\]"
)


class RehearsalEngine:
    """Implements `ports.Engine`. Token counts are estimates; `hints.max_tokens` and `hints.stop` end a text early.

    `tool_choice` is obeyed: under `required`, or a tool's name, arguments that the message lacks are made up by their
    type. Results are told all the same once they are there, or no such conversation would end.
    """

    def __init__(self, profile: EngineProfile, clock: Clock) -> None:
        self._profile = profile
        self._clock = clock
        self._one_at_a_time = CapacityLimiter(1)

    @property
    def profile(self) -> EngineProfile:
        return self._profile

    async def ping(self) -> str:
        """Always there."""
        return "rehearsal: answers without a model"

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        """Answers, or does what a directive in the last user message says."""
        turn = _turn(call.messages)
        directives = _directives(turn.text)
        used = _COUNTER.messages(call.messages) + _COUNTER.tools(call.tools)
        progress.usage(_usage(used, 0))
        if directives.seconds:
            await self._clock.sleep(directives.seconds)
        if directives.reason is not None:
            raise EngineError(directives.reason, f"rehearsed: the message asked for {directives.status}")
        reply = await self._reply(turn, call, used)
        words = _pieces(reply.text, call) if stream else []
        for word in words[:_GARBLED_WORDS] if directives.garble else words:
            progress.text(word)
            await checkpoint()
        if directives.garble:
            raise EngineError(AttemptFailureReason.MALFORMED, "rehearsed: the message asked for a garbled reply")
        return reply

    async def _reply(self, turn: "_Turn", call: EngineCall, used: int) -> Reply:
        """What has a form is made on a thread, one at a time: finding a value that fits can take a while."""
        if call.schema is None and call.grammar is None:
            return _reply(turn, call, used)
        return await to_thread.run_sync(_reply, turn, call, used, limiter=self._one_at_a_time)


@dataclass(frozen=True, slots=True)
class _Turn:
    """The last user message and the tool results behind it."""

    text: str
    results: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class _Directives:
    seconds: float
    status: int | None
    reason: AttemptFailureReason | None
    garble: bool
    refuse: bool


def _turn(messages: Sequence[Message]) -> _Turn:
    last = max((index for index, message in enumerate(messages) if _is_asked(message)), default=-1)
    text = messages[last].text if last >= 0 else ""
    return _Turn(text, tuple(message for message in messages[last + 1 :] if message.role == "tool"))


def _is_asked(message: Message) -> bool:
    """Whether it is a user's message, and not what is told of an answer that was refused."""
    return message.role == "user" and not message.text.startswith(REJECTED_ANSWER_NOTICE)


def _directives(text: str) -> _Directives:
    """What the message asks for; of two of a kind the first counts."""
    asked: dict[str, str] = {}
    for found in _DIRECTIVE.finditer(text):
        asked = {key: value for key, value in found.groupdict().items() if value} | asked
    status = int(asked["fail"]) if "fail" in asked else None
    return _Directives(float(asked.get("slow", 0)), status, _reason(status), "garble" in asked, "refuse" in asked)


def _reason(status: int | None) -> AttemptFailureReason | None:
    """What an HTTP dialect makes of the status; one that is no failure is no reply of the protocol either."""
    if status is None:
        return None
    return reason_by_status(status)


def _reply(turn: _Turn, call: EngineCall, used: int) -> Reply:
    text = _DIRECTIVE.sub("", turn.text).strip()
    chosen = None if turn.results else _chosen(call, text)
    if chosen is not None:
        asked = ToolCall(id=f"call_{len(call.messages)}", name=chosen.tool.name, arguments=chosen.arguments)
        written = _COUNTER.messages([Message(role="assistant", content="", tool_calls=[asked])])
        return Reply("", (asked,), "tool", "tool", _usage(used, written), MODEL, withheld=_unheeded(call))
    answer, finish = _held(_answer(turn, call, text), call.hints)
    return Reply(answer, (), finish, finish, _usage(used, _COUNTER.text(answer)), MODEL, withheld=_unheeded(call))


def _unheeded(call: EngineCall) -> tuple[str, ...]:
    hints = call.hints
    heeded = {"max_tokens": hints.max_tokens, "stop": hints.stop, "tool_choice": hints.tool_choice, "grammar": None}
    return (*unsent_options(call, DEFAULT_NAMES, heeded), *unsent_message_parts(call.messages, ALL_ROLES))


def _answer(turn: _Turn, call: EngineCall, text: str) -> str:
    """In the form that is asked for, else in words."""
    if call.schema == _JUDGEMENT:
        return _judgement(_directives(turn.text)).model_dump_json()
    if call.schema is not None:
        plan = _plan(call.schema, call)
        if plan is not None:
            return orjson.dumps(plan).decode()
        said = "\n\n".join([text, *(result.text for result in turn.results)])
        return orjson.dumps(fill(call.schema, said.strip())).decode()
    if call.grammar is not None:
        return _shortest(call.grammar) or _echo(text)
    return _told(turn.results) if turn.results else _echo(text)


def _judgement(directives: _Directives) -> SemanticValidationOutput:
    if directives.refuse:
        return SemanticValidationOutput(valid=False, score=0, issues=("Rehearsed: the message asked for a refusal.",))
    return SemanticValidationOutput(valid=True, score=1)


def _shortest(grammar: str) -> str:
    """Empty for a grammar that cannot be used, or whose texts are all too long."""
    try:
        return Grammar(grammar).shortest()
    except GrammarError:
        return ""


def _pieces(text: str, call: EngineCall) -> list[str]:
    """What a stream brings: words, or some characters each of what has a form."""
    in_words = call.schema is None and call.grammar is None
    return re.findall(r"\s*\S+|\s+$" if in_words else rf"(?s:.{{1,{_PIECE}}})", text)


def _plan(schema: Mapping[str, Any], call: EngineCall) -> dict[str, Any] | None:
    return make_plan(schema, [_DIRECTIVE.sub("", message.text) for message in call.messages if message.role == "user"])


def _chosen(call: EngineCall, text: str) -> ToolMatch | None:
    tools, choice = call.tools, call.hints.tool_choice
    if isinstance(choice, NamedTool):
        named = [tool for tool in tools if tool.name == choice.name]
        plans = (ToolMatch(tool, plan) for tool in named if (plan := _plan(tool.parameters, call)) is not None)
        return next(plans, None) or match_forced_tool(named, text)
    if choice == "required":
        return match_tool(tools, text) or match_forced_tool(tools, text)
    return None if choice == "none" else match_tool(tools, text)


def _told(results: Sequence[Message]) -> str:
    told = (f"{result.name or 'A tool'} answered: {result.text}" for result in results)
    return "\n".join(["This is the rehearsal engine, no model was asked.", *told])


def _echo(text: str) -> str:
    shown = " ".join(text.split())
    shown = shown if len(shown) <= _ECHOED else f"{shown[:_ECHOED]}…"
    return f'This is the rehearsal engine, no model was asked. You wrote: "{shown}"'


def _held(text: str, hints: ExecutionHints) -> tuple[str, str]:
    """The text as far as the hints let it go, and why it ends there."""
    stops = [hints.stop] if isinstance(hints.stop, str) else hints.stop or []
    text = text[: min((text.find(stop) for stop in stops if stop in text), default=len(text))]
    if hints.max_tokens is None or _COUNTER.text(text) <= hints.max_tokens:
        return text, "stop"
    sizes = range(len(text) + 1)
    fitting = bisect_right(sizes, hints.max_tokens, key=lambda size: _COUNTER.text(text[:size]))
    return text[: fitting - 1], "length"


def _usage(read: int, written: int) -> TokenUsage:
    return TokenUsage(input_tokens=read, output_tokens=written, total_tokens=read + written, estimated=True)
