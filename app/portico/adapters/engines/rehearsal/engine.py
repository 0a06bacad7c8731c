"""An engine without a model: deterministic, always available, and open about what it is.

It calls an offered tool when the last user message means one and has no result yet, and repeats the results when it
has. Otherwise it says what it is and repeats the message. After a rejected answer it returns to the message that it
answered. A requested format is kept as far as its schema is simple: with values that the message and the results name
and invented ones, or with the shortest text of a grammar. A requested plan is made from the request. The same call
gives the same reply.

A directive in the last user message makes it misbehave, at every attempt, so that retries and failover can be watched:
`[[fail:429]]` fails as that HTTP status does, `[[slow:2]]` waits that many seconds first, `[[garble]]` ends as a
malformed reply, in a stream after its first words. As a judge it accepts every answer and every input unless it
reads `[[refuse]]`. A plan in passes converges at once, with `[[again:2]]` after two refinements.
Failing a number of times and then answering is not supported, since that needs memory of earlier attempts: two engines
in a route show a recovery too, and a script of two entries shows an invalid answer before a valid one.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from anyio import to_thread
from anyio.lowlevel import checkpoint

from portico.adapters.engines.rehearsal.phases import answer_phase
from portico.adapters.engines.rehearsal.plans import make_plan, quoted_by
from portico.adapters.engines.rehearsal.schema_values import fill
from portico.adapters.engines.rehearsal.tool_choice import ToolMatch, match_forced_tool, match_tool
from portico.adapters.engines.unsupported import ALL_ROLES, DEFAULT_NAMES, unsent_message_parts, unsent_options
from portico.adapters.engines.wire.faults import reason_by_status
from portico.capabilities.models.context_window import count_tokens
from portico.capabilities.models.tokens import UNCORRECTED
from portico.capabilities.output.grammar import Grammar, GrammarError
from portico.capabilities.prompting.prompts.assessment import AnswerJudgementOutput, InputJudgementOutput
from portico.capabilities.prompting.prompts.output_format import REJECTED_ANSWER_NOTICE
from portico.domain.contract.messages import Message, ToolCall
from portico.domain.contract.request import ExecutionHints, NamedTool
from portico.domain.contract.response import TokenUsage
from portico.domain.memory import DEFAULT_DIMENSION
from portico.domain.model_call import AttemptFailureReason, EngineCall, Reply
from portico.domain.value import value
from portico.ports.memory import Embeddings
from portico.ports.model import EngineError, EngineProfile, Progress
from portico.ports.runtime import Clock

MODEL: Final = "rehearsal"
NOTICE: Final = "This is the rehearsal engine, no model was asked."
_ECHO_CHARACTERS: Final = 300
_GARBLED_WORDS: Final = 3
_VERDICT_SCHEMA: Final = AnswerJudgementOutput.model_json_schema()
_INPUT_VERDICT_SCHEMA: Final = InputJudgementOutput.model_json_schema()
_DIRECTIVE: Final = re.compile(
    r"\[\[(?:fail:(?P<fail>\d{3})|slow:(?P<slow>\d{1,6}(?:\.\d{1,3})?)|(?P<garble>garble)|(?P<refuse>refuse))\]\]"
)


class RehearsalEngine:
    """Implements `Engine`. Token counts are estimates; `hints.max_tokens` and `hints.stop` end a text early.

    `tool_choice` is obeyed: for `required` or a tool's name, missing arguments are invented by their type. Results
    that are there are repeated all the same, so that every conversation ends.
    """

    def __init__(self, profile: EngineProfile, clock: Clock) -> None:
        self.profile = profile
        self._clock = clock

    async def ping(self) -> str:
        return "rehearsal: answers without a model"

    async def embed(self, texts: Sequence[str], dimension: int | None) -> Embeddings:
        """Return hashed n-grams; a directive in a text is obeyed. Raises: EngineError."""
        directives = _directives(" ".join(texts))
        if "slow" in directives:
            await self._clock.sleep(float(directives["slow"]))
        _fail_as(directives)

        def make() -> list[bytes]:
            # numpy is imported when it is used first, by a thread, since it takes 0.1 s.
            from portico.capabilities.memory.hashed_ngrams import hashed_vectors  # noqa: PLC0415 - see above

            return hashed_vectors(texts, dimension or DEFAULT_DIMENSION)

        return Embeddings(await to_thread.run_sync(make), sum(map(UNCORRECTED.text, texts)))

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        turn = _last_turn(call.messages)
        directives = turn.directives
        read_tokens = count_tokens(call, UNCORRECTED)
        progress.usage(_usage(read_tokens, 0))
        if "slow" in directives:
            await self._clock.sleep(float(directives["slow"]))
        _fail_as(directives)
        reply = _reply(turn, call, read_tokens)
        words = _stream_pieces(reply.text, call) if stream else []
        for word in words[:_GARBLED_WORDS] if "garble" in directives else words:
            progress.text(word)
            await checkpoint()
        if "garble" in directives:
            raise EngineError(AttemptFailureReason.MALFORMED, "rehearsed: the message asked for a garbled reply")
        return reply


@value
class _Turn:
    """The last user message, without its directives, and the tool results after it."""

    text: str
    directives: Mapping[str, str]
    results: tuple[Message, ...]


def _last_turn(messages: Sequence[Message]) -> _Turn:
    last = max((index for index, message in enumerate(messages) if _is_request(message)), default=-1)
    text = _asked_text(messages[last].text) if last >= 0 else ""
    directives = _directives(text)
    results = tuple(message for message in messages[last + 1 :] if message.role == "tool")
    return _Turn(_DIRECTIVE.sub("", text).strip(), directives, results)


def _directives(text: str) -> dict[str, str]:
    """Return the directives of a text with their values; the first of each kind counts."""
    directives: dict[str, str] = {}
    for found in _DIRECTIVE.finditer(text):
        directives = {key: value for key, value in found.groupdict().items() if value} | directives
    return directives


def _fail_as(directives: Mapping[str, str]) -> None:
    """Raise the failure that the directives ask for, if any. Raises: EngineError."""
    if "fail" in directives:
        status = int(directives["fail"])
        raise EngineError(reason_by_status(status), f"rehearsed: the message asked for {status}")


def _asked_text(text: str) -> str:
    """Return the task of a reasoning step, its results if it has no task, its request if it has neither."""
    quoted = quoted_by([text])
    if quoted.keys() != {"request", "step", "task", "results"}:
        return text
    results = "" if quoted["results"] == "{}" else quoted["results"]
    return quoted["task"] or results or quoted["request"]


def _is_request(message: Message) -> bool:
    """Tell whether a message is a user's own, and not the notice that an answer was rejected."""
    return message.role == "user" and not message.text.startswith(REJECTED_ANSWER_NOTICE)


