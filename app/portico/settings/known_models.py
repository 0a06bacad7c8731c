"""Known models of providers: their context windows and prices, which fill what the configuration leaves out.

The table is written from the package genai-prices by `make models`. It is not a dependency of the service, because
importing it takes a third of a second and 18 MB.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

from portico.domain.token_prices import TokenPrices
from portico.domain.value import value

_TABLE: Final = Path(__file__).with_suffix(".json")
_VERSION: Final = re.compile(r"([-@](\d{8}|\d{4}-\d{2}-\d{2}|\d{3}|latest)|-preview(-\d{2}-\d{2,4})?)+$")
"""End of a model's name that names one version of it."""


@value
class KnownModel:
    """Facts about a model. `prices` are in US dollars and hold for a context window up to `context_window` tokens."""

    context_window: int
    prices: TokenPrices


def known_model(scheme: str, name: str) -> KnownModel | None:
    """Return the facts about a model of a scheme; None if it is not known."""
    models = _table().get(scheme, {})
    name = name.removeprefix("models/")
    found = models.get(name) or models.get(_VERSION.sub("", name))
    return None if found is None else KnownModel(found[0], TokenPrices(*found[1:]))


@cache
def _table() -> dict[str, dict[str, list[Any]]]:
    table: dict[str, dict[str, list[Any]]] = orjson.loads(_TABLE.read_bytes())["models"]
    return table
