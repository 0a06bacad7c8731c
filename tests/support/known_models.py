"""The table of known models, made from the package genai-prices.

`python -m tests.support.known_models` writes it: for every name of a model that answers in text, its context window and
the prices of a million tokens for input, output, input read from a cache, and input written to one. A model whose price
depends on the length of the input is known up to the length at which it becomes dearer.
"""

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import orjson
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ClauseAnd, ClauseEquals, ClauseOr, ClauseStartsWith, ModelInfo, Provider, TieredPrices

TABLE: Final = Path(__file__).parents[2] / "app" / "portico" / "settings" / "known_models.json"
PROVIDERS: Final = {"openai": "openai", "anthropic": "anthropic", "gemini": "google"}
"""The provider of the package, by scheme."""
_NO_TEXT: Final = re.compile(
    r"audio|realtime|image|tts|embedding|transcribe|whisper|davinci|babbage|live|search|moderation|instruct|robotics"
    r"|gpt-oss|^ft:"
)
_SMALLEST_WINDOW: Final = 8_192
"""A smaller one would not leave room beside the default reserve for an answer."""


def table(as_of: str) -> dict[str, Any]:
    """Return the table with the prices of that day."""
    providers = {provider.id: provider for provider in get_snapshot().providers}
    day = datetime.fromisoformat(as_of).replace(tzinfo=UTC)
    models = {scheme: dict(sorted(_models(providers[provider], day))) for scheme, provider in PROVIDERS.items()}
    return {"source": f"genai-prices {version('genai-prices')}", "as_of": as_of, "models": models}


def _models(provider: Provider, day: datetime) -> Iterator[tuple[str, list[float | None]]]:
    names = {name for model in provider.models for name in _names(model.match) if _NO_TEXT.search(name) is None}
    for name in names:
        model = provider.find_model(name)
        if model is not None and (row := _row(model, day)) is not None:
            yield name, row


def _names(match: object) -> Iterator[str]:
    match match:
        case ClauseEquals(equals=name) | ClauseStartsWith(starts_with=name):
            yield name
        case ClauseOr(or_=parts) | ClauseAnd(and_=parts):
            for part in parts:
                yield from _names(part)


def _row(model: ModelInfo, day: datetime) -> list[float | None] | None:
    prices = model.get_prices(day)
    if prices.input_mtok is None or prices.output_mtok is None:
        return None
    given = (prices.input_mtok, prices.output_mtok, prices.cache_read_mtok, prices.cache_write_mtok)
    dearer_from = [tier.start for price in given if isinstance(price, TieredPrices) for tier in price.tiers]
    windows = [*dearer_from, *([] if model.context_window is None else [model.context_window])]
    window = min(windows, default=0)
    reading, writing, cached, cache_write = map(_amount, given)
    row = [window, reading, writing, reading if cached is None else cached]
    return [*row, reading if cache_write is None else cache_write] if window >= _SMALLEST_WINDOW else None


def _amount(price: Decimal | TieredPrices | None) -> float | None:
    return None if price is None else float(price.base if isinstance(price, TieredPrices) else price)


def encoded(content: dict[str, Any]) -> bytes:
    """Return the table as JSON, with one line for each model."""
    lines = [f'"source": "{content["source"]}", "as_of": "{content["as_of"]}", "models": {{']
    for number, (scheme, models) in enumerate(content["models"].items(), 1):
        rows = [f"{orjson.dumps(name).decode()}: {orjson.dumps(row).decode()}" for name, row in models.items()]
        lines += [f'"{scheme}": {{', ",\n".join(rows), "}" + ("," if number < len(content["models"]) else "")]
    return ("{" + "\n".join([*lines, "}}"]) + "\n").encode()


if __name__ == "__main__":
    TABLE.write_bytes(encoded(table(datetime.now(UTC).date().isoformat())))
    sys.stdout.write(f"{TABLE}\n")
