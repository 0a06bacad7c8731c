"""One answer of a local model, from the conversation to the last token."""

from codecs import getincrementaldecoder
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from threading import Event
from typing import Final

from app.adapters.engines.llama_cpp.constraints import TokenConstraint, constraint_for
from app.adapters.engines.llama_cpp.model import BATCH_TOKENS, LocalModel, context_exceeded
from app.adapters.engines.llama_cpp.prompt import PromptWriter
from app.adapters.engines.llama_cpp.sampling import Sampler, Sampling
from app.domain.contract.response import TokenUsage
from app.domain.model_call import AttemptFailureReason, EngineCall
from app.ports.model import EngineError

_DECODER: Final = getincrementaldecoder("utf-8")


class Generation:
    """An answer as it is written. It is run in the model's thread; everything else may be asked from any thread.

    It has at most `most_tokens`, 0 for as many as there is room for. `hear` is told each token's text, in that thread.
    `finish` is `stop` or `length` once the answer is whole. The token that ends an answer counts as written.
    """

    def __init__(self, call: EngineCall, sampling: Sampling, most_tokens: int, hear: Callable[[str], None]) -> None:
        self._call = call
        self._sampling = sampling
        self._most_tokens = most_tokens
        self._hear = hear
        self._left = Event()
        self._said: list[str] = []
        self._read = 0
        self._written = 0
        self.finish: str | None = None

    def stop(self) -> None:
        """Nobody waits for it any more."""
        self._left.set()

    @property
    def text(self) -> str:
        """What is written so far."""
        return "".join(self._said)

    @property
    def usage(self) -> TokenUsage:
        """The tokens read and written so far."""
        read, written = self._read, self._written
        return TokenUsage(input_tokens=read, output_tokens=written, total_tokens=read + written)

    def run(self, model: LocalModel, prompter: PromptWriter) -> None:
        """Writes until the answer is whole or left. Raises: EngineFault."""
        if not model.can_generate:
            raise EngineError(AttemptFailureReason.MODEL_MISSING, "the model only embeds")
        prompt = prompter.tokens(self._call.messages)
        room = model.window_tokens - len(prompt)
        if room < 1:
            raise context_exceeded()
        constraint = constraint_for(model, self._call, self._left)
        self._read_prompt(model, prompt)
        ending = StopTextFilter(self._stops(prompter))
        with closing(Sampler(model, self._sampling)) as sampler:
            self._write(model, constraint, sampler, ending, min(room, self._most_tokens or room))

    def _stops(self, prompter: PromptWriter) -> Sequence[str]:
        hinted = self._call.hints.stop or ()
        stops = (hinted,) if isinstance(hinted, str) else tuple(hinted)
        is_bound = self._call.grammar is not None or self._call.schema is not None
        return stops if is_bound else (*stops, *prompter.stops)

    def _read_prompt(self, model: LocalModel, prompt: Sequence[int]) -> None:
        model.clear()
        for start in range(0, len(prompt), BATCH_TOKENS):
            if self._left.is_set():
                return
            batch = prompt[start : start + BATCH_TOKENS]
            model.process(batch)
            self._read += len(batch)

    def _write(
        self, model: LocalModel, constraint: TokenConstraint, sampler: Sampler, ending: "StopTextFilter", most: int
    ) -> None:
        decode = partial(_DECODER("replace").decode, final=False)
        while not self._left.is_set():
            token = constraint.choose(model.logits(), sampler.draw)
            sampler.accept(token)
            self._written += 1
            ended = token in model.vocabulary.ends
            self._say("" if ended else ending.feed(decode(model.vocabulary.pieces[token])))
            whole = ended or ending.reached or constraint.is_finished
            if whole or self._written == most:
                self._say(ending.rest())
                self.finish = "stop" if whole else "length"
                return
            model.process([token])

    def _say(self, text: str) -> None:
        self._said.append(text)
        self._hear(text)


class StopTextFilter:
    """Holds an answer back where a stop text may have begun, and ends it before the first that is whole."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self.reached = False

    def feed(self, text: str) -> str:
        """What is sure to be part of the answer by now."""
        self._held += text
        ends = [place for place in (self._held.find(stop) for stop in self._stops) if place >= 0]
        if ends:
            self.reached = True
            return self._let_go(min(ends), and_drop_the_rest=True)
        return self._let_go(len(self._held) - max((_begun(self._held, stop) for stop in self._stops), default=0))

    def rest(self) -> str:
        """What was held back for nothing."""
        return self._let_go(len(self._held))

    def _let_go(self, size: int, *, and_drop_the_rest: bool = False) -> str:
        said, held = self._held[:size], self._held[size:]
        self._held = "" if and_drop_the_rest else held
        return said


def _begun(text: str, stop: str) -> int:
    """How many characters at the end of the text may be the beginning of the stop text."""
    sizes = range(min(len(stop) - 1, len(text)), 0, -1)
    return next((size for size in sizes if text.endswith(stop[:size])), 0)
