"""Execution of one attempt at one tool call."""

import json
from asyncio import AbstractEventLoop, CancelledError, current_task, get_running_loop
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from threading import get_ident
from typing import Any, NamedTuple, TypeAlias

import anyio
import orjson
from pydantic_core import to_jsonable_python

from portico.capabilities.tools.credentials import CallCredentials, CredentialHolder, CredentialSource
from portico.capabilities.tools.definition import ToolArgumentError
from portico.capabilities.tools.registry import ToolRegistry
from portico.domain.contract.messages import UNREADABLE_ARGUMENTS, ToolCall
from portico.domain.failures import Code
from portico.domain.ids import ExecutionId, IdempotencyKey
from portico.domain.journal.outcomes import ToolCallSuspended, ToolEnded
from portico.domain.raised_exception import MAX_RECORDED_TEXT, RaisedException, RecordedException
from portico.domain.tools import ArgumentViolation, Caller
from portico.domain.value import replace, value
from portico.ports.runtime import Clock, Entropy
from portico.ports.tool import (
    CredentialUnavailable,
    FlowContext,
    OnProgress,
    Tool,
    ToolContext,
    ToolContinuation,
    ToolError,
    ToolOutcomeUnknown,
    ToolSuspended,
)

OnException: TypeAlias = Callable[[BaseException | RaisedException], None]
"""Takes an exception that is no `ToolError` to the author of the code; its text is for no one else."""
MAX_STATE_BYTES = 64 * 1024
_CUT_MARK = "\n[cut: the result was longer]"


@value
class _Attempt:
    content: str
    code: Code | None = None
    is_repeatable: bool = False
    """True if the same call might succeed a second time."""
    has_run: bool = True
    question: ToolSuspended | None = None
    violations: tuple[ArgumentViolation, ...] = ()
    exception: BaseException | None = None
    """What the tool raised, if that was no `ToolError`."""
    masked_exception: RaisedException | None = None
    """The same without the credentials that the call used; None if it used none."""


class CallObserver(NamedTuple):
    """Observer of a call while it runs.

    `on_exception` is called if the tool raises anything but a `ToolError`, and `on_progress` when it says how far it
    is, on the thread of the event loop.
    """

    on_exception: OnException
    on_progress: OnProgress | None = None


