"""Known models of providers: their windows, prices and missing capabilities, which fill what is not configured.

The tables of windows and prices are written from the package genai-prices by `make models`. It is not a dependency of
the service, because importing it takes a third of a second and 18 MB. A table is read when an engine needs it.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import orjson

from portico.domain.token_prices import TokenPrices
from portico.domain.value import value

TABLES: Final = Path(__file__).with_name("models")
_VERSION: Final = re.compile(r"([-@](\d{8}|\d{4}-\d{2}-\d{2}|\d{3}|latest)|-preview(-\d{2}-\d{2,4})?)+$")
"""End of a model's name that names one version of it."""
GLOBAL_ENDPOINT: Final = "global."
"""Prefix of a model of Bedrock's global endpoint, which costs less than those of regions."""
_BEDROCK_PREFIX: Final = re.compile(r"((regional|apac|[a-z]{2}(-gov)?)\.)?[a-z][a-z0-9]*\.")
_BEDROCK_VERSION: Final = re.compile(r"(-v\d+)?(:\d+k?)*$")
_MISSING_CAPABILITIES: Mapping[str, Sequence[tuple[str, Sequence[str]]]] = MappingProxyType(
    {
        "openai": (
            (r"gpt-3\.5|gpt-4(?!o|\.)|gpt-4o-2024-05-13|chatgpt-4o|o1-(mini|preview)", ("schema", "schema_with_tools")),
            (r"gpt-3\.5|gpt-4(?!o|\.|-turbo(?!-preview)|-.*vision)|o1-(mini|preview)|o3-mini", ("images",)),
            (r"chatgpt-4o|o1-(mini|preview)", ("tools", "forced_calls", "parallel_tools")),
            (r"o1-(mini|preview)", ("system_role",)),
        ),
        "vertex": ((r"(?!gemini-)", ("schema",)), (r"claude-", ("forced_calls",))),
    }
)
"""Capabilities that models of a pattern lack, by scheme: at OpenAI those from before structured outputs, images and
reasoning with tools, on Vertex what the APIs of other publishers' models lack, as at Anthropic.
"""

_FEATURES: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "reasoning": re.compile(
            r"o1(?!-(mini|preview))|o[3-9]|codex-mini|gpt-5(?!([.-]\d)?-chat)|gpt-[6-9]|gpt-\d\d|gpt-oss"
            r"|claude-(?!instant|[12]\b|3-(?!7))|gemini-(2\.5|[3-9]|.*latest)|grok-(3-mini|4\.)|glm-(4\.[5-9]|[5-9])"
            r"|qwen3(?!.*(coder|instruct))|deepseek-(chat|reasoner|r1|v3\.[1-9]|v[4-9])|mistral-(small|medium)-latest"
        ),
        "documents": re.compile(
            r"gpt-4o(?!.*-(audio|realtime|transcribe|tts))|gpt-4\.1|gpt-[5-9]|gpt-\d\d|o1(?!-(mini|preview))|o3(?!-mini)|o4"
            r"|claude-(?!instant|[12]\b)|gemini-"
        ),
        "audio": re.compile(r"gpt-audio|gpt-4o.*-audio|gemini-"),
    }
)
"""Capabilities that few engines have, and the models that have them, by the beginning of their names."""


@value
class KnownModel:
    """Facts about a model. `context_window` is None if only its prices are known.

    `prices` are in US dollars and hold for a context window up to `context_window` tokens.
    """

    context_window: int | None
    prices: TokenPrices


def known_model(table: str | None, name: str) -> KnownModel | None:
    """Return the facts about a model of a table; None if it is not known."""
    if table is None:
        return None
    models = _models(table)
    if table == "bedrock":
        name = bedrock_name(name)
        names = [name, name.removeprefix(GLOBAL_ENDPOINT)]
    else:
        names = [name.removeprefix("models/")]
    names += [_VERSION.sub("", each) for each in names]
    found = next((models[each] for each in names if each in models), None)
    return None if found is None else KnownModel(found[0] or None, TokenPrices(*found[1:]))


def known_names(table: str | None) -> Collection[str]:
    """Return the names of the models of a table."""
    return () if table is None else _models(table)


def bedrock_name(model: str) -> str:
    """Return the name of a model of Bedrock without region, vendor and version, from its id or its ARN."""
    name = model.rpartition("/")[2]
    prefix = GLOBAL_ENDPOINT if name.startswith(GLOBAL_ENDPOINT) else ""
    return prefix + _BEDROCK_VERSION.sub("", _BEDROCK_PREFIX.sub("", name.removeprefix(prefix), count=1))


def missing_capabilities(scheme: str, name: str) -> list[str]:
    """Return the capabilities of its scheme that a model is known to lack."""
    family, patterns = name.removeprefix("ft:"), _MISSING_CAPABILITIES.get(scheme, ())
    return [capability for pattern, lost in patterns if re.match(pattern, family) for capability in lost]


def known_features(name: str) -> frozenset[str]:
    """Return the capabilities of `_FEATURES` that a model is known to have.

    What stands before its name is ignored: the name of a vendor or a region, and that the model was tuned.
    """
    family = _BEDROCK_PREFIX.sub("", name.rpartition("/")[2].removeprefix("ft:").removeprefix(GLOBAL_ENDPOINT), count=1)
    return frozenset(feature for feature, models in _FEATURES.items() if models.match(family))


@cache
def _models(table: str) -> Mapping[str, list[Any]]:
    models: dict[str, list[Any]] = orjson.loads(TABLES.joinpath(f"{table}.json").read_bytes())["models"]
    return models
