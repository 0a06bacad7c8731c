"""Known models: the table is that of the package, and a name finds its row."""

import orjson
import pytest

from portico.adapters.engines.openai.vendors import VENDORS
from portico.domain.token_prices import TokenPrices
from portico.ports.engine_schemes import SCHEMES
from portico.settings.known_models import TABLES, KnownModel, bedrock_name, known_model
from tests.support.known_models import PROVIDERS, encoded, table

MINI = KnownModel(128_000, TokenPrices(0.15, 0.6, 0.075, 0.15))


@pytest.mark.parametrize("name", PROVIDERS)
def test_the_table_is_what_the_package_says_of_the_day_on_which_it_was_written(name: str) -> None:
    written = TABLES.joinpath(f"{name}.json").read_bytes()
    assert encoded(table(name, orjson.loads(written)["as_of"])) == written, "Run `make models`."


def test_every_table_that_a_scheme_or_a_vendor_names_exists() -> None:
    named = {scheme.known_models for scheme in SCHEMES.values()} | {vendor.prices for vendor in VENDORS.values()}
    assert named - {None} <= PROVIDERS.keys()
    assert {file.stem for file in TABLES.iterdir()} == PROVIDERS.keys()


@pytest.mark.parametrize("name", ["gpt-4o-mini", "gpt-4o-mini-2024-07-18", "gpt-4o-mini-latest"])
def test_a_version_of_a_model_has_the_facts_of_the_model(name: str) -> None:
    assert known_model("openai", name) == MINI


@pytest.mark.parametrize(
    ("scheme", "name", "prices"),
    [
        ("anthropic", "claude-haiku-4-5-20251001", TokenPrices(1.0, 5.0, 0.1, 1.25)),
        ("gemini", "models/gemini-2.5-flash", TokenPrices(0.3, 2.5, 0.03, 0.3)),
        ("gemini", "claude-opus-5@20260101", TokenPrices(5.0, 25.0, 0.5, 6.25)),
        ("bedrock", "eu.anthropic.claude-sonnet-4-5-20250929-v1:0", TokenPrices(3.3, 16.5, 0.33, 4.125)),
        ("bedrock", "global.anthropic.claude-sonnet-4-5-20250929-v1:0", TokenPrices(3.0, 15.0, 0.3, 3.75)),
        ("bedrock", "anthropic.claude-sonnet-4-20250514-v1:0:200k", TokenPrices(3.0, 15.0, 0.3, 3.75)),
        ("groq", "openai/gpt-oss-120b", TokenPrices(0.15, 0.6, 0.075, 0.15)),
        ("deepseek", "deepseek-chat", TokenPrices(0.27, 1.1, 0.07, 0.27)),
    ],
)
def test_models_of_every_provider_are_known(scheme: str, name: str, prices: TokenPrices) -> None:
    known = known_model(scheme, name)
    assert known is not None
    assert known.prices == prices


def test_a_model_may_have_a_price_and_no_known_window() -> None:
    known = known_model("bedrock", "openai.gpt-5.5")
    assert known is not None
    assert (known.context_window, known.prices.input) == (None, 5.5)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", "claude-opus-4-5-20251101"),
        ("amazon.nova-pro-v1:0", "nova-pro"),
        ("us-gov.amazon.nova-pro-v1:0:300k", "nova-pro"),
        ("global.openai.gpt-6.1-sol", "global.gpt-6.1-sol"),
        ("arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.amazon.nova-lite-v1:0", "nova-lite"),
        ("claude-sonnet-5", "claude-sonnet-5"),
        ("", ""),
    ],
)
def test_a_model_of_bedrock_loses_region_vendor_and_version(model: str, name: str) -> None:
    assert bedrock_name(model) == name


def test_a_model_that_is_dearer_for_long_inputs_is_known_up_to_that_length() -> None:
    known = known_model("gemini", "gemini-2.5-pro")
    assert known is not None
    assert known.context_window == 200_000


@pytest.mark.parametrize(
    ("scheme", "name"),
    [
        ("openai", "gpt-4o-mini-tts"),
        ("openai", "gpt-oss-20b"),
        ("openai", "mistral-large"),
        ("openai", ""),
        (None, "gpt-4o-mini"),
        ("anthropic", "gpt-4o-mini"),
        ("groq", "gpt-4o-mini"),
    ],
)
def test_other_names_are_not_known(scheme: str | None, name: str) -> None:
    assert known_model(scheme, name) is None
