"""Known models: the table is that of the package, and a name finds its row."""

import orjson
import pytest

from portico.domain.token_prices import TokenPrices
from portico.settings.known_models import KnownModel, known_model
from tests.support.known_models import TABLE, encoded, table

MINI = KnownModel(128_000, TokenPrices(0.15, 0.6, 0.075, 0.15))


def test_the_table_is_what_the_package_says_of_the_day_on_which_it_was_written() -> None:
    written = orjson.loads(TABLE.read_bytes())
    assert encoded(table(written["as_of"])) == TABLE.read_bytes(), "Run `make models`."


@pytest.mark.parametrize("name", ["gpt-4o-mini", "gpt-4o-mini-2024-07-18", "gpt-4o-mini-latest"])
def test_a_version_of_a_model_has_the_facts_of_the_model(name: str) -> None:
    assert known_model("openai", name) == MINI


@pytest.mark.parametrize(
    ("scheme", "name", "prices"),
    [
        ("anthropic", "claude-haiku-4-5-20251001", TokenPrices(1.0, 5.0, 0.1, 1.25)),
        ("gemini", "models/gemini-2.5-flash", TokenPrices(0.3, 2.5, 0.03, 0.3)),
    ],
)
def test_models_of_every_provider_are_known(scheme: str, name: str, prices: TokenPrices) -> None:
    known = known_model(scheme, name)
    assert known is not None
    assert known.prices == prices


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
        ("ollama", "gpt-4o-mini"),
        ("anthropic", "gpt-4o-mini"),
        ("rehearsal", "rehearsal"),
    ],
)
def test_other_names_are_not_known(scheme: str, name: str) -> None:
    assert known_model(scheme, name) is None
