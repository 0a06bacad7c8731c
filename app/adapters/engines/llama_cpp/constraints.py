"""What keeps an answer to its form while it is written: which tokens may come next.

A grammar is followed by our own recogniser, the one that judges the answer afterwards, and not by llama.cpp's sampler.
That one holds a stack for each reading of the text: under `root ::= "(" root ")" | "(" root "]" | "x"` each bracket
costs four times what the one before did (the 13th 1.2 s), within a call that nothing can stop. And it ends the
process where it meets a grammar it cannot read or a token it cannot take. Nothing of a grammar ever gets there.

Most tokens that a model wants are allowed. So one is drawn first and then looked at, and only when `TRIES` have been
refused is the whole vocabulary gone through, along its common beginnings.

A schema is kept by llguidance, whose masks cost little for any vocabulary. What it cannot keep (`not`, `uniqueItems`,
`if` and others) it leaves to whoever checks the answer.
"""

from codecs import utf_8_decode
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from sys import maxunicode
from threading import Event
from typing import Any, Final, Protocol, TypeAlias

import orjson

from app.adapters.engines.llama_cpp.model import LocalModel
from app.adapters.engines.llama_cpp.sampling import IMPOSSIBLE_LOGIT
from app.capabilities.output.grammar import Grammar, GrammarError, GrammarPosition, TooAmbiguousError
from app.domain.model_call import AttemptFailureReason, EngineCall
from app.ports.model import EngineError

TRIES: Final = 32
WHITESPACE: Final = r" |\n{1,2}[ \t]{0,20}"
"""Between the parts of a JSON value: a model that may write more of it sometimes never stops."""
OPTIONS: Final = "x-guidance"
"""What in a schema would tell llguidance how to keep it."""
_LEAST: Final = (0, 0, 0x80, 0x800, 0x10000)
Draw: TypeAlias = Callable[[Any], int]


class TokenConstraint(Protocol):
    """What one answer must be like. `finished` says that nothing can follow."""

    @property
    def is_finished(self) -> bool: ...

    def choose(self, logits: Any, draw: Draw) -> int:
        """Draws a token that may come next, which belongs to the answer then. Changes the logits.

        Raises: EngineFault (MALFORMED) when there is none.
        """
        ...


def constraint_for(model: LocalModel, call: EngineCall, left: Event) -> TokenConstraint:
    """What the call asks for. When `left` is set nobody waits for a choice any more, and any will do.

    Raises: EngineFault (REFUSED) when it cannot be kept.
    """
    if call.grammar is not None:
        return GrammarConstraint(model, call.grammar, left)
    return NoConstraint() if call.schema is None else SchemaConstraint(model, call.schema)


class NoConstraint:
    """Anything may follow."""

    is_finished = False

    def choose(self, logits: Any, draw: Draw) -> int:
        return _drawn(logits, draw)


class SchemaConstraint:
    """Keeps a JSON Schema."""

    def __init__(self, model: LocalModel, schema: Mapping[str, Any]) -> None:
        guidance = model.library.guidance
        self._numpy = model.library.numpy
        self._silent = model.vocabulary.silent
        try:
            text = orjson.dumps({key: value for key, value in schema.items() if key != OPTIONS}).decode()
            how = {"lenient": True, "whitespace_pattern": WHITESPACE}
            grammar = guidance.LLMatcher.grammar_from_json_schema(text, overrides=how)
        except (TypeError, ValueError) as cause:
            raise _unkept("schema") from cause
        self._matcher = guidance.LLMatcher(model.vocabulary.guide, grammar, log_level=0)
        if self._matcher.is_error():
            raise _unkept("schema")

    @property
    def is_finished(self) -> bool:
        return bool(self._matcher.is_stopped())

    def choose(self, logits: Any, draw: Draw) -> int:
        mask = self._numpy.frombuffer(self._matcher.compute_bitmask(), dtype=self._numpy.uint8)
        if self._matcher.is_error():
            raise _unkept("schema")
        logits[self._numpy.unpackbits(mask, count=len(logits), bitorder="little") == 0] = IMPOSSIBLE_LOGIT
        logits[self._silent] = IMPOSSIBLE_LOGIT
        token = _drawn(logits, draw)
        if not self._matcher.consume_token(token):
            raise _unkept("schema")
        return token


class GrammarConstraint:
    """Keeps a GBNF grammar, also within a character of several tokens."""

    def __init__(self, model: LocalModel, grammar: str, left: Event) -> None:
        self._vocabulary = model.vocabulary
        self._left = left
        self._begun = b""
        """The bytes of a character that are there so far."""
        try:
            self._place = Grammar(grammar).start()
        except (GrammarError, TooAmbiguousError) as cause:
            raise _unkept("grammar") from cause

    @property
    def is_finished(self) -> bool:
        return self._place.is_complete and not self._begun and not self._place.accepts_any_of(0, maxunicode)

    def choose(self, logits: Any, draw: Draw) -> int:
        logits[self._vocabulary.silent] = IMPOSSIBLE_LOGIT
        try:
            return self._chosen(logits, draw)
        except TooAmbiguousError as cause:
            raise _unkept("grammar") from cause

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
        """Where the piece leads; None where it cannot stand here."""
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
        """All tokens that may come next."""
        if not self._begun:
            yield from self._vocabulary.ends if self._place.is_complete else ()
            yield from self._whole_pieces()
        for token in self._vocabulary.ragged:
            if not self._left.is_set() and self._behind(self._vocabulary.pieces[token]):
                yield token

    def _whole_pieces(self) -> Iterator[int]:
        """Goes through the vocabulary in the order of its texts, so that what two have in common is read once."""
        places, walked, dead = [self._place], "", None
        for text, token in self._vocabulary.texts:
            if self._left.is_set() or (dead is not None and text.startswith(dead)):
                continue
            common = _in_common(walked, text)
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


def _in_common(one: str, other: str) -> int:
    """How many characters both begin with."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _drawn(logits: Any, draw: Draw) -> int:
    if not isfinite(logits.max()):
        raise EngineError(AttemptFailureReason.MALFORMED, "the model has no token with which its answer could go on")
    return draw(logits)


def _unkept(what: str) -> EngineError:
    return EngineError(AttemptFailureReason.REFUSED, f"the {what} cannot be kept while the answer is written")


def code_point_range(begun: bytes) -> tuple[int, int]:
    """The first and the last code point of which UTF-8 begins like this."""
    lead = begun[0]
    size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    code = lead & (0x7F >> size)
    for byte in begun[1:]:
        code = code << 6 | byte & 0x3F
    open_bits = 6 * (size - len(begun))
    return max(code << open_bits, _LEAST[size]), min((code + 1 << open_bits) - 1, maxunicode)
