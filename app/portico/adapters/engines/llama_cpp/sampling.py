"""Sampling of the next token: the hints as llama.cpp's samplers."""

import ctypes
from contextlib import ExitStack
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from portico.adapters.engines.llama_cpp.model import LocalModel
from portico.domain.contract.request import ExecutionHints
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError

GREEDY_BELOW: Final = 0.001
"""A lower temperature would divide the differences into infinity."""
IMPOSSIBLE_LOGIT: Final = float("-inf")
"""The logit of a token that must not come."""
ANY_SEED: Final = 0xFFFFFFFF
"""A random seed of llama.cpp's choice."""


class SamplingOptions(BaseModel):
    """The `hints.options` that a local model knows; the defaults are llama.cpp's own."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    top_k: int = Field(40, ge=0, le=2**31 - 1, description="How many tokens are considered; 0 means all.")
    min_p: float = Field(0.05, ge=0, le=1, description="Least probability, as a share of the likeliest token's.")
    repeat_last_n: int = Field(64, ge=0, le=4096, description="How many tokens back repetition counts.")
    repeat_penalty: float = Field(1, ge=0.1, le=10, description="What a repeated token is divided by; 1 turns it off.")
    frequency_penalty: float = Field(0, ge=-2, le=2, description="What each repetition takes from a token.")
    presence_penalty: float = Field(0, ge=-2, le=2, description="What any repetition takes from a token.")

    @property
    def penalises(self) -> bool:
        """True if repetition is penalised."""
        return (self.repeat_penalty, self.frequency_penalty, self.presence_penalty) != (1, 0, 0)


class Sampling(SamplingOptions):
    """All parameters of drawing the next token. A seed has 32 bits."""

    temperature: float = 0.8
    top_p: float = 0.95
    seed: int = ANY_SEED


def sampling_of(hints: ExecutionHints, allowed: frozenset[str]) -> Sampling:
    """Return the sampling that the hints ask for, with the allowed options only.

    A larger seed becomes another, and always the same one. Raises: EngineError (REFUSED) for a value that an option
    cannot have.
    """
    given = {"temperature": hints.temperature, "top_p": hints.top_p}
    asked: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if hints.seed is not None:
        asked["seed"] = hints.seed % ANY_SEED
    try:
        return Sampling.model_validate(asked | {key: hints.options[key] for key in hints.options.keys() & allowed})
    except ValidationError as invalid:
        faults = invalid.errors(include_url=False, include_context=False, include_input=False)
        said = "; ".join(f"hints.options.{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults)
        raise EngineError(AttemptFailureReason.REFUSED, said) from None


class Sampler:
    """Draws the tokens of one answer. Close it."""

    def __init__(self, model: LocalModel, sampling: Sampling) -> None:
        self._llama = llama = model.library.llama
        self._numpy = numpy = model.library.numpy
        fields = [("id", numpy.intc), ("logit", numpy.single), ("p", numpy.single)]
        self._candidates = numpy.zeros(model.vocabulary.size, dtype=numpy.dtype(fields, align=True))
        self._chain = llama.llama_sampler_chain_init(llama.llama_sampler_chain_default_params())
        self._opened = ExitStack()
        self._opened.callback(llama.llama_sampler_free, self._chain)
        for part in _parts(model, sampling):
            llama.llama_sampler_chain_add(self._chain, part)

    def draw(self, logits: Any) -> int:
        """Draw a token by the logits and the hints, among those whose logit is not minus infinity; there must be some.

        It becomes part of the answer with `accept`.
        """
        llama, candidates = self._llama, self._candidates
        open_ones = self._numpy.flatnonzero(logits > IMPOSSIBLE_LOGIT)
        size = len(open_ones)
        candidates["id"][:size] = open_ones
        candidates["logit"][:size] = logits[open_ones]
        data = candidates.ctypes.data_as(llama.llama_token_data_p)
        array = llama.llama_token_data_array(data=data, size=size, selected=-1, sorted=False)
        llama.llama_sampler_apply(self._chain, ctypes.byref(array))
        return int(array.data[array.selected].id)

    def accept(self, token: int) -> None:
        """Make a token part of the answer."""
        self._llama.llama_sampler_accept(self._chain, token)

    def close(self) -> None:
        """Free the sampler."""
        self._opened.close()


def _parts(model: LocalModel, sampling: Sampling) -> list[Any]:
    """Return llama.cpp's samplers in llama.cpp's order."""
    llama = model.library.llama
    parts = []
    if sampling.penalises:
        penalties = (sampling.repeat_penalty, sampling.frequency_penalty, sampling.presence_penalty)
        parts.append(llama.llama_sampler_init_penalties(model.vocabulary.size, sampling.repeat_last_n, *penalties))
    if sampling.temperature < GREEDY_BELOW:
        return [*parts, llama.llama_sampler_init_greedy()]
    return [
        *parts,
        llama.llama_sampler_init_top_k(sampling.top_k),
        llama.llama_sampler_init_top_p(sampling.top_p, 1),
        llama.llama_sampler_init_min_p(sampling.min_p, 1),
        llama.llama_sampler_init_temp(sampling.temperature),
        llama.llama_sampler_init_dist(sampling.seed),
    ]
