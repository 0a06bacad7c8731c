"""The table `[ingress]`: aliases of models name what exists."""

import pytest

from portico.bootstrap.flows import check_aliases
from portico.domain.failures import ConfigurationFailure
from portico.settings import Settings
from portico.settings.tables.ingress import IngressSettings

ENGINES = {"fast": {"model": "rehearsal://"}}
AGENTS = {"helper": {"description": "Helps."}, "fast": {"description": "Is fast."}}


def settings(**models: str) -> Settings:
    return Settings.model_validate({"engines": ENGINES, "agents": AGENTS, "ingress": {"models": models}})


@pytest.mark.parametrize("target", ["fast", "default", "helper", "agent:helper", "flow:any"])
def test_an_alias_names_an_agent_a_route_an_engine_or_a_flow(target: str) -> None:
    assert settings(**{"gpt-4o*": target}).ingress.models == {"gpt-4o*": target}


@pytest.mark.parametrize("target", ["fats", "agent:fats", "engine:fast", ""])
def test_an_alias_of_what_does_not_exist_is_refused_by_its_key(target: str) -> None:
    with pytest.raises(ValueError, match=r"ingress\.models"):
        settings(**{"gpt-4o": target})


@pytest.mark.parametrize("alias", ["gpt*4", "", "gpt 4", "**"])
def test_an_alias_has_a_star_at_its_end_only(alias: str) -> None:
    with pytest.raises(ValueError, match=r"ingress"):
        settings(**{alias: "fast"})


def test_an_alias_of_a_flow_is_checked_once_the_flows_are_known() -> None:
    ingress = IngressSettings(models={"triage": "flow:triage"})
    check_aliases(ingress, ["triage"])
    with pytest.raises(ConfigurationFailure, match=r"ingress\.models\.triage"):
        check_aliases(ingress, ["other"])


def test_an_agent_that_hides_a_route_is_a_warning() -> None:
    assert any("agents.fast" in warning for warning in settings().warnings)
