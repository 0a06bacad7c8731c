"""Allocation of passes, row by row, as the design page has it."""

import pytest

from portico.capabilities.prompting.prompts.task_profile import DEFAULT_PROFILE, TaskProfileOutput
from portico.orchestration.planning.passes.allocation import allocated_passes


def allocated(depth: int, sufficiency: float, tools: str, breadth: str, confidence: str, passes: int = 20) -> int:
    profile = TaskProfileOutput.model_validate(
        {
            "reasoning_depth": depth,
            "information_sufficiency": sufficiency,
            "expected_tool_usage": tools,
            "output_breadth": breadth,
            "confidence_requirement": confidence,
        }
    )
    return allocated_passes(profile, passes)


@pytest.mark.parametrize(
    ("profile", "passes"),
    [
        ((3, 0.5, "moderate", "moderate", "medium"), 4),
        ((1, 1.0, "none", "narrow", "low"), 1),
        ((1, 1.0, "moderate", "moderate", "medium"), 1),
        ((2, 1.0, "moderate", "moderate", "medium"), 2),
        ((1, 0.0, "moderate", "moderate", "medium"), 2),
        ((3, 1.0, "moderate", "moderate", "medium"), 2),
        ((3, 0.0, "moderate", "moderate", "medium"), 5),
        ((3, 0.5, "none", "moderate", "medium"), 2),
        ((3, 0.5, "minimal", "moderate", "medium"), 3),
        ((3, 0.5, "extensive", "moderate", "medium"), 5),
        ((3, 0.5, "moderate", "narrow", "medium"), 3),
        ((3, 0.5, "moderate", "broad", "medium"), 5),
        ((3, 0.5, "moderate", "moderate", "low"), 3),
        ((3, 0.5, "moderate", "moderate", "high"), 5),
        ((5, 0.0, "extensive", "broad", "high"), 20),
    ],
)
def test_depth_breadth_tools_confidence_and_missing_information_give_more_passes(
    profile: tuple[int, float, str, str, str], passes: int
) -> None:
    assert allocated(*profile) == passes


def test_no_profile_gives_more_than_was_asked_for_or_less_than_one() -> None:
    assert allocated(5, 0.0, "extensive", "broad", "high", passes=3) == 3
    assert allocated(1, 1.0, "none", "narrow", "low", passes=2) == 1
    assert allocated_passes(DEFAULT_PROFILE, 20) == 4