def _reply(turn: _Turn, call: EngineCall, read_tokens: int) -> Reply:
    chosen = None if turn.results else _chosen_tool(call, turn.text)
    if chosen is not None:
        tool_call = ToolCall(id=f"call_{len(call.messages)}", name=chosen.tool.name, arguments=chosen.arguments)
        written = UNCORRECTED.message(Message(role="assistant", content="", tool_calls=[tool_call]))
        usage = _usage(read_tokens, written)
        return Reply("", (tool_call,), "tool", "tool", usage, MODEL, withheld=_ignored(call))
    text, finish = _ended_by_hints(_answer(turn, call), call.hints)
    usage = _usage(read_tokens, UNCORRECTED.text(text))
    return Reply(text, (), finish, finish, usage, MODEL, withheld=_ignored(call))


def _ignored(call: EngineCall) -> tuple[str, ...]:
    hints = call.hints
    obeyed = {"max_tokens": hints.max_tokens, "stop": hints.stop, "tool_choice": hints.tool_choice, "grammar": None}
    return (*unsent_options(call, DEFAULT_NAMES, obeyed), *unsent_message_parts(call.messages, ALL_ROLES))


def _answer(turn: _Turn, call: EngineCall) -> str:
    """Return the answer in the requested format, else in words."""
    if call.schema == _VERDICT_SCHEMA:
        return _verdict(is_valid="refuse" not in turn.directives).model_dump_json()
    if call.schema == _INPUT_VERDICT_SCHEMA:
        return InputJudgementOutput(refused="refuse" in turn.directives).model_dump_json()
    if call.schema is not None:
        plan = _plan(call.schema, call) or answer_phase(call.schema, quoted_by(_questions(call)))
        text = "\n\n".join([turn.text, *(result.text for result in turn.results)])
        return orjson.dumps(fill(call.schema, text) if plan is None else plan).decode()
    if call.grammar is not None:
        return _shortest_text(call.grammar) or _echo(turn.text)
    return _repeated(turn.results) if turn.results else _echo(turn.text)


