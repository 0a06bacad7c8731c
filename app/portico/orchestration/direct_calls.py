"""Calls of tools outside of any execution: without a model, a policy or a record."""

from collections.abc import Mapping
from typing import Any

from portico.capabilities.tools.executor import CallObserver, OnException
from portico.domain.contract.messages import ToolCall
from portico.domain.failures import Code, ToolFailure
from portico.domain.ids import IdempotencyKey, ToolCallId
from portico.domain.journal.outcomes import ToolCallSuspended, ToolEnded
from portico.orchestration.execution.environment import Environment


class DirectCalls:
    """Calls that an operator makes, to try a tool."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    async def call(
        self, name: str, arguments: Mapping[str, Any], *, seconds: float, may_act: bool, on_exception: OnException
    ) -> ToolEnded | ToolCallSuspended | None:
        """Call a tool once and return the outcome: its end, or the question that it asks.

        Without `may_act` a tool that is external, or unsafe to call twice, does not run, and None is returned.
        `on_exception` is called if the tool raises anything but a `ToolError`. Raises: ToolFailure (TOOL_NOT_FOUND).
        """
        environment = self._environment
        offer = next(iter(environment.tool_registry.offer_of(name)), None)
        if offer is None:
            raise ToolFailure(Code.TOOL_NOT_FOUND, f"there is no tool {name!a:.80}; see portico tools list")
        call = ToolCall(id=ToolCallId(environment.entropy.uuid7()), name=name, arguments=dict(arguments))
        refused = environment.tool_executor.refusal(call)
        if refused is not None:
            return refused
        if (offer.unsafe or offer.approval) and not may_act:
            return None
        key = IdempotencyKey(environment.entropy.uuid7())
        return await environment.tool_executor.attempt(
            call, key=key, attempt=0, seconds_left=seconds, observer=CallObserver(on_exception)
        )
