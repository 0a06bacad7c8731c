"""Compaction of a session: before PREPARE, a model sums up the turns that have fallen out of the history.

The turns to sum up are recorded as `prepare/c`, and the steps of the question are below that key, so they belong to no
step of the pattern. A replay asks for what is recorded. A summary that cannot be made is no failure: the execution goes
on with the earlier one, or without.
"""

from typing import Final

from portico.capabilities.context.compaction import (
    MAX_MESSAGES,
    MIN_TURNS,
    SUMMARY_SHARE,
    lines_of,
    shortened,
    summary_message,
    whole_turns,
)
from portico.capabilities.context.redaction import Redactor
from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.prompt_call import PromptCall
from portico.capabilities.prompting.prompts.summary import SessionSummaryInput, SessionSummaryOutput
from portico.domain.context.summary import SUMMARY_DETAIL, SessionSummary
from portico.domain.contract.messages import is_untrusted_text
from portico.domain.failures import Cancellation, Failure, StorageFailure
from portico.domain.journal.outcomes import CompactionStarted, Outcome
from portico.domain.journal.step_key import COMPACTION_KEY, PREPARE_KEY
from portico.orchestration.execution.branches import has_diverged
from portico.orchestration.execution.context import RunContext, aside_context
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.execution import Execution
from portico.orchestration.pipeline.prepare import Preparer

_WORDS_PER_TOKEN: Final = 0.6
_INPUT_SHARE: Final = 0.5
"""Largest share of the context window that the turns to sum up take."""


async def compact_history(execution: Execution, context: RunContext, preparer: Preparer | None) -> None:
    """Give the preparer the summary of the session's earlier turns, a new one if it is time for one."""
    recorder = execution.recorder
    is_recorded = recorder.cursor.has_history and recorder.cursor.step(COMPACTION_KEY) is not None
    if not is_recorded and not _may_compact(execution, preparer):
        return
    started: CompactionStarted | None = None
    if preparer is not None:
        started = await _find_turns(execution, preparer)
    if not is_recorded and started is None:
        return

    async def find(_: Environment) -> Outcome:
        assert started is not None  # noqa: S101 - checked above unless the outcome is recorded
        return started

    outcome, _ = await context.record_value(find, key=COMPACTION_KEY)
    assert isinstance(outcome, CompactionStarted)  # noqa: S101 - the only outcome of a compaction
    text = await _summarise(context, outcome)
    if text is not None and preparer is not None:
        await _take(execution, preparer, outcome, text)


def _may_compact(execution: Execution, preparer: Preparer | None) -> bool:
    """Return True if the execution reads the history of a session and has not prepared yet."""
    if preparer is None or preparer.turn is None or execution.header.origin is not None:
        return False
    recorder = execution.recorder
    is_prepared = recorder.cursor.has_history and recorder.cursor.step(PREPARE_KEY) is not None
    return execution.environment.compacts_sessions and not is_prepared


async def _find_turns(execution: Execution, preparer: Preparer) -> CompactionStarted | None:
    """Load the session's summary, and return the turns that are to be summed up; None if there are too few.

    A store that does not answer is no failure here.
    """
    header, conversations = execution.header, execution.environment.conversations
    session_id = header.request.session_id
    assert session_id is not None  # noqa: S101 - an execution with a turn has a session
    try:
        session = await conversations.session(header.scope, session_id)
        if session is None:
            return None
        preparer.summary = SessionSummary.read(session.details.get(SUMMARY_DETAIL))
        earlier = preparer.summary or SessionSummary("", 0, is_untrusted=False)
        cut, window = await preparer.messages_cut()
        if cut - earlier.covered < MIN_TURNS:
            # A turn has at least one message, so these cannot be enough turns; `whole_turns` counts them.
            return None
        limit = min(cut - earlier.covered, MAX_MESSAGES)
        found = await conversations.messages(header.scope, session_id, after=earlier.covered, limit=limit)
    except StorageFailure:
        return None
    turns = whole_turns(found, int(window.limit * _INPUT_SHARE), window.counter)
    fence = summary_message(SessionSummary("", 0, is_untrusted=False), execution.environment.prompts, "0" * 8)
    share = int(min(header.bounds.history_tokens, window.limit) * SUMMARY_SHARE)
    max_tokens = share - window.counter.message(fence)
    if not turns or max_tokens < 1:
        return None
    is_untrusted = earlier.is_untrusted or is_untrusted_text(turns)
    return CompactionStarted(lines_of(turns), earlier.text, earlier.covered + len(turns), is_untrusted, max_tokens)


async def _summarise(context: RunContext, started: CompactionStarted) -> str | None:
    """Return the model's summary; None if there is none."""
    max_words = max(1, int(started.max_tokens * _WORDS_PER_TOKEN))
    asked = SessionSummaryInput(earlier=started.earlier, turns=started.turns, max_words=max_words)
    question = PromptCall(PromptId.SESSION_SUMMARY_USER, asked, SessionSummaryOutput)
    try:
        answer = await aside_context(context, COMPACTION_KEY).ask(question)
    except Failure as failure:
        if isinstance(failure, Cancellation) or has_diverged(failure):
            raise
        return None
    return answer.summary


async def _take(execution: Execution, preparer: Preparer, started: CompactionStarted, text: str) -> None:
    """Give the preparer the summary, shortened to its share, and store it with the session."""
    header, conversations = execution.header, execution.environment.conversations
    _, window = await preparer.messages_cut()
    redacted = Redactor().text(text)
    preparer.summary = SessionSummary(
        shortened(redacted, started.max_tokens, window.counter), started.covered, started.is_untrusted
    )
    assert header.request.session_id is not None  # noqa: S101 - as above
    try:
        details = {SUMMARY_DETAIL: preparer.summary.stored()}
        await conversations.update(header.scope, header.request.session_id, details)
    except StorageFailure:
        # A later turn makes another one.
        return
