"""The estimate of tokens: characters by class times a factor per class, times a ratio per tenant and model.

Theory of operation

1. The factors are those of o200k_base for code and for scripts outside ASCII, and a little more for English prose, so
   that a first request is rather cut than refused by the provider. Four spaces are indentation and count an eighth of
   other letters, since tokenizers join them.
2. The ratio corrects the estimate for one model. Every reply whose usage the provider reports moves it by a fifth of
   the way to reported over estimated tokens. It stays between 0.5 and 2.
3. A short exchange teaches nothing: there a provider's own frame outweighs the text, and a ratio learned from it would
   refuse long requests that fit.
4. A tenant learns for itself, so none can cause refusals of others.
5. Estimates are only used where the decision is recorded. A replay reads decisions and counts nothing.
"""

import string
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import ceil
from types import MappingProxyType
from typing import Final

import orjson

from portico.capabilities.models.context_window import count_tokens
from portico.domain.contract.messages import AudioPart, DocumentPart, ImagePart, Message, Part, TextPart
from portico.domain.ids import TenantId
from portico.domain.model_call import EngineCall, Reply
from portico.domain.tools import ToolDefinition
from portico.ports.model import TokenCounter, TokenRatio

MAX_RATIO: Final = 2.0
MIN_RATIO: Final = 0.5
LEAST_TAUGHT_TOKENS: Final = 100
"""Estimated tokens of an exchange that the ratio learns from."""
MAX_RATIOS: Final = 10_000
"""Ratios in memory; the one that was learned first is dropped for another."""
_WEIGHT: Final = 0.2
_PER_MESSAGE: Final = 4
_PER_TOOL: Final = 8
_PER_IMAGE: Final = 768
_LEAST_PER_PDF: Final = 1_500
_BYTES_PER_PDF_TOKEN: Final = 30
_BYTES_PER_AUDIO_TOKEN: Final = 500
_WORD_CHARACTERS_PER_TOKEN: Final = 4
_DIGITS_PER_TOKEN: Final = 2
_MARKS_PER_TOKEN: Final = 2
_INDENTATION: Final = "    "
_INDENTATION_SHRINKS: Final = 8
_DIGITS: Final = string.digits.encode()
_MARKS: Final = string.punctuation.encode()
_SCRIPTS: Final[Mapping[str, tuple[float, tuple[range, ...]]]] = MappingProxyType(
    {
        "Greek, Cyrillic": (0.3, (range(0x03, 0x05),)),
        "Hebrew, Arabic, Indic, Thai": (0.5, (range(0x05, 0x10),)),
        "Hangul": (0.6, (range(0x11, 0x12), range(0xAC, 0xD8))),
        "Han, Kana": (0.68, (range(0x30, 0x32), range(0x34, 0xA0), range(0xFF, 0x100))),
    }
)
"""Tokens per character of scripts, which the upper byte of their UTF-16 code units tells apart."""


def _upper_bytes() -> tuple[bytes, tuple[tuple[bytes, float], ...]]:
    """Return the translation of upper bytes to scripts, and the factor of each script."""
    table, factors = bytearray(256), []
    for number, (factor, blocks) in enumerate(_SCRIPTS.values(), 1):
        for block in blocks:
            for upper in block:
                table[upper] = number
        factors.append((bytes([number]), factor))
    return bytes(table), tuple(factors)


_SCRIPT_OF, _FACTORS = _upper_bytes()


class EstimatingTokenCounter:
    """Token counter without correction: letters and spaces by four, digits and marks by two, other characters by their
    script.

    Fractions are rounded up, so a text that is not empty has at least one token.
    """

    ratio: Final = 1.0

    def text(self, text: str) -> int:
        """Return the tokens of a text."""
        return _text(text)

    def message(self, message: Message) -> int:
        """Return the tokens of a whole message, with its role, calls and images."""
        if isinstance(message.content, str):
            tokens = _PER_MESSAGE + (_text(message.content) if message.content else 0)
        else:
            tokens = _PER_MESSAGE + _text(message.text)
            tokens += sum(map(_part, message.content))
        for call in message.tool_calls or ():
            tokens += _PER_TOOL + _text(f"{call.name}{orjson.dumps(call.arguments).decode()}")
        return tokens

    def tools(self, tools: Sequence[ToolDefinition]) -> int:
        """Return the tokens of tool definitions as a provider is sent them."""
        return sum(map(_definition, tools))


UNCORRECTED: Final[TokenCounter] = EstimatingTokenCounter()


def message_sizes(messages: Sequence[Message], known: list[int]) -> Sequence[int]:
    """Return the tokens of each message by estimate, without correction.

    Those of the first ones are `known`, and those of the others are added there, so that a message is counted once.
    """
    known += map(UNCORRECTED.message, messages[len(known) :])
    return known


class CorrectedTokenCounter:
    """Token counter by estimate times a ratio, rounded up for each text, message and definition."""

    def __init__(self, ratio: float) -> None:
        self.ratio = ratio

    def text(self, text: str) -> int:
        """Return the tokens of a text."""
        return ceil(UNCORRECTED.text(text) * self.ratio)

    def message(self, message: Message) -> int:
        """Return the tokens of a whole message."""
        return ceil(UNCORRECTED.message(message) * self.ratio)

    def tools(self, tools: Sequence[ToolDefinition]) -> int:
        """Return the tokens of tool definitions."""
        return sum(ceil(_definition(tool) * self.ratio) for tool in tools)


