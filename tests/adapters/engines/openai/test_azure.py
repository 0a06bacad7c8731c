"""OpenAI's APIs at Azure: their bodies, with the header of a resource's key."""

import pytest

from portico.adapters.engines.dialect import Dialect
from portico.adapters.engines.openai.azure import AzureChatCompletionsDialect, AzureResponsesDialect
from portico.domain.contract.request import ExecutionHints
from portico.ports.model import EngineProfile
from tests.adapters.engines.engine_calls import call


@pytest.mark.parametrize("dialect", [AzureChatCompletionsDialect(), AzureResponsesDialect()])
def test_a_resources_key_has_a_header_of_its_own(dialect: Dialect) -> None:
    assert dialect.headers("k") == {"api-key": "k"}
    assert dialect.headers(None) == {}


def test_the_model_behind_a_deployments_name_decides_what_its_request_may_have() -> None:
    profile = EngineProfile("a", "mine", "azure", 128_000, 4_096, frozenset(), known_as="gpt-5.5")
    asked = call(hints=ExecutionHints(max_tokens=100, temperature=0.5))
    sent = AzureChatCompletionsDialect().encode(asked, profile, stream=False)
    assert sent.body["model"] == "mine"
    assert sent.body["max_completion_tokens"] == 100
    assert sent.withheld == ("hints.temperature",)
