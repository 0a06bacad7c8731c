"""Chunks: their size, their overlap, and that no word of a document is lost."""

import random
from itertools import pairwise

import pytest

from portico.capabilities.memory.chunks import CHUNK_WORDS, OVERLAP_WORDS, cut, has_words, index_chunks
from portico.capabilities.memory.words import query_words, word_hash, words
from portico.domain.ids import TenantId, UserId
from portico.domain.memory import private_scope, shared_scope

SCOPE = private_scope(TenantId("red"), UserId("ada"))


def sentences(count: int, length: int) -> str:
    return " ".join(" ".join(f"s{number}w{place}" for place in range(length)) + "." for number in range(count))


def test_a_short_text_is_one_chunk() -> None:
    assert list(cut("  One sentence. Another one.\n")) == ["One sentence. Another one."]


def test_chunks_begin_and_end_with_sentences_and_overlap() -> None:
    chunks = list(cut(sentences(60, 15)))
    assert all(chunk.endswith(".") for chunk in chunks)
    assert all(len(chunk.split()) == 195 for chunk in chunks[:-1])
    for earlier, later in pairwise(chunks):
        shared = [word for word in later.split() if word in earlier.split()]
        assert shared == later.split()[:30] == earlier.split()[-30:]
        assert shared[0].endswith("w0")


def test_a_sentence_longer_than_a_chunk_is_cut_between_words() -> None:
    chunks = [chunk.split() for chunk in cut(sentences(1, 1_000))]
    assert [len(chunk) for chunk in chunks[:-1]] == [CHUNK_WORDS] * (len(chunks) - 1)
    for earlier, later in pairwise(chunks):
        assert earlier[-OVERLAP_WORDS:] == later[:OVERLAP_WORDS]


@pytest.mark.parametrize(
    "text",
    [
        "x" * 2**20,
        "!" * 2**20,
        " " * 2**20 + "a",
        "東京。" * 100_000,
        "a\n" * 200_000,
        ". " * 300_000 + "a",
        "\0" * 2**20,
    ],
    ids=["word", "marks", "spaces", "nul", "cjk", "lines", "dots"],
)
def test_every_chunk_of_a_hostile_text_is_bounded(text: str) -> None:
    chunks = list(cut(text))
    assert all(len(chunk) <= 64 * 2 * CHUNK_WORDS for chunk in chunks)
    assert len(chunks) <= len(text) // (CHUNK_WORDS - OVERLAP_WORDS - CHUNK_WORDS // 2) + 1


@pytest.mark.parametrize("seed", range(20))
def test_no_word_is_lost(seed: int) -> None:
    chance = random.Random(seed)
    pieces = [
        "word",
        "longer",
        "it's",
        "3.14",
        "東京都",
        "e\u0301",
        "—",
        ".",
        "!",
        "\n",
        "  ",
        "\u3000",
        "😀",
        "ẞ",
        "ﬁ",
    ]
    text = "".join(chance.choice(pieces) + chance.choice(["", " "]) for _ in range(3_000))
    indexed = index_chunks(text, SCOPE)
    found = {word for chunk in indexed for word in words(chunk.text)}
    # A word that is cut in two is another word in each part; only runs longer than a word or CJK pairs are.
    assert {word for word in words(text) if word.isascii()} <= found | {""}
    assert [sum(1 for _ in words(chunk.text)) for chunk in indexed] == [chunk.word_count for chunk in indexed]


def test_words_ignore_case_and_width_and_pair_cjk() -> None:
    assert list(words("The STRASSE, straße \uff46\uff55\uff4c\uff4c x_y")) == [
        "the",
        "strasse",
        "strasse",
        "full",
        "x",
        "y",
    ]
    assert list(words("東京都に 行く犬 a犬b")) == ["東京", "京都", "都に", "行く", "く犬", "a", "犬", "b"]
    assert list(words("\0!?\u202e \U0001f600")) == []
    assert query_words("b a b " + " ".join(f"w{n}" for n in range(99))) == ["b", "a", *(f"w{n}" for n in range(62))]


def test_hashes_of_words_are_of_one_scope() -> None:
    scopes = [SCOPE, private_scope(TenantId("red"), UserId("eve")), shared_scope(TenantId("red"))]
    scopes += [private_scope(TenantId("blue"), UserId("ada")), shared_scope(TenantId("blue"))]
    assert len({word_hash("secret", scope) for scope in scopes}) == 5
    assert len(set(scopes)) == 5


@pytest.mark.parametrize(("text", "expected"), [("", False), ("!? \n", False), ("_", False), ("a", True), ("犬", True)])
def test_a_text_has_words_or_not(text: str, expected: bool) -> None:
    assert has_words(text) is expected
    assert bool(list(words(text))) is expected
