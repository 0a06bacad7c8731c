"""Constraints on the next token of an answer, from a grammar or a schema.

A grammar is enforced by our own recogniser, which also judges the answer afterwards, and not by llama.cpp's sampler.
That one stores a stack for each reading of the text: under `root ::= "(" root ")" | "(" root "]" | "x"` each bracket
costs four times as much as the one before (the 13th 1.2 s), within a call that nothing can stop. It also ends the
process for a grammar that it cannot read or a token that it cannot take. No grammar ever gets there.

Most tokens that a model prefers are allowed. So one is drawn first and then checked, and only after `TRIES` refused
tokens is the whole vocabulary searched, along its common prefixes.

A schema is enforced by llguidance, whose masks are cheap for any vocabulary. It ignores what it cannot enforce (`not`,
`uniqueItems`, `if` and others); the answer is validated afterwards.
"""

from codecs import utf_8_decode
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from sys import maxunicode
from threading import Event
from typing import Any, Final, Protocol, TypeAlias

import orjson

from portico.adapters.engines.llama_cpp.model import LocalModel
from portico.adapters.engines.llama_cpp.sampling import IMPOSSIBLE_LOGIT
from portico.capabilities.output.grammar import Grammar, GrammarError, GrammarPosition, TooAmbiguousError
from portico.domain.model_call import AttemptFailureReason, EngineCall
from portico.ports.model import EngineError

TRIES: Final = 32
WHITESPACE: Final = r" |\n{1,2}[ \t]{0,20}"
"""The whitespace between the parts of a JSON value. A model that may write more of it sometimes never stops."""
OPTIONS: Final = "x-guidance"
"""The keyword of a schema that would configure llguidance."""
_LEAST: Final = (0, 0, 0x80, 0x800, 0x10000)
Draw: TypeAlias = Callable[[Any], int]


class TokenConstraint(Protocol):
    """The rules for one answer. `is_finished`: no token can follow."""

    @property
    def is_finished(self) -> bool: ...

    def choose(self, logits: Any, draw: Draw) -> int:
        """Draw a token that may come next and add it to the answer. Changes the logits.

        Raises: EngineError (MALFORMED) when no token is possible.
        """
        ...


def constraint_for(model: LocalModel, call: EngineCall, left: Event) -> TokenConstraint:
    """Return the constraint that a call asks for. Once `left` is set the answer is not needed any more, and any choice
    will do.

    Raises: EngineError (REFUSED) when it cannot be enforced.
    """
    if call.grammar is not None:
        return GrammarConstraint(model, call.grammar, left)
    return NoConstraint() if call.schema is None else SchemaConstraint(model, call.schema)


class NoConstraint:
    """Allows every token."""

    is_finished = False

    def choose(self, logits: Any, draw: Draw) -> int:
        return _drawn(logits, draw)


class SchemaConstraint:
    """Enforces a JSON Schema."""

    def __init__(self, model: LocalModel, schema: Mapping[str, Any]) -> None:
        guidance = model.library.guidance
        self._numpy = model.library.numpy
        self._silent = model.vocabulary.silent
        try:
            text = orjson.dumps({key: value for key, value in schema.items() if key != OPTIONS}).decode()
            how = {"lenient": True, "whitespace_pattern": WHITESPACE}
            grammar = guidance.LLMatcher.grammar_from_json_schema(text, overrides=how)
        except (TypeError, ValueError) as cause:
            raise _not_enforceable("schema") from cause
        self._matcher = guidance.LLMatcher(model.vocabulary.guide, grammar, log_level=0)
        if self._matcher.is_error():
            raise _not_enforceable("schema")

    @property
    def is_finished(self) -> bool:
        return bool(self._matcher.is_stopped())

    def choose(self, logits: Any, draw: Draw) -> int:
        mask = self._numpy.frombuffer(self._matcher.compute_bitmask(), dtype=self._numpy.uint8)
        if self._matcher.is_error():
            raise _not_enforceable("schema")
        logits[self._numpy.unpackbits(mask, count=len(logits), bitorder="little") == 0] = IMPOSSIBLE_LOGIT
        logits[self._silent] = IMPOSSIBLE_LOGIT
        token = _drawn(logits, draw)
        if not self._matcher.consume_token(token):
            raise _not_enforceable("schema")
        return token


