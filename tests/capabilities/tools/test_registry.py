"""The registered tools, and those available now."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import anyio
import pytest

from portico.capabilities.tools.availability import AvailabilityProbes
from portico.capabilities.tools.registry import ToolList, ToolRegistry
from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.tools import Availability, OfferedTool, SideEffects, ToolDefinition, ToolServerStatus
from portico.ports.tool import Tool
from tests.support.tools import FakeTool
from tests.support.virtual_time import VirtualClock

T = TypeVar("T")
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


async def test_everything_is_listed_in_order_of_names(registry: ToolRegistry) -> None:
    assert registry.names() == ALL
    assert registry.names(["gamma", "gone", "alpha"]) == ["alpha", "gamma"]
    assert [status.definition.name for status in await registry.check_availability()] == ALL


def test_a_tool_is_found_by_its_exact_name(registry: ToolRegistry) -> None:
    found = registry.get("beta")
    assert found is not None
    assert found.info().name == "beta"
    assert registry.get("Beta") is None


def test_definitions_are_those_of_available_and_requested_tools(registry: ToolRegistry) -> None:
    assert [each.name for each in registry.definitions(["gamma", "beta", "gone", "alpha"])] == ["alpha", "gamma"]
    assert registry.definitions([]) == []


def test_an_inference_offers_available_tools_with_their_safety(registry: ToolRegistry) -> None:
    assert [replace(each, digest="") for each in registry.offer(ALL)[0]] == [
        OfferedTool("alpha", unsafe=False, idempotent=True, trusted=True),
        OfferedTool("gamma", unsafe=True, approval=True, decided=True, trusted=True),
    ]


def test_a_tool_is_found_by_name_available_or_not(registry: ToolRegistry) -> None:
    [offer] = registry.offer_of("beta")
    assert replace(offer, digest="") == OfferedTool("beta", unsafe=False, idempotent=True, trusted=True)
    assert registry.offer_of("gone") == ()


async def test_an_unavailable_tool_says_why(registry: ToolRegistry) -> None:
    assert [(each.available, each.reason) for each in await registry.check_availability()] == [
        (True, ""),
        (False, "the disk is gone"),
        (True, ""),
    ]


def test_without_probes_availability_is_asked_anew_each_time(registry: ToolRegistry, broken: FakeTool) -> None:
    broken.unavailable_reason = ""
    assert [each.name for each in registry.offer(ALL)[0]] == ALL


async def test_a_tool_whose_check_breaks_is_not_available() -> None:
    class Careless(FakeTool):
        def available(self) -> Availability:
            raise OSError("secret path")

    [status] = await ToolRegistry(Careless()).check_availability()
    assert (status.available, status.reason) == (False, "its availability check failed: OSError")


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationFailure, match="two tools are named act: of built-in and mcp") as refused:
        ToolRegistry(FakeTool("act"), sources=[ToolList("mcp", [FakeTool("act")])])
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
def test_names_with_look_alikes_or_of_any_length_are_refused_at_registration(name: str) -> None:
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


class Server:
    """A source whose tools change while the service runs."""

    name = "mcp"
    servers: Sequence[ToolServerStatus] = ()

    def __init__(self, *tools: Tool) -> None:
        self.tools: Sequence[Tool] = tools


async def test_a_tool_that_comes_or_goes_is_seen_at_once() -> None:
    server = Server(FakeTool("read"))
    registry = ToolRegistry(FakeTool("write"), sources=[server])
    assert registry.names() == ["write", "read"]
    server.tools = [FakeTool("list", parameters={"type": "object", "required": ["path"]})]
    assert registry.names() == registry.names_without_agents == ["write", "list"]
    assert "read" not in registry
    assert registry.violations("list", {}) == (("arguments.path", "is required"),)
    assert (await registry.look_up("read"))[1].reason == "it is not installed here"
    server.tools = []
    assert registry.names_without_agents == ["write"]


async def test_a_late_tool_that_cannot_be_registered_is_left_out_with_the_reason() -> None:
    server = Server()
    registry = ToolRegistry(FakeTool("write"), sources=[server])
    broken = FakeTool("broken", parameters={"type": 7})
    server.tools = [FakeTool("write"), FakeTool("bad name"), broken, FakeTool("good")]
    assert registry.names() == ["write", "good"]
    left_out = (await registry.check_availability())[2:]
    assert [(each.info.name, each.source, each.available) for each in left_out] == [
        ("bad name", "mcp", False),
        ("broken", "mcp", False),
        ("write", "mcp", False),
    ]
    assert left_out[2].reason == "two tools are named write: of built-in and mcp"


def test_the_digest_changes_with_what_a_call_reaches() -> None:
    def digest(*tools: Tool) -> str:
        return ToolRegistry(sources=[ToolList("cli", tools)]).offer_of("act")[0].digest

    other_schema = FakeTool(parameters={"type": "object", "required": ["to"]})
    other_command = FakeTool()
    other_command.set_identity("rm")
    assert digest(FakeTool()) == digest(FakeTool())
    assert len({digest(each) for each in (FakeTool(), other_schema, other_command, FakeTool(idempotent=False))}) == 4


class Threads:
    """Threads on the event loop; a check that hangs does so until it is released."""

    is_exhausted = False

    def __init__(self) -> None:
        self.released = anyio.Event()
        self.released.set()
        self.runs = 0

    async def run(self, work: Callable[[], T]) -> T:
        self.runs += 1
        await self.released.wait()
        return work()


async def test_a_probe_is_at_most_a_second_old(clock: VirtualClock) -> None:
    threads, disk = Threads(), FakeTool("disk")
    registry = ToolRegistry(disk, probes=AvailabilityProbes(clock, threads))
    await registry.refresh(["disk"])
    disk.unavailable_reason = "the disk is gone"
    assert registry.is_current(["disk"])
    assert (await registry.look_up("disk"))[1].available
    await anyio.sleep(1.0)
    assert not registry.is_current(["disk"])
    assert (await registry.look_up("disk"))[1] == Availability(False, "the disk is gone")
    assert registry.offer(["disk"]) == ((), [])
    assert threads.runs == 2


async def test_a_probe_that_does_not_return_makes_its_tool_unavailable(clock: VirtualClock) -> None:
    threads, disk = Threads(), FakeTool("disk")
    threads.released = anyio.Event()
    registry = ToolRegistry(disk, probes=AvailabilityProbes(clock, threads))
    began = clock.monotonic()
    assert not (await registry.look_up("disk"))[1].available
    assert clock.monotonic() - began == pytest.approx(1.0)
    [status] = await registry.check_availability()
    assert status.reason == "its availability check did not return within 1 s"
    threads.released.set()
    await anyio.sleep(1.0)
    assert (await registry.look_up("disk"))[1].available
