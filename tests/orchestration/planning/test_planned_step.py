"""Reasoning steps: what the model that carries out a step sees, and which steps are asked as they stand."""

from typing import Any

import pytest

from portico.domain.lifecycle import State
from tests.support.harness import make_harness
from tests.support.passes import FIRST, PhasesEngine, reasoning, run_passes
from tests.support.virtual_time import VirtualClock

SECOND: dict[str, Any] = {"name": "second", "type": "infer", "input": "compare", "depends_on": ["first"]}


def step_texts(engine: PhasesEngine) -> list[list[str]]:
    """Return the messages of each call of a step."""
    calls = zip(engine.asked, engine.calls, strict=True)
    return [[message.text for message in call.messages] for phase, call in calls if phase == "step"]


async def test_a_planned_step_sees_the_request_its_task_and_what_the_steps_before_it_found(clock: VirtualClock) -> None:
    engine = PhasesEngine(clock, plan={"steps": [FIRST, SECOND]})
    response, _ = await run_passes(make_harness(clock, engine), reasoning(text="Which is best?"))
    assert response.state is State.COMPLETE
    _, (system, user) = step_texts(engine)
    assert system.startswith("You carry out one step of a plan.")
    for quoted in ("Which is best?", '{"first": "re: first question"}', "second", "compare"):
        assert f">\n{quoted}\n</" in user


@pytest.mark.parametrize(("passes", "steps"), [(2, [FIRST]), (1, None)])
async def test_a_step_that_a_person_wrote_and_one_of_a_single_pass_are_asked_as_they_stand(
    clock: VirtualClock, passes: int, steps: list[dict[str, Any]] | None
) -> None:
    engine = PhasesEngine(clock)
    await run_passes(make_harness(clock, engine), reasoning(passes, steps))
    assert step_texts(engine) == [["first question"]]