class ToolExecutor:
    """The only place where tools run.

    Every attempt ends as a `ToolEnded`, or as a `ToolAsked` if the tool has a question, within the smaller of the
    tool's own timeout and the time left, with a text of at most `result_bytes` UTF-8 bytes. A cancellation is never
    swallowed. A second attempt is granted once, to an idempotent tool, if it may help: after a timeout only if the time
    for a whole second attempt is left.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        clock: Clock,
        entropy: Entropy,
        result_bytes: int,
        *,
        shows_exceptions: bool = False,
        credentials: CredentialSource | None = None,
    ) -> None:
        self.credentials = credentials
        """The credentials of the configuration; None without any."""
        self._registry = registry
        self._clock = clock
        self._entropy = entropy
        self.result_bytes = result_bytes
        self._shows_exceptions = shows_exceptions

    async def attempt(  # noqa: PLR0913 - an attempt is described by all of these
        self,
        call: ToolCall,
        *,
        key: IdempotencyKey,
        attempt: int,
        seconds_left: float,
        digest: str = "",
        continuation: ToolContinuation | None = None,
        observer: CallObserver | None = None,
        caller: Caller | None = None,
        flow: FlowContext | None = None,
        execution_id: ExecutionId | None = None,
        may_ask: bool = False,
    ) -> ToolEnded | ToolCallSuspended:
        """Run one attempt at a tool that was offered; `attempt` counts from 0, `key` is the call's idempotency key.

        A tool whose source or definition is no longer that of the `digest` is not available. A `continuation` goes on
        with a call that asked a question. The tool acts for the `caller`, and within the `flow` if an agent of one
        calls it, with credentials that the request of the execution may have brought; if it `may_ask`, a missing one is
        a question.
        """
        began = self._clock.monotonic()
        found, status = await self._registry.look_up(call.name)
        if found is None or not status.available:
            return self._outcome(_unavailable(status.reason), began)
        if digest and found.offer.digest != digest:
            return self._outcome(_unavailable("it has changed since it was offered"), began)
        tool = found.tool
        violations = found.validator.violations(call.arguments)
        on_progress = None if observer is None else observer.on_progress
        is_readable = not violations and UNREADABLE_ARGUMENTS not in call.arguments
        attempted = None if is_readable else _refusal(call, violations)
        if attempted is None:
            info = tool.info()
            limit = seconds_left if info.timeout is None else min(info.timeout, seconds_left)
            credentials = None
            if info.credentials and self.credentials is not None:
                holder = None if caller is None else CredentialHolder(caller.tenant, caller.user, execution_id)
                credentials = self.credentials.for_call(info.credentials, holder, may_ask=may_ask)
                if on_progress is not None:
                    on_progress = _masked_progress(on_progress, credentials)
            context = ToolContext(
                call.id,
                limit,
                self._clock,
                self._entropy,
                key,
                self._registry.threads,
                continuation,
                caller,
                None if on_progress is None else partial(_on_loop, get_running_loop(), get_ident(), on_progress),
                flow,
                credentials,
            )
            attempted = await _run(tool, call, context, seconds_left, is_instant=info.instant)
            if credentials is not None:
                attempted = _masked(attempted, credentials)
        if attempted.exception is not None and observer is not None:
            observer.on_exception(attempted.masked_exception or attempted.exception)
        retry = attempted.is_repeatable and attempt == 0 and tool.info().idempotent
        return self._outcome(attempted, began, retry=retry)

    def refusal(self, call: ToolCall) -> ToolEnded | None:
        """Return the end of a call whose arguments do not fit its tool; None if they do."""
        return refused_call(call, self._registry.violations(call.name, call.arguments))

    def _outcome(self, attempted: _Attempt, began: float, *, retry: bool = False) -> ToolEnded | ToolCallSuspended:
        duration_ms = (self._clock.monotonic() - began) * 1000
        if attempted.question is not None:
            question = attempted.question
            return ToolCallSuspended(question.value, duration_ms, question.state, question.credential)
        content, exception = attempted.content, None
        if attempted.exception is not None:
            exception = RecordedException.of(attempted.exception)
            if attempted.masked_exception is not None:
                exception = replace(exception, message=attempted.masked_exception.text[:MAX_RECORDED_TEXT])
            if self._shows_exceptions:
                content = f"{content}: {exception.message}"
        code, has_run, violations = attempted.code, attempted.has_run, attempted.violations
        content = cut_text(content, self.result_bytes)
        return ToolEnded(content, code is not None, code, duration_ms, retry, has_run, violations, exception)


def _masked(attempted: _Attempt, credentials: CallCredentials) -> _Attempt:
    """Return the end of a call without the credentials that it used."""
    question, exception = attempted.question, attempted.exception
    if question is not None and question.credential is None:
        state = None if question.state is None else credentials.masked(question.state)
        question = ToolSuspended(credentials.masked_json(question.value), state)
    raised = None if exception is None else RaisedException.of(exception)
    return replace(
        attempted,
        content=credentials.masked(attempted.content),
        question=question,
        violations=tuple((path, credentials.masked(message)) for path, message in attempted.violations),
        masked_exception=None if raised is None else replace(raised, text=credentials.masked(raised.text)),
    )


def _masked_progress(report: OnProgress, credentials: CallCredentials) -> OnProgress:
    """Return a function that reports progress without the credentials that the call used."""

    def on_progress(progress: float, message: str) -> None:
        report(progress, credentials.masked(message))

    return on_progress


def _on_loop(loop: AbstractEventLoop, own_thread: int, report: OnProgress, progress: float, message: str) -> None:
    """Report on the event loop, whose thread has the id, from any thread."""
    if get_ident() == own_thread:
        report(progress, message)
    elif not loop.is_closed():
        loop.call_soon_threadsafe(report, progress, message)


def refused_call(call: ToolCall, violations: tuple[ArgumentViolation, ...] = ()) -> ToolEnded | None:
    """Return the end of a call with these violations, or whose arguments are no JSON object; None for any other."""
    refused = _refusal(call, violations)
    if refused is None:
        return None
    return ToolEnded(refused.content, True, refused.code, 0.0, False, False, refused.violations)


async def _run(tool: Tool, call: ToolCall, context: ToolContext, seconds_left: float, *, is_instant: bool) -> _Attempt:
    limit = context.seconds_left
    if limit <= 0:
        return _Attempt("There was no time left for the tool.", Code.TOOL_TIMEOUT)
    if is_instant:
        return await _guarded(tool, call.arguments, context)
    with anyio.move_on_after(limit):
        return await _guarded(tool, call.arguments, context)
    fits_second = seconds_left - limit >= limit
    return _Attempt(f"The tool did not finish within {limit:g} s.", Code.TOOL_TIMEOUT, is_repeatable=fits_second)


async def _guarded(tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> _Attempt:
    try:
        return _returned(await tool.execute(arguments, context))
    except ToolArgumentError as error:
        return _refused(error.violations)
    except ToolSuspended as question:
        return _asked(question)
    except ToolError as error:
        return _failed_or_lost(tool, error)
    except CancelledError as stray:
        if is_cancelled():
            raise
        return _raised(stray)
    except (Exception, SystemExit) as crash:  # noqa: BLE001 - other people's code: any exception is the tool's result
        return _raised(crash)


def _returned(value: object) -> _Attempt:
    """Return the end of a call with its text, or with its value as JSON: no number is NaN, no iterator is read."""
    if isinstance(value, str):
        return _Attempt(value)
    if isinstance(value, Iterator):
        return _failed(f"it returned {type(value).__name__}, which is no JSON")
    try:
        return _Attempt(json.dumps(to_jsonable_python(value), ensure_ascii=False, allow_nan=False))
    except ValueError:
        return _failed(f"it returned {type(value).__name__}, which is no JSON")


def _unavailable(reason: str) -> _Attempt:
    return _Attempt(f"The tool cannot run right now: {reason}.", Code.TOOL_UNAVAILABLE, has_run=False)


def _refusal(call: ToolCall, violations: tuple[ArgumentViolation, ...]) -> _Attempt | None:
    if UNREADABLE_ARGUMENTS in call.arguments:
        return _refused((("arguments", "are no JSON object"),))
    return _refused(violations) if violations else None


def _refused(violations: tuple[ArgumentViolation, ...]) -> _Attempt:
    errors = "; ".join(f"{path.removeprefix('arguments.')}: {message}" for path, message in violations)
    text = f"The arguments were refused: {errors}."
    return _Attempt(text, Code.TOOL_EXECUTION_FAILED, has_run=False, violations=violations)


def _failed(why: str) -> _Attempt:
    return _Attempt(f"The tool failed: {why}", Code.TOOL_EXECUTION_FAILED, is_repeatable=True)


def _raised(error: BaseException) -> _Attempt:
    """Return the end of a call whose tool raised what is no `ToolError`, without its text."""
    return replace(_failed(type(error).__name__), exception=error)


def _failed_or_lost(tool: Tool, error: ToolError) -> _Attempt:
    """Return the end of a call that failed; one whose connection was lost is in doubt if it could act twice."""
    if isinstance(error, CredentialUnavailable):
        return _unavailable(str(error))
    if isinstance(error, ToolOutcomeUnknown) and tool.info().unsafe:
        return _Attempt(f"The tool may have acted: {error}", Code.TOOL_OUTCOME_UNKNOWN)
    return _failed(str(error))


def _asked(question: ToolSuspended) -> _Attempt:
    if not _is_json(question.value):
        return _failed("what it asks is no JSON")
    if len((question.state or "").encode(errors="replace")) > MAX_STATE_BYTES:
        return _failed(f"the state of its question has more than {MAX_STATE_BYTES} bytes")
    return _Attempt("", question=question)


def _is_json(value: object) -> bool:
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


def is_cancelled() -> bool:
    """Return True if the own task is being cancelled, rather than a task of the tool that leaked its cancellation."""
    task = current_task()
    return task is None or task.cancelling() > 0


def is_cut(text: str) -> bool:
    """Return True if `cut_text` has cut the text."""
    return text.endswith(_CUT_MARK)


def cut_text(text: str, max_bytes: int) -> str:
    """Return the text, or its beginning and a mark, in at most that many UTF-8 bytes; lone surrogates become `?`."""
    data = text.encode("utf-8", "replace")
    if len(data) > max_bytes:
        data = data[: max(0, max_bytes - len(_CUT_MARK))] + _CUT_MARK.encode()
    return data.decode("utf-8", "ignore")
