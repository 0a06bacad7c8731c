"""Grammars mean to us what they mean to llama.cpp: its own reader and sampler are asked."""

from collections.abc import Iterator
from ctypes import byref
from itertools import product
from pathlib import Path
from random import Random

import pytest

from portico.capabilities.output.grammar import Grammar, GrammarError, GrammarMatch
from tests.support.grammars import ALPHABET, SAMPLES, EnumeratedLanguage, gbnf_text, random_grammar

llama_cpp = pytest.importorskip("llama_cpp", reason="the optional package llama-cpp-python is not installed")
tiny_model = pytest.importorskip("tests.llamacpp.tiny_model", reason="gguf, which writes models, is not installed")

LONGEST = 5
TEXTS = ["".join(text) for length in range(LONGEST + 1) for text in product(ALPHABET, repeat=length)]
WRITTEN = sorted({grammar for grammar, _ in SAMPLES})
STRANGE = "\"[]^-|()*+?{}0123,.:=#\n\r\t abxr\\u_'é🎲"
OURS_ALONE = (
    "left recursion",
    "more than",
    "no text can follow",
    "the maximum number of repetitions",
    "there is no rule of this name",
    "tokens of a vocabulary",
)
"""Refusals of grammars that llama.cpp takes, or that must not be given to it: some end its process."""


class GrammarPeer:
    """llama.cpp's sampler for one grammar, fed character by character."""

    def __init__(self, vocabulary: "GrammarVocabulary", sampler: object) -> None:
        self._vocabulary = vocabulary
        self._sampler = sampler

    def __del__(self) -> None:
        llama_cpp.llama_sampler_free(self._sampler)

    def copy(self) -> "GrammarPeer":
        return GrammarPeer(self._vocabulary, llama_cpp.llama_sampler_clone(self._sampler))

    def may_end(self) -> bool:
        return self._allows(self._vocabulary.end)

    def take(self, character: str) -> bool:
        """Tell whether the character may come next, and add it."""
        token = self._vocabulary.token(character)
        allowed = self._allows(token)
        if allowed:
            llama_cpp.llama_sampler_accept(self._sampler, token)
        return allowed

    def verdict(self, text: str) -> GrammarMatch:
        for position, character in enumerate(text):
            if not self.take(character):
                return GrammarMatch(accepted=False, position=position)
        return GrammarMatch(self.may_end(), len(text))

    def _allows(self, token: int) -> bool:
        candidate = (llama_cpp.llama_token_data * 1)(llama_cpp.llama_token_data(token, 0.0, 0.0))
        llama_cpp.llama_sampler_apply(
            self._sampler, byref(llama_cpp.llama_token_data_array(candidate, 1, -1, sorted=False))
        )
        return candidate[0].logit == 0.0


class GrammarVocabulary:
    """A model's tokens, of which those for single characters and the end are used.

    A character must be one token: of one that comes in pieces llama.cpp refuses the first where a negated class
    excludes any character that begins like it.
    """

    def __init__(self, path: Path, characters: str) -> None:
        tiny_model.TinyModel(words=tuple(characters)).write(path)
        parameters = llama_cpp.llama_model_default_params()
        parameters.vocab_only = True
        model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        self._tokens = llama_cpp.llama_model_get_vocab(model)
        self._names = [
            llama_cpp.llama_vocab_get_text(self._tokens, token).decode()
            for token in range(llama_cpp.llama_vocab_n_tokens(self._tokens))
        ]
        self.end = llama_cpp.llama_vocab_eos(self._tokens)

    def token(self, character: str) -> int:
        return self._names.index(character if character in self._names else f"<0x{ord(character):02X}>")

    def peer(self, grammar: str) -> GrammarPeer | None:
        """The sampler of a grammar; None when llama.cpp refuses it."""
        sampler = llama_cpp.llama_sampler_init_grammar(self._tokens, grammar.encode(), b"root")
        return GrammarPeer(self, sampler) if sampler else None


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> GrammarVocabulary:
    characters = {one for _, text in SAMPLES for one in text + STRANGE if not one.isascii()}
    return GrammarVocabulary(tmp_path_factory.mktemp("model") / "tiny.gguf", "".join(sorted(characters)))


def test_more_than_50000_random_pairs_of_a_grammar_and_a_text_get_the_same_verdict(
    vocabulary: GrammarVocabulary,
) -> None:
    pairs = 0
    for seed in range(400):
        trees = random_grammar(Random(seed))
        language = EnumeratedLanguage(trees, 0)
        if language.refused is None:
            agree(gbnf_text(trees), vocabulary, dead_ends=not language.every_rule_ends)
            pairs += len(TEXTS)
    assert pairs > 50_000


def agree(grammar: str, vocabulary: GrammarVocabulary, *, dead_ends: bool) -> None:
    """Compares all short texts. llama.cpp walks into dead ends, so that it sees more beginnings where there are any."""
    peer = vocabulary.peer(grammar)
    assert peer is not None, grammar
    begun = dict(_beginnings(peer, ""))
    ours = Grammar(grammar)
    for text in TEXTS:
        position = max(length for length in range(len(text) + 1) if text[:length] in begun)
        found = ours.check(text)
        assert found.accepted == begun.get(text, False), (grammar, text)
        assert found.position <= position if dead_ends else found.position == position, (grammar, text)


def _beginnings(peer: GrammarPeer, text: str) -> Iterator[tuple[str, bool]]:
    """All texts that may be begun with, and whether they may end there."""
    yield text, peer.may_end()
    for character in ALPHABET if len(text) < LONGEST else "":
        longer = peer.copy()
        if longer.take(character):
            yield from _beginnings(longer, text + character)


@pytest.mark.parametrize(("grammar", "text"), SAMPLES)
def test_what_people_write_gets_the_same_verdicts_with_anything_wrong(
    vocabulary: GrammarVocabulary, grammar: str, text: str
) -> None:
    random = Random(0)
    ours, theirs = Grammar(grammar), vocabulary.peer(grammar)
    assert theirs is not None
    for _ in range(60):
        changed = mutated(text[:400], random, text + STRANGE, random.randrange(3))
        assert ours.check(changed) == theirs.copy().verdict(changed), changed


def test_changed_grammars_are_read_or_refused_alike(vocabulary: GrammarVocabulary) -> None:
    random = Random(0)
    read = refused = 0
    for seed in range(3000):
        plain = random.choice([gbnf_text(random_grammar(Random(seed))), *WRITTEN])
        grammar = mutated(plain, random, STRANGE, random.choice((0, 1, 1, 2)))
        refusal = refusal_of(grammar)
        if refusal is None:
            ours, theirs = Grammar(grammar), vocabulary.peer(grammar)
            assert theirs is not None, grammar
            for text in ("".join(random.choices("aabbc0u\n-", k=length)) for length in range(7)):
                assert ours.check(text).accepted == theirs.copy().verdict(text).accepted, (grammar, text)
            read += 1
        elif not any(what in refusal for what in OURS_ALONE):
            assert vocabulary.peer(grammar) is None, (grammar, refusal)
            refused += 1
    assert min(read, refused) > 500


def refusal_of(grammar: str) -> str | None:
    try:
        Grammar(grammar)
    except GrammarError as error:
        return error.message
    return None


def mutated(text: str, random: Random, characters: str, times: int) -> str:
    for _ in range(times):
        start = random.randrange(len(text) + 1)
        end = min(len(text), start + random.randrange(3))
        text = text[:start] + "".join(random.choices(characters, k=random.randrange(3))) + text[end:]
    return text
