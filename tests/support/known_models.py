"""The table of known models, made from the package genai-prices.

`python -m tests.support.known_models` writes it: for every name of a model that answers in text, its context window and
the prices of a million tokens for input, output, input read from a cache, and input written to one. A model whose price
depends on the length of the input is known up to the length at which it becomes dearer. The window is 0 where the
package names none. Bedrock's models have their name without region, vendor and version; those of its global endpoint,
which cost less, keep `global.` before it.
"""

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from importlib.metadata import version
from typing import Any, Final

import orjson
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import (
    ClauseAnd,
    ClauseContains,
    ClauseEndsWith,
    ClauseEquals,
    ClauseOr,
    ClauseStartsWith,
    ModelInfo,
    Provider,
    TieredPrices,
)

from portico.settings.known_models import GLOBAL_ENDPOINT, TABLES, bedrock_name

PROVIDERS: Final = {
    "openai": "openai",
    "anthropic": "anthropic",
    "gemini": "google",
    "azure": "azure",
    "bedrock": "aws",
    "deepseek": "deepseek",
    "fireworks": "fireworks",
    "groq": "groq",
    "mistral": "mistral",
    "openrouter": "openrouter",
    "together": "together",
    "xai": "x-ai",
}
"""The provider of the package, by table."""
_OWN_APIS: Final = ("openai", "anthropic", "gemini")
"""The tables of vendors whose models have a window in the package if they are in use."""
_NO_TEXT: Final = re.compile(
    r"audio|realtime|image|tts|embed|transcribe|whisper|moderation|robotics|sonic|voice|orpheus|rerank|^ft:"
)
_NOT_SERVED: Final = re.compile(r"davinci|babbage|live|search|instruct|gpt-oss")
"""Models that the vendors' own APIs do not have, or not for chats."""
_FULL_PRICE_HOUR: Final = 12
"""An hour of UTC in which no vendor gives a discount for the time of day."""
_SMALLEST_WINDOW: Final = 8_192
"""A smaller one would not leave room beside the default reserve for an answer."""


def table(name: str, as_of: str) -> dict[str, Any]:
    """Return the table of that name with the prices of that day."""
    provider = next(provider for provider in get_snapshot().providers if provider.id == PROVIDERS[name])
    day = datetime.fromisoformat(as_of).replace(tzinfo=UTC, hour=_FULL_PRICE_HOUR)
    rows = _bedrock_models(provider, day) if name == "bedrock" else _models(provider, day)
    if name in _OWN_APIS:
        rows = ((model, row) for model, row in rows if row[0] and _NOT_SERVED.search(model) is None)
    models = dict(sorted(rows))
    return {"source": f"genai-prices {version('genai-prices')}", "as_of": as_of, "models": models}


def _models(provider: Provider, day: datetime) -> Iterator[tuple[str, list[float | None]]]:
    names = {name.rstrip("@") for model in provider.models for name in _names(model.match)}
    for name in names:
        if _NO_TEXT.search(name):
            continue
        model = provider.find_model(name)
        if model is not None and (row := _row(model, day)) is not None:
            yield name, row


def _bedrock_models(provider: Provider, day: datetime) -> Iterator[tuple[str, list[float | None]]]:
    """Yield the models of the global endpoint, and those of regions; the former stand for the latter if alone."""
    regional: dict[str, list[float | None]] = {}
    for model in sorted(provider.models, key=lambda model: model.id.startswith(GLOBAL_ENDPOINT)):
        name, row = bedrock_name(model.id), _row(model, day)
        if row is not None and _NO_TEXT.search(model.id) is None:
            regional.setdefault(name.removeprefix(GLOBAL_ENDPOINT), row)
            if name.startswith(GLOBAL_ENDPOINT):
                yield name, row
    yield from regional.items()


def _names(match: object) -> Iterator[str]:
    match match:
        case (
            ClauseEquals(equals=name)
            | ClauseStartsWith(starts_with=name)
            | ClauseEndsWith(ends_with=name)
            | ClauseContains(contains=name)
        ):
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
    is_usable = not windows or window >= _SMALLEST_WINDOW
    return [*row, reading if cache_write is None else cache_write] if is_usable else None


def _amount(price: Decimal | TieredPrices | None) -> float | None:
    return None if price is None else float(price.base if isinstance(price, TieredPrices) else price)


def encoded(content: dict[str, Any]) -> bytes:
    """Return the table as JSON, with one line for each model."""
    rows = [f"{orjson.dumps(name).decode()}: {orjson.dumps(row).decode()}" for name, row in content["models"].items()]
    head = f'"source": "{content["source"]}", "as_of": "{content["as_of"]}", "models": {{'
    return ("{" + head + "\n" + ",\n".join(rows) + "\n}}\n").encode()


if __name__ == "__main__":
    for each in PROVIDERS:
        TABLES.joinpath(f"{each}.json").write_bytes(encoded(table(each, datetime.now(UTC).date().isoformat())))
    sys.stdout.write(f"{TABLES}\n")
