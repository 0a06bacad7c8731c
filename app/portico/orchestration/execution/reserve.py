"""Reserve: the time, the tokens and the cost that are withheld from a pattern for a final answer, and used after it."""

from functools import partial
from typing import Final

from portico.domain.failures import Code
from portico.domain.fingerprints import digest
from portico.domain.journal.outcomes import StopDecision
from portico.domain.journal.step_key import LIMIT_KEY
from portico.orchestration.execution.execution import Execution

LIMIT_CODES: Final = frozenset(
    {Code.ORCHESTRATION_ITERATION_LIMIT, Code.ORCHESTRATION_BUDGET_EXCEEDED, Code.CANCELLED_TIMEOUT}
)
"""Codes of the limits whose end an execution may salvage: rounds and steps, tokens and cost, time."""
_DECISION: Final = StopDecision(Code.CANCELLED_TIMEOUT, "the time limit was reached")


def withhold_time(execution: Execution) -> None:
    """Withhold the time of the final answer of an execution that salvages; call it once nothing delays its start.

    Its end cancels what runs in any branch.
    """
    recorder = execution.recorder
    execution.branches.cancellable_depth += 1
    if execution.deadline is not None and not recorder.has_stopped:
        execution.deadline.withhold(execution.header.reserved_seconds, partial(_end_pattern, execution))


def use_reserve(execution: Execution) -> None:
    """Let the final answer of an execution that salvages be written: its pattern has ended."""
    if execution.deadline is not None:
        execution.deadline.use_reserve(execution.header.reserved_seconds)
    use_budget_reserve(execution)
    execution.recorder.pattern_time.reopen()


def use_budget_reserve(execution: Execution) -> None:
    """Let the next inferences take the tokens and the cost that were withheld."""
    if execution.ledger.budget is not None:
        execution.ledger.budget.use_reserve()


def _end_pattern(execution: Execution) -> None:
    """Record that the time of the pattern has passed, then cancel its effects."""
    recorder = execution.recorder
    if execution.response is None and not recorder.is_closed():
        recorder.record_step(LIMIT_KEY, digest(LIMIT_KEY, _DECISION.code), _DECISION)
        recorder.pattern_time.end()
        execution.branches.end_all()
