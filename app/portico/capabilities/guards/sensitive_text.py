"""Sensitive text: keys and values that clients and logs must not show, by kind and by place.

Redaction replaces what is found here, and a guard of type `pii` looks for it. A key is sensitive by its words, not by
its letters: `accessToken` is, `tokens` and `tokenizer` are not. What is found may be too much, such as a name after
`token:` in a program; a value that looks harmless is never left for that reason.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, get_args

from portico.capabilities.guards.pattern_set import PatternMatch, PatternSet
from portico.domain.context.guards import SensitiveKind
from portico.domain.value import value

KINDS: Final[tuple[SensitiveKind, ...]] = get_args(SensitiveKind)
MAX_KEY_LENGTH: Final = 256
"""Longest key that is looked at as a whole; of a longer one the end counts."""

_WORDS: Mapping[str, SensitiveKind] = MappingProxyType(
    {
        "authorization": "authorization",
        "token": "token",
        "password": "password",
        "passwords": "password",
        "passwd": "password",
        "secret": "secret",
        "secrets": "secret",
        "apikey": "api_key",
        "apikeys": "api_key",
    }
)
_PAIRS: Mapping[tuple[str, str], SensitiveKind] = MappingProxyType(
    {("api", "key"): "api_key", ("api", "keys"): "api_key", ("pass", "word"): "password"}
)
_CASE_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_LETTERS = re.compile(r"[a-z]+")
_SEARCHED_AT_CUT: Final = 512
"""Characters on each side of a cut that are searched; longer than an e-mail address or a card number."""
_REDACTED = re.compile(rf"\[redacted:(?:{'|'.join(KINDS)})\]")


class Finding(NamedTuple):
    """Sensitive part of a text: its kind, its first character and the one behind it."""

    kind: SensitiveKind
    start: int
    end: int


@value
class RedactedText:
    """Text without its sensitive parts, and how many there were of each kind."""

    text: str
    counts: Mapping[SensitiveKind, int]


@lru_cache(maxsize=1024)
def _kind_of_key(key: str) -> SensitiveKind | None:
    plain = key if key.isascii() else unicodedata.normalize("NFKC", key)
    split_at_case = [word.lower() for word in _CASE_WORD.findall(plain)]
    for words in (split_at_case, _LETTERS.findall(plain.lower())):
        found = {_WORDS[word] for word in words if word in _WORDS}
        found |= {_PAIRS[pair] for pair in pairwise(words) if pair in _PAIRS}
        if found:
            return min(found, key=KINDS.index)
    return None


def kind_of_key(key: str) -> SensitiveKind | None:
    """Return the kind of value that a key holds by its name; None if it is not sensitive.

    A key is split into words at separators and changes of case.
    """
    return _kind_of_key(key[-MAX_KEY_LENGTH:])


def find_sensitive(text: str, kinds: Iterable[SensitiveKind] = KINDS) -> list[Finding]:
    """Return the sensitive parts of a text in their order; they do not overlap.

    Overlapping parts are one, of the kind of the first. What was redacted already is not found again.
    """
    wanted = frozenset(kinds)
    patterns = _patterns()
    found: list[Finding] = []
    for index in patterns.matched(text):
        finder = _FINDERS[index].find
        for match in patterns.matches(index, text):
            found += (each for each in finder(match) if each.kind in wanted and not _is_redacted(text, each))
    return _merged(found) if found else found


def redact(text: str) -> RedactedText:
    """Return the text with `[redacted:KIND]` in place of each sensitive part."""
    return without(text, find_sensitive(text))


def without(text: str, findings: Sequence[Finding]) -> RedactedText:
    """Return the text with `[redacted:KIND]` in place of each finding in it."""
    if not findings:
        return RedactedText(text, {})
    pieces, place = [], 0
    for kind, start, end in findings:
        pieces += [text[place:start], redaction(kind)]
        place = end
    return RedactedText("".join([*pieces, text[place:]]), Counter(finding.kind for finding in findings))


def beginning(text: str, length: int) -> str:
    """Return at most the first `length` characters; a sensitive part that goes beyond them is left out as a whole.

    A half of it would be found by no pattern any more.
    """
    start = max(0, length - _SEARCHED_AT_CUT)
    for finding in find_sensitive(text[start : length + _SEARCHED_AT_CUT]):
        if start + finding.start < length < start + finding.end:
            return text[: start + finding.start]
    return text[:length]


def redaction(kind: SensitiveKind) -> str:
    """Return the text that stands in place of a sensitive part."""
    return f"[redacted:{kind}]"


def _is_redacted(text: str, finding: Finding) -> bool:
    match = _REDACTED.match(text, finding.start)
    return match is not None and match.end() >= finding.end


def _merged(found: Sequence[Finding]) -> list[Finding]:
    merged: list[Finding] = []
    for finding in sorted(found, key=lambda each: (each.start, -each.end, KINDS.index(each.kind))):
        last = merged[-1] if merged else None
        if last is not None and finding.start < last.end:
            merged[-1] = last._replace(end=max(last.end, finding.end))
        else:
            merged.append(finding)
    return merged


_Find: TypeAlias = Callable[[PatternMatch], Iterator[Finding]]


class _Finder(NamedTuple):
    """A pattern, and the function that reads the sensitive parts from its match."""

    pattern: str
    find: _Find


def _is(kind: SensitiveKind, group: int = 0) -> _Find:
    """Return a function that takes a group of the match as it is."""

    def find(match: PatternMatch) -> Iterator[Finding]:
        yield Finding(kind, *match.span(group))

    return find


def _value_of_key(match: PatternMatch) -> Iterator[Finding]:
    """Yield the value behind a sensitive key: groups are the key, the separator and the value."""
    kind = kind_of_key(match.group(1) or "")
    if kind is None or match.group(2) == "::":
        return
    start, end = match.span(3)
    value = match.group(3) or ""
    quote = value.lstrip("\\")[:1]
    if quote in {'"', "'"}:
        start += value.index(quote) + 1
    elif _REDACTED.sub("", value, count=1).strip(_PUNCTUATION):
        end -= len(value) - len(value.rstrip(_PUNCTUATION))
    else:
        return
    if start < end:
        yield Finding(kind, start, end)


def _credential(match: PatternMatch) -> Iterator[Finding]:
    """Yield the credential of a Bearer scheme: in lower case both words may be prose, such as "bearer bonds"."""
    scheme, value = match.group(1) or "", match.group(2) or ""
    if scheme[0] == "B" or len(value) >= _LONG_WORD or not (value.isalpha() and value.islower()):
        yield Finding("authorization", *match.span(2))


def _cards(match: PatternMatch) -> Iterator[Finding]:
    """Yield the card numbers in a run of digits: 13 to 19 of them that begin and end with a group of the run."""
    text = match.group(2) or ""
    if match.group(1):
        return  # the fraction of a decimal number
    offset = match.span(2)[0]
    places = [place for place, char in enumerate(text) if "0" <= char <= "9"]
    sums = _luhn_sums([int(text[place]) for place in places])
    ends = [i + 1 for i in range(len(places)) if i + 1 == len(places) or places[i + 1] > places[i] + 1]
    first = 0
    start = 0
    for group, _ in enumerate(ends):
        for end in ends[group : group + _CARD_DIGITS[1]]:
            length = end - start
            if length > _CARD_DIGITS[1]:
                break
            if start >= first and length >= _CARD_DIGITS[0] and _passes_luhn(sums, start, end):
                yield Finding("card", offset + places[start], offset + places[end - 1] + 1)
                first = end
        start = ends[group]


def _luhn_sums(digits: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return two running sums: one in which digits at even places count double, one in which those at odd places do."""
    even, odd = [0], [0]
    for place, digit in enumerate(digits):
        double = digit * 2 - 9 * (digit > _HALF)
        even.append(even[-1] + (digit if place % 2 else double))
        odd.append(odd[-1] + (double if place % 2 else digit))
    return even, odd