class LearningTokenEstimator:
    """Implementation of the `TokenEstimator` port: a ratio for each tenant and model, in memory."""

    def __init__(self, ratios: Iterable[TokenRatio] = ()) -> None:
        self._counters: dict[tuple[TenantId, str], CorrectedTokenCounter] = {}
        self._changed: set[tuple[TenantId, str]] = set()
        for each in ratios:
            self._set(each.tenant, each.model, each.ratio)

    def counter(self, tenant: TenantId, model: str) -> TokenCounter:
        """Return the counter for that model; uncorrected until the tenant has had replies of it."""
        return self._counters.get((tenant, model), UNCORRECTED)

    def learn(self, tenant: TenantId, model: str, *, estimated: float, reported: int) -> None:
        """Move the ratio of that model a fifth of the way to the tokens that were reported.

        `estimated` is the estimate without correction. A short exchange changes nothing.
        """
        if estimated < LEAST_TAUGHT_TOKENS or reported <= 0:
            return
        before = self.counter(tenant, model).ratio
        self._set(tenant, model, before + _WEIGHT * (_bounded(reported / estimated) - before))
        self._changed.add((tenant, model))

    def take_changed(self) -> list[TokenRatio]:
        """Return the ratios that were learned since the last call."""
        changed, self._changed = self._changed, set()
        return [TokenRatio(*key, self._counters[key].ratio) for key in sorted(changed) if key in self._counters]

    def give_back_changed(self, ratios: Iterable[TokenRatio]) -> None:
        """Count ratios that were taken and could not be stored as changed again."""
        self._changed.update((each.tenant, each.model) for each in ratios)

    def _set(self, tenant: TenantId, model: str, ratio: float) -> None:
        if (tenant, model) not in self._counters and len(self._counters) >= MAX_RATIOS:
            del self._counters[next(iter(self._counters))]
        self._counters[tenant, model] = CorrectedTokenCounter(_bounded(ratio))


def estimate_exchange(call: EngineCall, reply: Reply, read: float | None = None) -> float | None:
    """Return the tokens that `input_tokens` and what is written of the reply's usage are estimated at, uncorrected.

    `read` is the estimate of the call, if there is one. None if the call has images or media, whose size says little,
    or if the provider's count of what was written has thoughts that cannot be estimated.
    """
    if (
        reply.usage.reasoning_tokens
        or reply.reasoning
        or any(
            message.content.__class__ is list and (message.images or message.documents or message.audio)
            for message in call.messages
        )
    ):
        return None
    written = _text(reply.text) if reply.text else 0
    for each in reply.tool_calls:
        written += _PER_TOOL + _text(f"{each.name}{orjson.dumps(each.arguments).decode()}")
    return written + (count_tokens(call, UNCORRECTED) if read is None else read)


def _bounded(ratio: float) -> float:
    return min(MAX_RATIO, max(MIN_RATIO, ratio))


def _part(part: Part) -> int:
    """Return the tokens of a part that is no text."""
    match part:
        case ImagePart():
            return _PER_IMAGE
        case DocumentPart():
            text = part.plain_text
            return max(_LEAST_PER_PDF, ceil(_size(part.data) / _BYTES_PER_PDF_TOKEN)) if text is None else _text(text)
        case AudioPart():
            return ceil(_size(part.data) / _BYTES_PER_AUDIO_TOKEN)
        case TextPart():
            return 0


def _size(data: str) -> int:
    """Return the number of bytes of a base64 text."""
    return len(data) * 3 // 4


@lru_cache(maxsize=1024)
def _definition(tool: ToolDefinition) -> int:
    return _PER_TOOL + _text(f"{tool.name}{tool.description}{orjson.dumps(tool.parameters).decode()}")


def _text(text: str) -> int:
    ascii_text = text.encode("ascii", "ignore")
    words = ascii_text.translate(None, _DIGITS)
    letters = len(words.translate(None, _MARKS))
    digits, marks = len(ascii_text) - len(words), len(words) - letters
    indentation = text.count(_INDENTATION) * len(_INDENTATION)
    letters -= indentation - indentation // _INDENTATION_SHRINKS
    tokens = -(-letters // _WORD_CHARACTERS_PER_TOKEN) - (-digits // _DIGITS_PER_TOKEN) - (-marks // _MARKS_PER_TOKEN)
    return tokens if len(ascii_text) == len(text) else tokens + _foreign(text, len(text) - len(ascii_text))


def _foreign(text: str, characters: int) -> int:
    """Return the tokens of that many characters outside ASCII; one each where their script has no factor."""
    scripts = text.encode("utf-16-le", "surrogatepass")[1::2].translate(_SCRIPT_OF)
    tokens = 0.0
    for script, factor in _FACTORS:
        found = scripts.count(script)
        tokens += found * factor
        characters -= found
    return ceil(tokens + characters)
