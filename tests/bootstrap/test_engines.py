"""Builders of engines, and the facts about an engine that its configuration leaves out."""

from pathlib import Path
from typing import Any

import pytest

from portico.bootstrap import engine_builders
from portico.bootstrap.engine_urls import server_url
from portico.bootstrap.engines import engine_profile
from portico.domain.token_prices import TokenPrices
from portico.ports.engine_schemes import SCHEMES
from portico.ports.model import EngineProfile
from portico.settings import Settings

MINI = "openai://gpt-4o-mini"


def test_every_scheme_of_the_configuration_has_a_builder() -> None:
    modules = {module.stem for module in Path(engine_builders.__path__[0]).glob("*.py")}
    assert modules - {"__init__", "build", "http"} == SCHEMES.keys()


def test_an_engine_has_a_server_unless_it_runs_in_this_process() -> None:
    assert all(bool(scheme.base_url) is not scheme.is_offline for scheme in SCHEMES.values())


@pytest.mark.parametrize(
    ("engine", "url"),
    [
        ({"model": MINI}, "https://api.openai.com/v1"),
        ({"model": MINI, "base_url": "http://127.0.0.1:1/v1"}, "http://127.0.0.1:1/v1"),
        ({"model": "ollama:///a"}, "http://127.0.0.1:11434"),
        ({"model": "ollama://127.0.0.1:2/a"}, "http://127.0.0.1:2"),
        ({"model": "rehearsal://"}, ""),
    ],
)
def test_the_server_of_an_engine_is_the_configured_one_then_that_of_its_scheme(
    engine: dict[str, Any], url: str
) -> None:
    settings = Settings.model_validate({"engines": {"a": engine}})
    assert server_url(settings.engines["a"]) == url


def profile_of(currency: str = "USD", **engine: Any) -> EngineProfile:
    tables = {"engines": {"a": {"model": MINI, **engine}}, "telemetry": {"currency": currency}}
    return engine_profile("a", Settings.model_validate(tables))


def test_a_known_model_has_its_window_and_its_prices_and_says_so() -> None:
    profile = profile_of()
    assert (profile.context_window, profile.price) == (128_000, TokenPrices(0.15, 0.6, 0.075, 0.15))
    assert profile.known == ("context_window", "price")


def test_what_is_configured_comes_first() -> None:
    profile = profile_of(context_window=64_000, price={"input": 1, "output": 2, "cached": 0.5, "cache_write": 3})
    assert (profile.context_window, profile.price) == (64_000, TokenPrices(1, 2, 0.5, 3))
    assert profile.known == ()


def test_prices_of_cached_tokens_that_are_not_configured_are_those_of_the_known_model() -> None:
    profile = profile_of(price={"input": 0.15, "output": 0.6})
    assert profile.price == TokenPrices(0.15, 0.6, 0.075, 0.15)
    assert profile.known == ("context_window", "price.cached", "price.cache_write")


@pytest.mark.parametrize("model", [MINI, "openai://local-model"])
def test_without_a_known_price_cached_tokens_cost_as_much_as_others(model: str) -> None:
    profile = profile_of("EUR", model=model, price={"input": 0.15, "output": 0.6})
    assert profile.price == TokenPrices.without_cache(0.15, 0.6)


def test_known_prices_apply_only_in_us_dollars() -> None:
    profile = profile_of("EUR")
    assert (profile.price, profile.known) == (None, ("context_window",))


def test_known_prices_apply_only_up_to_the_known_window() -> None:
    assert profile_of(model="gemini://gemini-2.5-pro").price is not None
    assert profile_of(model="gemini://gemini-2.5-pro", context_window=1_000_000).price is None


def test_a_model_that_is_not_known_has_the_defaults_of_its_scheme() -> None:
    profile = profile_of(model="openai://local-model", base_url="http://127.0.0.1:1/v1")
    assert (profile.context_window, profile.price, profile.known) == (128_000, None, ())


def test_capabilities_that_a_model_is_known_to_lack_can_be_corrected() -> None:
    profile = profile_of(model="openai://gpt-4-0613", capabilities={"images": True})
    assert (profile.capabilities.schema, profile.capabilities.images, profile.capabilities.tools) == (False, True, True)
    assert profile.known == (
        *("context_window", "price", "capabilities.schema", "capabilities.schema_with_tools"),
    )  # fmt: skip


def test_a_model_known_as_another_has_its_window_prices_and_capabilities_and_keeps_its_name() -> None:
    profile = profile_of(model="openai://mine", base_url="http://127.0.0.1:1/v1", known_as="openai://gpt-4-0613")
    assert (profile.model, profile.known_as) == ("mine", "gpt-4-0613")
    assert (profile.context_window, profile.capabilities.schema) == (8_192, False)
    assert profile.price == TokenPrices.without_cache(30.0, 60.0)
    assert profile.known == (
        *("context_window", "price", "capabilities.schema", "capabilities.schema_with_tools", "capabilities.images"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("engine", "price"),
    [
        ({"model": "openai://deepseek-chat", "base_url": "https://api.deepseek.com"}, 0.27),
        ({"model": "openai://deepseek-chat", "vendor": "deepseek"}, 0.27),
        ({"model": "openai://gpt-4o-mini", "base_url": "http://127.0.0.1:1/v1"}, 0.15),
        ({"model": "openai://gpt-4o-mini", "vendor": "vllm"}, None),
        ({"model": "openai://gpt-4o-mini", "vendor": "groq"}, None),
        ({"model": "openai://codestral-latest", "vendor": "mistral"}, 0.3),
    ],
)
def test_prices_are_those_of_the_vendor(engine: dict[str, Any], price: float | None) -> None:
    found = profile_of(**engine).price
    assert (None if found is None else found.input) == price


def test_a_known_price_without_a_known_window_holds_for_every_window() -> None:
    profile = profile_of(model="openai://devstral-small", vendor="mistral", context_window=1_000_000)
    assert profile.price is not None
    assert profile.known == ("price",)


@pytest.mark.parametrize(
    ("model", "missing"),
    [
        ("gpt-4o", set()),
        ("gpt-4o-2024-05-13", {"schema", "schema_with_tools"}),
        ("gpt-4.1-mini", set()),
        ("gpt-4-turbo", {"schema", "schema_with_tools"}),
        ("gpt-3.5-turbo", {"schema", "schema_with_tools", "images"}),
        ("o3-mini", {"images"}),
        ("o3", set()),
        ("gpt-5", set()),
        ("qwen-3", set()),
    ],
)
def test_openais_models_lack_what_they_are_known_to_lack(model: str, missing: set[str]) -> None:
    known = profile_of(model=f"openai://{model}").known
    assert {fact.removeprefix("capabilities.") for fact in known if fact.startswith("capabilities.")} == missing
