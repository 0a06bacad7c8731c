"""The generation of one answer of a local model, from the conversation to the last token."""

from codecs import getincrementaldecoder
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from threading import Event
from typing import Final

from portico.adapters.engines.llama_cpp.constraints import TokenConstraint, constraint_for
from portico.adapters.engines.llama_cpp.model import BATCH_TOKENS, LocalModel, context_exceeded
from portico.adapters.engines.llama_cpp.prompt import PromptWriter
from portico.adapters.engines.llama_cpp.sampling import Sampler, Sampling
from portico.domain.contract.response import TokenUsage
from portico.domain.model_call import AttemptFailureReason, EngineCall
from portico.ports.model import EngineError

_DECODER: Final = getincrementaldecoder("utf-8")


class Generation:
    """One answer in progress. `run` is called in the model's thread, everything else from any thread.

    It has at most `max_tokens`, 0 for as many as fit. `on_text` receives each token's text, in that thread. `finish` is
    `stop` or `length` once the answer is complete. The token that ends an answer counts as written.
    """

    def __init__(self, call: EngineCall, sampling: Sampling, max_tokens: int, on_text: Callable[[str], None]) -> None:
        self._call = call
        self._sampling = sampling
        self._max_tokens = max_tokens
        self._on_text = on_text
        self._stopped = Event()
        self._pieces: list[str] = []
        self._read_tokens = 0
        self._written_tokens = 0
        self.finish: str | None = None

    def stop(self) -> None:
        """Stop writing: the answer is not needed any more."""
        self._stopped.set()

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._pieces)

    @property
    def usage(self) -> TokenUsage:
        """The tokens read and written so far."""
        read, written = self._read_tokens, self._written_tokens
        return TokenUsage(input_tokens=read, output_tokens=written, total_tokens=read + written)

    def run(self, model: LocalModel, prompter: PromptWriter) -> None:
        """Write until the answer is complete or stopped. Raises: EngineError."""
        if not model.can_generate:
            raise EngineError(AttemptFailureReason.MODEL_MISSING, "the model only embeds")
        prompt = prompter.tokens(self._call.messages)
        room = model.window_tokens - len(prompt)
        if room < 1:
            raise context_exceeded()
        constraint = constraint_for(model, self._call, self._stopped)
        self._read_prompt(model, prompt)
        ending = StopTextFilter(self._stops(prompter))
        with closing(Sampler(model, self._sampling)) as sampler:
            self._write(model, constraint, sampler, ending, min(room, self._max_tokens or room))

    def _stops(self, prompter: PromptWriter) -> Sequence[str]:
        hinted = self._call.hints.stop or ()
        stops = (hinted,) if isinstance(hinted, str) else tuple(hinted)
        is_bound = self._call.grammar is not None or self._call.schema is not None
        return stops if is_bound else (*stops, *prompter.stops)

    def _read_prompt(self, model: LocalModel, prompt: Sequence[int]) -> None:
        model.clear()
        for start in range(0, len(prompt), BATCH_TOKENS):
            if self._stopped.is_set():
                return
            batch = prompt[start : start + BATCH_TOKENS]
            model.process(batch)
            self._read_tokens += len(batch)

    def _write(
        self, model: LocalModel, constraint: TokenConstraint, sampler: Sampler, ending: "StopTextFilter", most: int
    ) -> None:
        decode = partial(_DECODER("replace").decode, final=False)
        while not self._stopped.is_set():
            token = constraint.choose(model.logits(), sampler.draw)
            sampler.accept(token)
            self._written_tokens += 1
            ended = token in model.vocabulary.ends
            self._add("" if ended else ending.feed(decode(model.vocabulary.pieces[token])))
            whole = ended or ending.reached or constraint.is_finished
            if whole or self._written_tokens == most:
                self._add(ending.rest())
                self.finish = "stop" if whole else "length"
                return
            model.process([token])

    def _add(self, text: str) -> None:
        self._pieces.append(text)
        self._on_text(text)


class StopTextFilter:
    """Delays text that may be the beginning of a stop text, and ends the answer before the first complete one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._delayed = ""
        self.reached = False

    def feed(self, text: str) -> str:
        """Add text, and return the text that is certain to be part of the answer."""
        self._delayed += text
        ends = [place for place in (self._delayed.find(stop) for stop in self._stops) if place >= 0]
        if ends:
            self.reached = True
            return self._release(min(ends), and_drop_the_rest=True)
        return self._release(len(self._delayed) - max((_begun(self._delayed, stop) for stop in self._stops), default=0))

    def rest(self) -> str:
        """Return the delayed text at the end of the answer."""
        return self._release(len(self._delayed))

    def _release(self, size: int, *, and_drop_the_rest: bool = False) -> str:
        released, delayed = self._delayed[:size], self._delayed[size:]
        self._delayed = "" if and_drop_the_rest else delayed
        return released


def _begun(text: str, stop: str) -> int:
    """Return how many characters at the end of the text may be the beginning of the stop text."""
    sizes = range(min(len(stop) - 1, len(text)), 0, -1)
    return next((size for size in sizes if text.endswith(stop[:size])), 0)
