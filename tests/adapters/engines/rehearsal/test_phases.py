"""The rehearsal engine plays reasoning in passes: it converges, refines, and runs out of passes as it is asked to."""

import pytest

from portico.adapters.engines.rehearsal.engine import RehearsalEngine
from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.domain.lifecycle import State
from portico.ports.engine_schemes import SCHEMES
from tests.support.harness import make_harness, profile
from tests.support.passes import pass_ends, reasoning, run_passes
from tests.support.virtual_time import VirtualClock

CAPABILITIES = SCHEMES["rehearsal"].capabilities


@pytest.mark.parametrize(
    ("text", "passes", "ends", "reason"),
    [
        ("Please calculate 17*3", 4, [True], None),
        ("Hello [[again]]", 4, [False, True], None),
        ("Hello [[again:2]]", 4, [False, False, True], None),
        ("Hello [[again:9]]", 3, [False, False, False], "ttl_expiration"),
    ],
)
async def test_it_converges_after_as_many_refinements_as_the_request_asks_for(
    clock: VirtualClock, text: str, passes: int, ends: list[bool], reason: str | None
) -> None:
    here = make_harness(
        clock, RehearsalEngine(profile("rehearsal", capabilities=CAPABILITIES), clock), tools=BUILTIN_TOOLS
    )
    response, record = await run_passes(here, reasoning(passes, text=text))
    assert [end.converged for end in pass_ends(record)] == ends
    assert response.state is State.COMPLETE
    assert response.final_answer is not None
    assert response.final_answer.metadata.get("reason") == reason
    assert "[[again" not in str(response.content)


async def test_it_plans_the_task_of_a_subplan(clock: VirtualClock) -> None:
    here = make_harness(
        clock, RehearsalEngine(profile("rehearsal", capabilities=CAPABILITIES), clock), tools=BUILTIN_TOOLS
    )
    step = {"name": "sub", "type": "subplan", "input": "Please calculate 17*3"}
    response, _ = await run_passes(here, reasoning(2, [step]))
    assert [call.step_name for call in response.tool_calls_made] == ["sub/call"]
    assert "51" in str(response.structured_output)