class GrammarConstraint:
    """Enforces a GBNF grammar, also within a character of several tokens."""

    def __init__(self, model: LocalModel, grammar: str, left: Event) -> None:
        self._vocabulary = model.vocabulary
        self._left = left
        self._begun = b""
        """The bytes of a character that are there so far."""
        try:
            self._place = Grammar(grammar).start()
        except (GrammarError, TooAmbiguousError) as cause:
            raise _not_enforceable("grammar") from cause

    @property
    def is_finished(self) -> bool:
        return self._place.is_complete and not self._begun and not self._place.accepts_any_of(0, maxunicode)

    def choose(self, logits: Any, draw: Draw) -> int:
        logits[self._vocabulary.silent] = IMPOSSIBLE_LOGIT
        try:
            return self._chosen(logits, draw)
        except TooAmbiguousError as cause:
            raise _not_enforceable("grammar") from cause

    def _chosen(self, logits: Any, draw: Draw) -> int:
        for _ in range(TRIES):
            token = _drawn(logits, draw)
            if self._takes(token):
                return token
            logits[token] = IMPOSSIBLE_LOGIT
        allowed = list(self._allowed())
        kept = logits[allowed]
        logits[:] = IMPOSSIBLE_LOGIT
        logits[allowed] = kept
        token = _drawn(logits, draw)
        self._takes(token)
        return token

    def _takes(self, token: int) -> bool:
        if token in self._vocabulary.ends:
            return self._place.is_complete and not self._begun
        behind = self._behind(self._vocabulary.pieces[token])
        if behind is None:
            return False
        self._place, self._begun = behind
        return True

    def _behind(self, piece: bytes) -> tuple[GrammarPosition, bytes] | None:
        """Return the position after a piece; None where the piece is not allowed."""
        data = self._begun + piece
        try:
            text, read = utf_8_decode(data, "strict", False)
        except UnicodeDecodeError:
            return None
        place: GrammarPosition | None = self._place
        for character in text:
            place = place and place.advance(character)
        begun = data[read:]
        return (place, begun) if place and (not begun or place.accepts_any_of(*code_point_range(begun))) else None

    def _allowed(self) -> Iterator[int]:
        """Yield all tokens that may come next."""
        if not self._begun:
            yield from self._vocabulary.ends if self._place.is_complete else ()
            yield from self._whole_pieces()
        for token in self._vocabulary.ragged:
            if not self._left.is_set() and self._behind(self._vocabulary.pieces[token]):
                yield token

    def _whole_pieces(self) -> Iterator[int]:
        """Search the vocabulary in the order of its texts, so that a common prefix is read once."""
        places, walked, dead = [self._place], "", None
        for text, token in self._vocabulary.texts:
            if self._left.is_set() or (dead is not None and text.startswith(dead)):
                continue
            common = _common_prefix_length(walked, text)
            del places[common + 1 :]
            for character in text[common:]:
                place = places[-1].advance(character)
                if place is None:
                    break
                places.append(place)
            walked = text[: len(places) - 1]
            dead = None if walked == text else text[: len(places)]
            if dead is None:
                yield token


def _common_prefix_length(one: str, other: str) -> int:
    """Return the length of the common prefix."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _drawn(logits: Any, draw: Draw) -> int:
    if not isfinite(logits.max()):
        raise EngineError(AttemptFailureReason.MALFORMED, "the model has no token with which its answer could go on")
    return draw(logits)


def _not_enforceable(what: str) -> EngineError:
    return EngineError(AttemptFailureReason.REFUSED, f"the {what} cannot be kept while the answer is written")


def code_point_range(begun: bytes) -> tuple[int, int]:
    """Return the first and the last code point whose UTF-8 begins with these bytes."""
    lead = begun[0]
    size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    code = lead & (0x7F >> size)
    for byte in begun[1:]:
        code = code << 6 | byte & 0x3F
    open_bits = 6 * (size - len(begun))
    return max(code << open_bits, _LEAST[size]), min((code + 1 << open_bits) - 1, maxunicode)
