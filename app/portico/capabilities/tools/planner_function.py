"""Planners made of Python functions.

A planner is given a `PlanningTask` and returns the steps of a plan, in the form that a request has them. It must not
act: it runs again if the service ends before its plan is recorded. An `async def` function runs on the event loop, a
plain one on a thread.
"""

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from portico.capabilities.tools.executor import OnException, is_cancelled
from portico.domain import strict_json
from portico.domain.contract.messages import Message
from portico.domain.contract.request import PlanStep
from portico.domain.failures import Code, OrchestrationFailure
from portico.domain.field_errors import invalid_fields
from portico.domain.plan.plan import plan_refused
from portico.ports.tool import ToolError, ToolThreads

_STEPS: Final = TypeAdapter(list[PlanStep])
_NOT_JSON: Final = "must be a list of steps, all of JSON"


@dataclass(frozen=True, slots=True)
class PlanningTask:
    """A task to plan: the text of the last user message, all messages with the history, and what a plan may use.

    Each tool has a name, a description and parameters. `step_types` are the descriptions of the types, by name. The
    plan may have at most `max_steps`, and no branches if it is to be linear.
    """

    request: str
    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]]
    step_types: Mapping[str, str]
    max_steps: int
    require_linear: bool


class PlannerFunction:
    """A function as a planner, by its name."""

    def __init__(self, function: Callable[[PlanningTask], Any]) -> None:
        self.name = function.__name__
        """Name by which the configuration chooses it, and the `planner_id` of its plans."""
        self.module = function.__module__
        """Name of the module that defines it."""
        self._function = function
        self._is_blocking = not inspect.iscoroutinefunction(function)

    async def plan(self, task: PlanningTask, threads: ToolThreads | None, on_exception: OnException) -> list[PlanStep]:
        """Return the steps that the function gives; `on_exception` is called if it raises anything but a `ToolError`.

        Raises: OrchestrationFailure (ORCHESTRATION_PLAN_REFUSED).
        """
        try:
            return _steps(await self._call(task, threads))
        except OrchestrationFailure:
            raise
        except ToolError as refusal:
            raise self._failed(str(refusal)) from refusal
        except asyncio.CancelledError as stray:
            if is_cancelled():
                raise
            on_exception(stray)
            raise self._failed(type(stray).__name__) from stray
        except (Exception, SystemExit) as crash:  # other people's code may raise anything
            on_exception(crash)
            raise self._failed(type(crash).__name__) from crash

    async def _call(self, task: PlanningTask, threads: ToolThreads | None) -> Any:
        if threads is None or not self._is_blocking:
            result = self._function(task)
        else:
            result = await threads.run(partial(self._function, task))
        return await result if inspect.isawaitable(result) else result

    def _failed(self, reason: str) -> OrchestrationFailure:
        message = f"the planner {self.name} made no plan: {reason}"
        return OrchestrationFailure(Code.ORCHESTRATION_PLAN_REFUSED, message, {"planner": self.name, "violations": []})


def planner(function: Callable[[PlanningTask], Any]) -> PlannerFunction:
    """Declare a function as a planner. Raises: TypeError for one that does not take one task."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise TypeError(f"{function.__name__} must take one argument, the PlanningTask") from None
    return PlannerFunction(function)


def _steps(plan: object) -> list[PlanStep]:
    """Return the steps of a plan in JSON. Raises: OrchestrationFailure (ORCHESTRATION_PLAN_REFUSED)."""
    try:
        given = strict_json.loads(json.dumps(plan, allow_nan=False).encode())
        return _STEPS.validate_python(given)
    except ValidationError as invalid:
        fields = invalid_fields(invalid.errors(include_url=False, include_input=False))
        raise plan_refused([(".".join(map(str, ("steps", *each.path))), each.message) for each in fields]) from None
    except (TypeError, ValueError, RecursionError):
        raise plan_refused([("steps", _NOT_JSON)]) from None
