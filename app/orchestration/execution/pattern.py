"""Pattern of a mode: the code that runs it and the hooks that describe it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from app.domain.contract.request import PlanStep
from app.domain.pattern_result import PatternResult
from app.orchestration.execution.context import RunContext


@dataclass(frozen=True, slots=True)
class Pattern:
    """What runs a mode, the version its journals belong to, and what plans for it where that is needed.

    `static` are the steps of the plan that is always the same, where there is one.
    """

    run: Callable[[RunContext], Awaitable[PatternResult | str]]
    version: int
    plan: Callable[[RunContext], Awaitable[None]] | None = None
    static_plan: Sequence[PlanStep] | None = None
