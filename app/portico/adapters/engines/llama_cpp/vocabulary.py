"""The vocabulary of a local model: its tokens, their texts, and how a text is split into them.

llama.cpp first splits a text by a regular expression of the model, with std::regex, which takes some 320 bytes of stack
for each character of a match: 26,000 times one letter end the process. So no run of more than `LONGEST_RUN` characters,
blank or not, is given to it in one piece. Longer runs, which are not prose, are cut there.
"""

import ctypes
import re
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

from portico.adapters.engines.llama_cpp.library import LlamaCppLibrary
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError

LONGEST_RUN: Final = 4096
_LONGEST_PIECE: Final = 4096
_RUN: Final = re.compile(r"\S+|\s+")


class Vocabulary:
    """The vocabulary behind a pointer of llama.cpp, which must outlive it."""

    def __init__(self, library: LlamaCppLibrary, pointer: int) -> None:
        self._library = library
        self._llama = library.llama
        self._pointer = pointer
        self.size: int = self._llama.llama_vocab_n_tokens(pointer)

    @cached_property
    def pieces(self) -> tuple[bytes, ...]:
        """The text of each token; empty for control tokens."""
        buffer = ctypes.create_string_buffer(_LONGEST_PIECE)

        def piece(token: int) -> bytes:
            size = self._llama.llama_token_to_piece(self._pointer, token, buffer, _LONGEST_PIECE, 0, False)
            return buffer.raw[: max(size, 0)]

        return tuple(map(piece, range(self.size)))

    @cached_property
    def ends(self) -> frozenset[int]:
        """The tokens that end an answer."""
        return frozenset(token for token in range(self.size) if self._llama.llama_vocab_is_eog(self._pointer, token))

    @cached_property
    def silent(self) -> list[int]:
        """The tokens that have no text and do not end an answer either."""
        return [token for token, piece in enumerate(self.pieces) if not piece and token not in self.ends]

    @cached_property
    def texts(self) -> list[tuple[str, int]]:
        """The tokens that are whole characters, with their texts, in the order of these."""
        whole = ((_text(piece), token) for token, piece in enumerate(self.pieces) if token not in self.ends)
        return sorted((text, token) for text, token in whole if text)

    @cached_property
    def ragged(self) -> list[int]:
        """The tokens that begin or end within a character."""
        return [token for token, piece in enumerate(self.pieces) if piece and _text(piece) is None]

    @cached_property
    def guide(self) -> Any:
        """The vocabulary for llguidance. Raises: EngineError (REFUSED) when none of its tokens ends an answer."""
        if not self.ends:
            raise EngineError(
                AttemptFailureReason.REFUSED, "the model has no token that ends an answer, so that no schema is kept"
            )
        ends = sorted(self.ends)
        wrapper = self._library.guidance.TokenizerWrapper(_GuidanceVocabulary(self, ends))
        return self._library.guidance.LLTokenizer(wrapper, eos_token=ends)

    @property
    def begin(self) -> int | None:
        """The token at the beginning of every text, where the model wants one."""
        wanted = self._llama.llama_vocab_get_add_bos(self._pointer)
        return self._llama.llama_vocab_bos(self._pointer) if wanted else None

    @property
    def frame(self) -> tuple[str, str]:
        """The names of the tokens that begin and end a text."""
        llama, pointer = self._llama, self._pointer
        return self._name(llama.llama_vocab_bos(pointer)), self._name(llama.llama_vocab_eos(pointer))

    @cached_property
    def longest(self) -> int:
        """The most bytes of one token."""
        return max(map(len, self.pieces), default=0)

    def is_plain(self, text: str) -> bool:
        """Tell whether a text may be part of a prompt: it names no control token, and has no run that has to be cut."""
        return not self._cuts(text) and self.tokens(text) == self.tokens(text, control=True)

    def tokens(self, text: str, *, control: bool = False, framed: bool = False) -> list[int]:
        """Split a text into tokens.

        `framed` adds the tokens that begin and end a text of its own; `control` reads the names of control tokens as
        such, and is for plain texts, or our own.
        """
        cuts = [] if control else self._cuts(text)
        if not cuts:
            return self._tokens(text, control=control, framed=framed)
        begin = [self.begin] if framed and self.begin is not None else []
        end = [self._llama.llama_vocab_eos(self._pointer)] if framed and self._closes else []
        pieces = pairwise((0, *cuts, len(text)))
        return [*begin, *(token for start, stop in pieces for token in self._tokens(text[start:stop])), *end]

    def _cuts(self, text: str) -> list[int]:
        if len(text) <= LONGEST_RUN or not self._is_cut_by_expression:
            return []
        runs = _RUN.finditer(text)
        return [place for run in runs for place in range(run.start() + LONGEST_RUN, run.end(), LONGEST_RUN)]

    @property
    def _is_cut_by_expression(self) -> bool:
        return bool(self._llama.llama_vocab_type(self._pointer) == self._llama.LLAMA_VOCAB_TYPE_BPE)

    @property
    def _closes(self) -> bool:
        """True if the model wants a token at the end of every text."""
        return bool(self._llama.llama_vocab_get_add_eos(self._pointer))

    def _tokens(self, text: str, *, control: bool = False, framed: bool = False) -> list[int]:
        data = text.encode(errors="replace")
        room = len(data) + 8
        found = (self._llama.llama_token * room)()
        count = self._llama.llama_tokenize(self._pointer, data, len(data), found, room, framed, control)
        return list(found[: max(count, 0)])

    def _name(self, token: int) -> str:
        if not 0 <= token < self.size:
            return ""
        name: bytes = self._llama.llama_vocab_get_text(self._pointer, token)
        return name.decode(errors="replace")


class _GuidanceVocabulary:
    """A vocabulary in the interface of llguidance. Control tokens follow a byte that no text has."""

    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary, ends: list[int]) -> None:
        self._vocabulary = vocabulary
        self.eos_token_id = ends[0]
        self.special_token_ids = sorted([*ends, *vocabulary.silent])
        self.tokens = list(vocabulary.pieces)
        for token in self.special_token_ids:
            self.tokens[token] = b"\xff%d" % token

    def __call__(self, text: str | bytes) -> list[int]:
        return self._vocabulary.tokens(text if isinstance(text, str) else text.decode(errors="replace"))


def _text(piece: bytes) -> str | None:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return None
