"""A model file in this process, through llama.cpp's C interface.

Everything here blocks, and all of one model belongs to one thread. The package's class `Llama` is not used: it
redirects the standard streams of the whole process while it loads, reads a prompt in one call that nothing can stop,
and its sampler ends the process where no token is left.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from portico.adapters.engines.llama_cpp.library import LlamaCppLibrary
from portico.adapters.engines.llama_cpp.vocabulary import Vocabulary
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError

BATCH_TOKENS: Final = 256
"""The part of a prompt that is read between two checks for a cancelled call."""


class LocalModel:
    """One loaded model and the text that it is reading. Close it in the thread that made it.

    Raises: EngineError (MODEL_MISSING) when llama.cpp refuses the file, or has no memory for it.
    """

    def __init__(self, library: LlamaCppLibrary, path: Path, *, window_tokens: int) -> None:
        self.library = library
        self._llama = llama = library.llama
        with ExitStack() as opened:
            loaded = llama.llama_model_load_from_file(os.fsencode(path), llama.llama_model_default_params())
            self._model = _owned(opened, loaded, llama.llama_model_free)
            self.window_tokens = min(window_tokens, llama.llama_model_n_ctx_train(self._model))
            self.vocabulary = Vocabulary(library, llama.llama_model_get_vocab(self._model))
            if not self.vocabulary.size or llama.llama_model_has_encoder(self._model):
                raise EngineError(AttemptFailureReason.MODEL_MISSING, "the model is of a kind that cannot be used")
            self._reading = self._context(opened, self.window_tokens, BATCH_TOKENS)
            self._memory = llama.llama_get_memory(self._reading)
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Free everything."""
        self._opened.close()

    @property
    def can_generate(self) -> bool:
        """True if the model writes text; some models only embed."""
        return self._memory is not None

    @property
    def template(self) -> str | None:
        """The chat template, in Jinja's language."""
        template: bytes | None = self._llama.llama_model_chat_template(self._model, None)
        return None if template is None else template.decode(errors="replace")

    def clear(self) -> None:
        """Begin a new text."""
        self._llama.llama_memory_clear(self._memory, False)

    def process(self, tokens: Sequence[int]) -> None:
        """Read more tokens, at most `BATCH_TOKENS`. Raises: EngineError (SERVER_ERROR)."""
        self._decode(self._reading, tokens)

    def logits(self) -> Any:
        """Return the logits of the next token, as an array of its own."""
        found = self._llama.llama_get_logits_ith(self._reading, -1)
        return self.library.numpy.ctypeslib.as_array(found, shape=(self.vocabulary.size,)).copy()

    def refuse_too_long(self, characters: int) -> None:
        """Raise EngineError (CONTEXT_EXCEEDED) for a text that cannot fit, with any tokens."""
        if characters > self.window_tokens * self.vocabulary.longest:
            raise context_exceeded()

    def _context(self, opened: ExitStack, tokens: int, batch: int) -> int:
        settings = self._llama.llama_context_default_params()
        settings.n_ctx = tokens
        settings.n_batch = settings.n_ubatch = min(batch, tokens)
        settings.n_threads = settings.n_threads_batch = max(1, (os.cpu_count() or 1) // 2)
        return _owned(opened, self._llama.llama_init_from_model(self._model, settings), self._llama.llama_free)

    def _decode(self, context: int, tokens: Sequence[int]) -> None:
        token_array = (self._llama.llama_token * len(tokens))(*tokens)
        if self._llama.llama_decode(context, self._llama.llama_batch_get_one(token_array, len(tokens))) != 0:
            raise EngineError(AttemptFailureReason.SERVER_ERROR, "llama.cpp could not go on")


def context_exceeded() -> EngineError:
    """Return the fault of a text that does not fit."""
    return EngineError(AttemptFailureReason.CONTEXT_EXCEEDED, "the text is longer than the model's context window")


def _owned(opened: ExitStack, pointer: int | None, free: Callable[[int], None]) -> int:
    """Return a pointer that is freed with the others."""
    if pointer is None:
        raise EngineError(AttemptFailureReason.MODEL_MISSING, "llama.cpp cannot load the model, or has no room for it")
    opened.callback(free, pointer)
    return pointer
