"""Known models of providers: their windows, prices and missing capabilities, which fill what is not configured.

The table of windows and prices is written from the package genai-prices by `make models`. It is not a dependency of
the service, because importing it takes a third of a second and 18 MB.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import orjson

from portico.domain.token_prices import TokenPrices
from portico.domain.value import value

_TABLE: Final = Path(__file__).with_suffix(".json")
_VERSION: Final = re.compile(r"([-@](\d{8}|\d{4}-\d{2}-\d{2}|\d{3}|latest)|-preview(-\d{2}-\d{2,4})?)+$")
"""End of a model's name that names one version of it."""
_MISSING_CAPABILITIES: Mapping[str, Sequence[tuple[str, Sequence[str]]]] = MappingProxyType(
    {
        "openai": (
            (r"gpt-3\.5|gpt-4(?!o|\.)|gpt-4o-2024-05-13|chatgpt-4o|o1-(mini|preview)", ("schema", "schema_with_tools")),
            (r"gpt-3\.5|gpt-4(?!o|\.|-turbo(?!-preview)|-.*vision)|o1-(mini|preview)|o3-mini", ("images",)),
            (r"chatgpt-4o|o1-(mini|preview)", ("tools", "forced_calls", "parallel_tools")),
            (r"o1-(mini|preview)", ("system_role",)),
        )
    }
)
"""Capabilities that models of a pattern lack, by scheme: at OpenAI those from before structured outputs, images and
reasoning with tools.
"""


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


def missing_capabilities(scheme: str, name: str) -> list[str]:
    """Return the capabilities of its scheme that a model is known to lack."""
    family, patterns = name.removeprefix("ft:"), _MISSING_CAPABILITIES.get(scheme, ())
    return [capability for pattern, lost in patterns if re.match(pattern, family) for capability in lost]


@cache
def _table() -> dict[str, dict[str, list[Any]]]:
    table: dict[str, dict[str, list[Any]]] = orjson.loads(_TABLE.read_bytes())["models"]
    return table
