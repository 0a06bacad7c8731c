"""AgentLoop, the pattern of mode `chat`: infer, run the tools asked for, repeat until text."""

from app.domain.failures import Code, OrchestrationFailure
from app.orchestration.run import Run

VERSION = 1
"""Raised by hand with every change of effects or their order; golden journals guard it."""


async def agent_loop(run: Run) -> str:
    """The model's text. Exactly `tool_rounds` rounds run.

    Raises: InferenceFailure; OrchestrationFailure (ORCHESTRATION_ITERATION_LIMIT) for a request for one more round.
    """
    rounds = run.bounds.tool_rounds
    reply = await run.infer(run.messages)
    while reply.tool_calls:
        if rounds == 0:
            raise OrchestrationFailure(
                Code.ORCHESTRATION_ITERATION_LIMIT,
                "the model asked for another tool round",
                {"tool_rounds": run.bounds.tool_rounds},
            )
        rounds -= 1
        results = await run.call_tools(reply.tool_calls)
        reply = await run.infer([result.message() for result in results])
    return reply.text
