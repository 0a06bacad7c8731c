"""The registered tools, and those available now."""

import pytest

from app.capabilities.tools.registry import ToolRegistry
from app.domain.failures import Code, ConfigurationFailure
from app.domain.tools import Availability, OfferedTool, SideEffects, ToolDefinition
from tests.support.tools import FakeTool

ALL = ["alpha", "beta", "gamma"]


@pytest.fixture
def broken() -> FakeTool:
    tool = FakeTool("beta")
    tool.unavailable_reason = "the disk is gone"
    return tool


@pytest.fixture
def registry(broken: FakeTool) -> ToolRegistry:
    mailer = FakeTool("gamma", idempotent=False, side_effects=SideEffects.EXTERNAL)
    return ToolRegistry(mailer, broken, FakeTool("alpha"))


def test_everything_is_listed_in_order_of_names(registry: ToolRegistry) -> None:
    assert registry.names() == ALL
    assert [tool.info().name for tool in registry.tools()] == ALL
    assert [definition.name for definition in registry.all_definitions()] == ALL
    assert [status.info.name for status in registry.check_availability()] == ALL


def test_a_tool_is_found_by_its_exact_name(registry: ToolRegistry) -> None:
    found = registry.get("beta")
    assert found is not None
    assert found.info().name == "beta"
    assert registry.get("Beta") is None


def test_definitions_are_those_of_available_and_requested_tools(registry: ToolRegistry) -> None:
    assert [each.name for each in registry.definitions(["gamma", "beta", "gone", "alpha"])] == ["alpha", "gamma"]
    assert registry.definitions([]) == []


def test_an_inference_offers_available_tools_with_their_safety(registry: ToolRegistry) -> None:
    assert registry.offer(ALL)[0] == (
        OfferedTool("alpha", unsafe=False, idempotent=True),
        OfferedTool("gamma", unsafe=True, approval=True),
    )


def test_a_tool_is_found_by_name_available_or_not(registry: ToolRegistry) -> None:
    assert registry.offer_of("beta") == (OfferedTool("beta", unsafe=False, idempotent=True),)
    assert registry.offer_of("gone") == ()


def test_an_unavailable_tool_says_why(registry: ToolRegistry) -> None:
    assert [(each.available, each.reason) for each in registry.check_availability()] == [
        (True, ""),
        (False, "the disk is gone"),
        (True, ""),
    ]


def test_availability_is_asked_anew_each_time(registry: ToolRegistry, broken: FakeTool) -> None:
    broken.unavailable_reason = ""
    assert [each.name for each in registry.offer(ALL)[0]] == ALL


def test_a_tool_whose_check_breaks_is_not_available() -> None:
    class Careless(FakeTool):
        def available(self) -> Availability:
            raise OSError("secret path")

    [status] = ToolRegistry(Careless()).check_availability()
    assert (status.available, status.reason) == (False, "its availability check failed: OSError")


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationFailure, match="two tools are named act") as refused:
        ToolRegistry(FakeTool("act"), FakeTool("act"))
    assert refused.value.code is Code.CONFIG_INVALID


@pytest.mark.parametrize(
    "name",
    [
        "",
        "read file",
        "re\u0430d_file",
        "read\u202efile",
        "read\u200bfile",
        "read_file\n",
        "\uff52ead",
        "x" * 65,
        "x" * 10_240,
    ],
)
def test_b2_59_names_with_look_alikes_or_of_any_length_are_refused_at_registration(name: str) -> None:
    with pytest.raises(ConfigurationFailure) as refused:
        ToolRegistry(FakeTool(name))
    assert refused.value.message.isascii()
    assert len(refused.value.message) < 200


def test_a_definition_under_another_name_is_refused() -> None:
    class TwoFaced(FakeTool):
        def definition(self) -> ToolDefinition:
            return ToolDefinition("other", "Acts.", {"type": "object"})

    with pytest.raises(ConfigurationFailure, match="the definition of act has another name"):
        ToolRegistry(TwoFaced())