def _verdict(*, is_valid: bool) -> AnswerJudgementOutput:
    issues = () if is_valid else ("Rehearsed: the message asked for a refusal.",)
    return AnswerJudgementOutput(valid=is_valid, score=int(is_valid), issues=issues)


def _shortest_text(grammar: str) -> str:
    """Return the shortest text of a grammar; none for an unusable grammar, or one whose texts are all too long."""
    try:
        return Grammar(grammar).shortest()
    except GrammarError:
        return ""


def _stream_pieces(text: str, call: EngineCall) -> list[str]:
    """Return the text in words, or in pieces of a few characters where it has a format."""
    is_plain = call.schema is None and call.grammar is None
    return re.findall(r"\s*\S+|\s+$" if is_plain else r"(?s:.{1,8})", text)


def _plan(schema: Mapping[str, Any], call: EngineCall) -> dict[str, Any] | None:
    return make_plan(schema, _questions(call))


def _questions(call: EngineCall) -> list[str]:
    """Return the texts of the users, without directives."""
    return [_DIRECTIVE.sub("", message.text) for message in call.messages if message.role == "user"]


def _chosen_tool(call: EngineCall, text: str) -> ToolMatch | None:
    tools, choice = call.tools, call.hints.tool_choice
    if isinstance(choice, NamedTool):
        named = [tool for tool in tools if tool.name == choice.name]
        plan = _plan(named[0].parameters, call) if named else None
        return match_forced_tool(named, text) if plan is None else ToolMatch(named[0], plan, 0, is_meant=True)
    if choice == "required":
        return match_tool(tools, text) or match_forced_tool(tools, text)
    return None if choice == "none" else match_tool(tools, text)


def _repeated(results: Sequence[Message]) -> str:
    return "\n".join([NOTICE, *(f"{result.name or 'A tool'} answered: {result.text}" for result in results)])


def _echo(text: str) -> str:
    shown = " ".join(text.split())
    shown = shown if len(shown) <= _ECHO_CHARACTERS else f"{shown[:_ECHO_CHARACTERS]}…"
    return f'{NOTICE} You wrote: "{shown}"'


def _ended_by_hints(text: str, hints: ExecutionHints) -> tuple[str, str]:
    """Return the text up to a stop text or the token limit, and its finish reason."""
    stops = [hints.stop] if isinstance(hints.stop, str) else hints.stop or []
    text = text[: min((text.find(stop) for stop in stops if stop in text), default=len(text))]
    if hints.max_tokens is None or UNCORRECTED.text(text) <= hints.max_tokens:
        return text, "stop"
    sizes = range(len(text) + 1)
    fitting = bisect_right(sizes, hints.max_tokens, key=lambda size: UNCORRECTED.text(text[:size]))
    return text[: fitting - 1], "length"


def _usage(read: int, written: int) -> TokenUsage:
    return TokenUsage(input_tokens=read, output_tokens=written, total_tokens=read + written, estimated=True)
