"""Permissions are exact names or prefixes."""

import pytest

from portico.domain.access.principal import ALL, KEY_DEFAULT, LOCAL, Permission, Permissions


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


@pytest.mark.parametrize(
    ("names", "permitted"),
    [
        (["*"], ("get_time", "agent__bob", "send")),
        (["tool:*"], ("get_time", "send")),
        (["agent:bob", "tool:se*"], ("agent__bob", "send")),
        ([], ()),
    ],
)
def test_the_permitted_tools_keep_their_order(names: list[str], permitted: tuple[str, ...]) -> None:
    assert Permissions.of(names).permitted_tools(["get_time", "agent__bob", "send"]) == permitted


@pytest.mark.parametrize(
    ("names", "tools", "left"),
    [
        (("tool:*",), ["get_time", "roll_*"], {"tool:get_time", "tool:roll_*"}),
        (("tool:get_*", "tool:roll_dice"), ["get_time", "roll_*", "send"], {"tool:get_time", "tool:roll_dice"}),
        (("tool:get_time",), ["send"], set()),
        (("tool:get_time",), [], set()),
        (("model:a", "can_approve"), ["get_time"], {"model:a", "can_approve"}),
    ],
)
def test_rights_of_a_tenant_narrow_those_of_a_principal(
    names: tuple[str, ...], tools: list[str], left: set[str]
) -> None:
    assert set(Permissions(names).narrowed("tool", tools).names) == left


def test_everything_is_narrowed_in_one_kind_only() -> None:
    narrowed = ALL.narrowed("model", ["small", "local-*"])
    assert [narrowed.allows_model(name) for name in ("small", "local-7b", "large")] == [True, True, False]
    assert narrowed.allows_tool("get_time")
    assert narrowed.allows_agent("support")
    assert all(narrowed.allows(each) for each in Permission)


def test_the_order_in_which_permissions_are_named_does_not_matter() -> None:
    assert Permissions.of(["b", "a", "b"]) == Permissions.of(["a", "b"])


def test_a_key_without_named_permissions_has_no_right_on_others_data_on_metrics_and_on_keys() -> None:
    refused = {each for each in Permission if not KEY_DEFAULT.allows(each)}
    assert refused == {
        *(Permission.VIEW_TENANT, Permission.READ_METRICS, Permission.MANAGE_KEYS, Permission.ACT_FOR),
        Permission.MANAGE_WEBHOOKS,
        Permission.MANAGE_CREDENTIALS,
    }
    assert KEY_DEFAULT.allows_tool("any")
    assert KEY_DEFAULT.allows_model("any")
    assert KEY_DEFAULT.allows_agent("any")


def test_a_deployment_without_authentication_permits_everything() -> None:
    assert LOCAL.permissions == ALL
    assert all(ALL.allows(each) for each in Permission)