def _passes_luhn(sums: tuple[list[int], list[int]], start: int, end: int) -> bool:
    """Return True if the digits from `start` have a valid check digit as their last one, which counts once."""
    running = sums[end % 2]
    return (running[end] - running[start]) % 10 == 0


_PUNCTUATION: Final = ".,;)]}>'"
_HALF: Final = 4
_LONG_WORD: Final = 16
_CARD_DIGITS: Final = (13, 19)
_SEPARATOR = r"(::|:=|=>|={1,3}|[:\x{ff1a}\x{ff1d}])[ \t]*"
_VALUE = r"""(\\+"(?:[^"\\\n]|\\+[^"\\\n])*|"(?:[^"\\\n]|\\.)*|'[^'\n]*|[^\s"'&][^\s"&]*)"""
_SENSITIVE_WORD = r"(?:token|passw(?:or)?d|pass[_. \-]?word|secret|api[_. \-]?key)"
_LINE = r"""\\*["']?([^\s"'\\][^\r\n"'\\]*)"""
_FINDERS: Final = (
    _Finder(rf"""(?i)[\w.\-]*authorization[\w.\-]*\\*["']?[ \t]*{_SEPARATOR}{_LINE}""", _is("authorization", 2)),
    _Finder(r"(?i)\b(bearer)[ \t]+([A-Za-z0-9._~+/\-]+=*)", _credential),
    _Finder(rf"""(?i)([\w.\-]*{_SENSITIVE_WORD}[\w.\-]*)\\*["']?[ \t]*{_SEPARATOR}{_VALUE}""", _value_of_key),
    _Finder(r"""://[^\s/:@"']*:([^\s/@"']+)@""", _is("password", 1)),
    _Finder(r"\beyJ[A-Za-z0-9_\-]+\.eyJ[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]*", _is("token")),
    _Finder(r"\bptk_[A-Za-z0-9_.\-]{8,}|\bsk-[A-Za-z0-9_\-]{20,}|\bgh[opsur]_[A-Za-z0-9]{20,}", _is("api_key")),
    _Finder(r"\bAKIA[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_\-]{35}|\bxox[abprs]-[0-9A-Za-z\-]{10,}", _is("api_key")),
    _Finder(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?", _is("secret")),
    _Finder(r"[\pL\pN._%+\-]+@[\pL\pN\-]+(?:\.[\pL\pN\-]+)+", _is("email")),
    _Finder(r"([0-9]\.)?([0-9](?:[ \x{a0}\-]?[0-9]){12,})", _cards),
)


@cache
def _patterns() -> PatternSet:
    return PatternSet([finder.pattern for finder in _FINDERS])
