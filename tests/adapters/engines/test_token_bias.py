"""Bias of the token estimate: against a tokenizer, and against what providers have reported."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import orjson
import pytest

from portico.capabilities.models.tokens import UNCORRECTED, LearningTokenEstimator, estimate_exchange
from portico.domain.ids import TenantId
from tests.adapters.engines import test_recorded_anthropic, test_recorded_gemini, test_recorded_openai
from tests.adapters.engines.recorded_report import NO_RECORDED_TRAFFIC
from tests.adapters.engines.recordings import RecordedExchange, recordings
from tests.support.token_samples import SAMPLES

FILES = recordings("*-text-200-*.json")
READERS: Mapping[str, Any] = MappingProxyType({"gemini": test_recorded_gemini, "anthropic": test_recorded_anthropic})
NOT_OF_THE_TEXT = (
    *(b'"tools"', b'"mcp_servers"', b'"web_search_options"', b'"response_format"', b'"context_management"'),
    *(b'"image', b'"file', b'"inlineData"', b'"fileData"', b'"document"', b'"compaction"', b'"output_format"'),
)
"""Parts of a request that make a provider count what is no text of the exchange."""


@pytest.mark.parametrize("language", SAMPLES)
def test_scripts_without_spaces_and_code_are_within_a_tenth_of_a_tokenizer(language: str) -> None:
    sample = SAMPLES[language]
    assert UNCORRECTED.text(sample.text) == pytest.approx(sample.tokens, rel=0.1)


def counted(path: Path, reader: Any) -> list[tuple[float, int]]:
    """Return the estimate of an exchange and what was reported; nothing if that counts more than the text."""
    opened: Any = SimpleNamespace(param=path, node=SimpleNamespace(user_properties=[]))
    exchange = RecordedExchange(opened, reader.DIALECT)
    asked = orjson.dumps(exchange.request)
    if any(part in asked for part in NOT_OF_THE_TEXT):
        return []
    reply = exchange.read()
    estimated = estimate_exchange(reader.asked_for(exchange.request), reply)
    return [] if estimated is None else [(estimated, reply.usage.input_tokens + reply.usage.output_tokens)]


@pytest.mark.skipif(not FILES, reason=NO_RECORDED_TRAFFIC)
def test_the_estimate_of_recorded_traffic_is_within_a_twentieth_once_it_has_taught() -> None:
    """The exchanges of a dialect are pooled: each alone is too short to teach anything."""
    pooled: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for path in FILES:
        dialect = path.stem.partition("-")[0]
        pooled[dialect] += counted(path, READERS.get(dialect, test_recorded_openai))
    assert sorted(pooled) == ["anthropic", "gemini", "openai", "openai_compatible"]
    for dialect, counts in pooled.items():
        estimated, reported = sum(each for each, _ in counts), sum(each for _, each in counts)
        estimator, tenant = LearningTokenEstimator(), TenantId("any")
        assert 0.8 < estimated / reported < 1.25, dialect
        for _ in range(10):
            estimator.learn(tenant, dialect, estimated=estimated, reported=reported)
        assert estimated * estimator.counter(tenant, dialect).ratio == pytest.approx(reported, rel=0.05), dialect
