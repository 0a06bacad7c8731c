"""Permissions are exact names or prefixes."""

import pytest

from app.domain.access import ALL, KEY_DEFAULT, LOCAL, Permission, Permissions


@pytest.mark.parametrize(
    ("names", "tool", "allowed"),
    [
        (["tool:get_time"], "get_time", True),
        (["tool:get_time"], "get_times", False),
        (["tool:get_*"], "get_time", True),
        (["tool:get_*"], "set_time", False),
        (["tool:*"], "get_time", True),
        (["model:*"], "get_time", False),
        (["tool:get*time"], "get_time", False),
        ([], "get_time", False),
    ],
)
def test_a_tool_needs_its_name_or_a_prefix_of_it(names: list[str], tool: str, allowed: bool) -> None:
    assert Permissions.of(names).allows_tool(tool) is allowed


def test_the_order_in_which_permissions_are_named_does_not_matter() -> None:
    assert Permissions.of(["b", "a", "b"]) == Permissions.of(["a", "b"])


def test_a_key_without_named_permissions_has_no_right_on_others_data_and_on_metrics() -> None:
    refused = {each for each in Permission if not KEY_DEFAULT.allows(each)}
    assert refused == {Permission.VIEW_TENANT, Permission.READ_METRICS}
    assert KEY_DEFAULT.allows_tool("any")
    assert KEY_DEFAULT.allows_model("any")
    assert KEY_DEFAULT.allows_agent("any")


def test_a_deployment_without_authentication_permits_everything() -> None:
    assert LOCAL.permissions == ALL
    assert all(ALL.allows(each) for each in Permission)
