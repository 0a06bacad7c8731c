"""Extraction of the JSON value from a model's reply [003].

Four methods are tried in this order: a mapping's `text` string, the first fenced block, the first brace-balanced value,
the whole text. The third goes from one *region* to the next: a region begins at a bracket that can start a value, so
not at that of `[see below]` or `{name}`, and ends at the bracket that balances it, strings aside. Parts of a region are
never tried on their own: the inner list of an object with a comma too many is not the answer. A region that never ends
is the last one: it may be repaired, but its parts are not the answer either.

Regions do not overlap and their number is limited, so the time is linear in the length of the text.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from portico.domain.failures import Code, ConstraintFailure
from portico.domain.strict_json import StrictJsonError, raw_decode
from portico.domain.value import value

MAX_REGIONS: Final = 256
"""Most regions of a text that are tried."""


class ExtractionMethod(StrEnum):
    """The methods, in their order, by the names of the seed."""

    TEXT_KEY = "dictionary_text_key"
    FENCED = "markdown_code_blocks"
    EMBEDDED = "embedded_json"
    DIRECT = "direct_parsing"


EXTRACTION_METHODS: Final = tuple(ExtractionMethod)


class JSONExtractionError(ConstraintFailure):
    """No method found a JSON value, and none could be repaired.

    `prompt_id` is the prompt that was answered, if any. A value that was found and does not fit is another failure.
    """

    def __init__(
        self,
        message: str,
        extraction_methods_attempted: tuple[ExtractionMethod, ...] = EXTRACTION_METHODS,
        prompt_id: str | None = None,
    ) -> None:
        self.extraction_methods_attempted: list[str] = [method.value for method in extraction_methods_attempted]
        self.prompt_id = prompt_id
        self.reason = message
        details = {"methods": self.extraction_methods_attempted, "violations": [{"path": "$", "message": message}]}
        super().__init__(Code.CONSTRAINT_JSON_INVALID, f"the answer holds no JSON value: {message}", details)


@value
class ExtractedValue:
    """A value, and the method that found it."""

    value: Any
    method: ExtractionMethod


def extract(response: str | Mapping[str, Any]) -> ExtractedValue:
    """Return the value that a reply holds.

    Raises: JSONExtractionError, which says what was wrong with the first region, if there was one.
    """
    if isinstance(response, str):
        return _extract(response)
    text = response.get("text")
    if not isinstance(text, str):
        raise JSONExtractionError("the reply is a mapping without a text")
    whole = read_whole(text)
    return _extract(text) if whole is None else ExtractedValue(whole.value, ExtractionMethod.TEXT_KEY)


def _extract(text: str) -> ExtractedValue:
    found = _fenced(text)
    if found is not None:
        return found
    regions = JsonRegions(text)
    first, error = regions.start, ""
    while regions.start is not None:
        try:
            return ExtractedValue(regions.read(), ExtractionMethod.EMBEDDED)
        except StrictJsonError as refused:
            error = error or str(refused)
        regions.advance()
    if regions.too_many:
        raise JSONExtractionError(f"more than {MAX_REGIONS} parts of it could be one, and the first ones are not")
    found = read_whole(text) if first is None or first > _skip_blank(text, 0) else None
    if found is None:
        raise JSONExtractionError(error or "there is neither an object nor a list in it")
    return found


_BLANK = re.compile(r"\s*+")
_FENCE = re.compile(
    r"^[ \t]*+(?:`{3,}+|~{3,}+)[ \t]*+(?:[\w+.-]++(?=\s))?|(?<!`)`{3,}+[\w+.-]*+[ \t]*+\n", re.MULTILINE
)
"""A fence at the beginning of a line, or elsewhere if its line ends with it, which no JSON string contains."""
_FENCE_END = re.compile(r"\s*+(?:`{3}|~{3}|\Z)")


def fenced_block_start(text: str) -> int | None:
    """Return the index behind the opening line of the first fence; None without a fence."""
    if ("`" not in text or "```" not in text) and ("~" not in text or "~~~" not in text):
        return None
    fence = _FENCE.search(text)
    return None if fence is None else fence.end()


def _fenced(text: str) -> ExtractedValue | None:
    begin = fenced_block_start(text)
    if begin is None:
        return None
    begin = _skip_blank(text, begin)
    last_fence = text.rfind("```", begin)
    for block in (text[:last_fence], text) if last_fence > begin else (text,):
        try:
            value, end = raw_decode(block, begin)
        except StrictJsonError:
            continue
        if _FENCE_END.match(text, end):
            return ExtractedValue(value, ExtractionMethod.FENCED)
    return None


def read_whole(text: str) -> ExtractedValue | None:
    """Return the value if all of the text is one, apart from surrounding blanks; else None."""
    try:
        value, end = raw_decode(text, _skip_blank(text, 0))
    except StrictJsonError:
        return None
    return ExtractedValue(value, ExtractionMethod.DIRECT) if _skip_blank(text, end) == len(text) else None


def _skip_blank(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return at if blank is None else blank.end()


_OPENING = re.compile(
    r"""\{(?=\s*+(?:["'\u201c\u201d\u2018\u2019}\#,]|/[/*]|[\w$][\w$.-]*+\s*+:|\Z))"""
    r"""|\[(?=\s*+(?:["'\u201c\u201d\u2018\u2019{\[\]\#,-]|/[/*]|\d|(?:true|false|null|True|False|None|NaN|Infinity)\b|\Z))"""
)
_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|([\[{])|([\]}])', re.DOTALL)
_OPENS, _CLOSES = 1, 2
"""Groups of the pattern; strings are in none."""


class JsonRegions:
    """The regions of a text from an index on; `start` is where the current one begins, None behind the last."""

    def __init__(self, text: str, at: int = 0) -> None:
        self.too_many = False
        self._text = text
        self._passed = 0
        self.start = self._opening(at)

    def read(self) -> Any:
        """Return the value of the region. Raises: StrictJsonError.

        All regions but the first are cut out of the text before they are read: the line of an error is counted from the
        beginning of the text, which would take longer for each later region.
        """
        return raw_decode(self._text[self.start :])[0] if self._passed else raw_decode(self._text, self.start or 0)[0]

    def advance(self) -> None:
        """Go on to the next region; behind the last one, or behind too many, there is none."""
        end = self.end()
        self._passed += 1
        self.start = None if end is None else self._opening(end)
        if self.start is not None and self._passed == MAX_REGIONS:
            self.start, self.too_many = None, True

    def end(self) -> int | None:
        """Return the index behind the bracket that balances the first; None if the text ends before."""
        depth = 0
        for token in _BRACKET.finditer(self._text, self.start or 0):
            if token.lastindex == _OPENS:
                depth += 1
            elif token.lastindex == _CLOSES:
                depth -= 1
                if depth == 0:
                    return token.end()
        return None

    def _opening(self, at: int) -> int | None:
        opening = _OPENING.search(self._text, at)
        return None if opening is None else opening.start()


def repairable_text(text: str) -> str | None:
    """Return the text to repair: from the last region in the first fenced block, else in the whole text.

    None if there is no region, or if there are too many.
    """
    begin = fenced_block_start(text)
    if begin is not None:
        block = text[begin : _closing_fence(text, begin)]
        last = _last_region(block)
        if last is not None:
            return block[last:]
    last = _last_region(text)
    return None if last is None else text[last:]


_CLOSING_LINE = re.compile(r"^[ \t]*+(?:```|~~~)", re.MULTILINE)


def _closing_fence(text: str, begin: int) -> int:
    """Return the end of the block: a fence on a line of its own, else any fence, else the end of the text."""
    line = _CLOSING_LINE.search(text, begin)
    if line is not None:
        return line.start()
    anywhere = text.find("```", begin)
    return len(text) if anywhere < 0 else anywhere


def _last_region(text: str) -> int | None:
    last, regions = None, JsonRegions(text)
    while regions.start is not None:
        last = regions.start
        regions.advance()
    return None if regions.too_many else last
