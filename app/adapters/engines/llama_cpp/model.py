"""A model file in this process, over llama.cpp's C interface.

Everything here blocks, and all of one model belongs to one thread. The package's class `Llama` is not used: while it
loads it bends the standard streams of the whole process, it reads a prompt in one go that nothing can stop, and its
sampler ends the process where no token is left to take.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from app.adapters.engines.llama_cpp.library import LlamaCppLibrary
from app.adapters.engines.llama_cpp.vocabulary import Vocabulary
from app.domain.model_call import AttemptFailureReason
from app.ports.model import EngineError

BATCH_TOKENS: Final = 256
"""How much of a prompt is read before anybody is asked whether to go on."""


class LocalModel:
    """One loaded model and what it is reading. Close it in the thread that made it.

    Raises: EngineFault (MODEL_MISSING) when llama.cpp does not take the file, or has no room for it.
    """

    def __init__(self, library: LlamaCppLibrary, path: Path, *, window_tokens: int) -> None:
        self.library = library
        self._llama = llama = library.llama
        with ExitStack() as opened:
            loaded = llama.llama_model_load_from_file(os.fsencode(path), llama.llama_model_default_params())
            self._model = _held(opened, loaded, llama.llama_model_free)
            self.window_tokens = min(window_tokens, llama.llama_model_n_ctx_train(self._model))
            self.vocabulary = Vocabulary(library, llama.llama_model_get_vocab(self._model))
            if not self.vocabulary.size or llama.llama_model_has_encoder(self._model):
                raise EngineError(AttemptFailureReason.MODEL_MISSING, "the model is of a kind that cannot be used")
            self._reading = self._context(opened, self.window_tokens, BATCH_TOKENS)
            self._memory = llama.llama_get_memory(self._reading)
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Frees everything."""
        self._opened.close()

    @property
    def can_generate(self) -> bool:
        """Whether it writes text; some models only embed."""
        return self._memory is not None

    @property
    def template(self) -> str | None:
        """The chat template, in Jinja's language."""
        template: bytes | None = self._llama.llama_model_chat_template(self._model, None)
        return None if template is None else template.decode(errors="replace")

    def clear(self) -> None:
        """Begins a new text."""
        self._llama.llama_memory_clear(self._memory, False)

    def process(self, tokens: Sequence[int]) -> None:
        """Reads on, at most `BATCH_TOKENS`. Raises: EngineFault (SERVER_ERROR)."""
        self._decode(self._reading, tokens)

    def logits(self) -> Any:
        """How likely each token is next, as an array of its own."""
        found = self._llama.llama_get_logits_ith(self._reading, -1)
        return self.library.numpy.ctypeslib.as_array(found, shape=(self.vocabulary.size,)).copy()

    def refuse_too_long(self, characters: int) -> None:
        """Raises: EngineFault (CONTEXT_EXCEEDED) for a text that cannot fit, whatever its tokens may be."""
        if characters > self.window_tokens * self.vocabulary.longest:
            raise context_exceeded()

    def _context(self, opened: ExitStack, tokens: int, batch: int) -> int:
        settings = self._llama.llama_context_default_params()
        settings.n_ctx = tokens
        settings.n_batch = settings.n_ubatch = min(batch, tokens)
        settings.n_threads = settings.n_threads_batch = max(1, (os.cpu_count() or 1) // 2)
        return _held(opened, self._llama.llama_init_from_model(self._model, settings), self._llama.llama_free)

    def _decode(self, context: int, tokens: Sequence[int]) -> None:
        told = (self._llama.llama_token * len(tokens))(*tokens)
        if self._llama.llama_decode(context, self._llama.llama_batch_get_one(told, len(tokens))) != 0:
            raise EngineError(AttemptFailureReason.SERVER_ERROR, "llama.cpp could not go on")


def context_exceeded() -> EngineError:
    """The fault of a text that does not fit."""
    return EngineError(AttemptFailureReason.CONTEXT_EXCEEDED, "the text is longer than the model's context window")


def _held(opened: ExitStack, pointer: int | None, free: Callable[[int], None]) -> int:
    """What was made, to be freed with all the rest."""
    if pointer is None:
        raise EngineError(AttemptFailureReason.MODEL_MISSING, "llama.cpp cannot load the model, or has no room for it")
    opened.callback(free, pointer)
    return pointer
