"""Writes small models of random weights, half a megabyte in a fortieth of a second, that llama.cpp takes for real ones.

What they say means nothing, but is said token by token from a real vocabulary. `favour` makes tokens likelier: each
token's vector has one large number in common, which the last layer can weigh for each token as a bias.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy
from gguf import GGUFWriter, PoolingType, TokenType
from numpy.typing import NDArray

WIDTH, HEADS, LAYERS, FEED = 64, 4, 2, 128
COMMON = 8.0
BEGIN, END, TURN_BEGINS, TURN_ENDS = "<s>", "</s>", "<|im_start|>", "<|im_end|>"
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WORDS = (
    '{"',
    '":',
    '",',
    '"}',
    '"]',
    "true",
    "false",
    "null",
    "▁",
    "▁the",
    "the",
    "and",
    "((((",
    "[[",
    "10",
    "é",
    "日本",
)
ENDLESS: Mapping[str, float] = {END: -100, TURN_ENDS: -100}
"""Never ends by itself."""
TERSE: Mapping[str, float] = {END: 2, '"': 4, "}": 4, "]": 4, '"}': 2, '"]': 2, ")": 2, "x": 2, "1": 1}
"""Likes to close what is open."""


@dataclass(frozen=True)
class TinyModel:
    """The properties of a model. `has_bytes`: it can write any byte, beside its words.

    `expression` names the rule by which texts are cut first, and makes its vocabulary one of bytes.
    """

    favour: Mapping[str, float] = field(default_factory=dict)
    template: str | None = CHATML
    context: int = 2048
    words: tuple[str, ...] = WORDS
    has_bytes: bool = True
    expression: str | None = None

    def write(self, path: Path) -> Path:
        """Writes the file and returns its path."""
        vocabulary = list(_bytewise() if self.expression else _pieces(self.words, self.has_bytes))
        writer = GGUFWriter(path, "llama")
        writer.add_context_length(self.context)
        writer.add_embedding_length(WIDTH)
        writer.add_block_count(LAYERS)
        writer.add_feed_forward_length(FEED)
        writer.add_head_count(HEADS)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_dimension_count(WIDTH // HEADS)
        writer.add_vocab_size(len(vocabulary))
        _tell(writer, vocabulary, self.expression)
        if self.template is not None:
            writer.add_chat_template(self.template)
        for name, values in _weights(vocabulary, self.favour):
            writer.add_tensor(name, values)
        _write(writer)
        return path


def write_embedder(path: Path) -> Path:
    """Writes a model that only embeds, of the family of BERT."""
    words = (
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "▁hello",
        "▁world",
        *(f"▁{letter}" for letter in "abcdefgh"),
        *"abcdefgh",
    )
    writer = GGUFWriter(path, "bert")
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(value=False)
    writer.add_pooling_type(PoolingType.CLS)
    writer.add_vocab_size(len(words))
    writer.add_tokenizer_model("bert")
    writer.add_token_list(words)
    writer.add_token_types([TokenType.CONTROL] * 4 + [TokenType.NORMAL] * (len(words) - 4))
    writer.add_token_type_count(2)
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(3)
    writer.add_sep_token_id(3)
    writer.add_pad_token_id(0)
    for name, values in _embedder_weights(len(words)):
        writer.add_tensor(name, values)
    _write(writer)
    return path


def _pieces(words: Sequence[str], has_bytes: bool) -> Iterator[tuple[str, TokenType]]:
    yield "<unk>", TokenType.UNKNOWN
    for control in (BEGIN, END, TURN_BEGINS, TURN_ENDS):
        yield control, TokenType.CONTROL
    for byte in range(256) if has_bytes else ():
        yield f"<0x{byte:02X}>", TokenType.BYTE
    for piece in (*map(chr, range(33, 127)), *words):
        yield piece, TokenType.NORMAL


def _bytewise() -> Iterator[tuple[str, TokenType]]:
    """Every byte as GPT-2 writes it: visible ones as themselves, others from 256 on."""
    yield END, TokenType.CONTROL
    visible = (*range(33, 127), *range(161, 173), *range(174, 256))
    for number, byte in enumerate((*visible, *(byte for byte in range(256) if byte not in visible))):
        yield chr(byte if number < len(visible) else 256 + number - len(visible)), TokenType.NORMAL
    yield "ab", TokenType.NORMAL


def _tell(writer: GGUFWriter, vocabulary: Sequence[tuple[str, TokenType]], expression: str | None) -> None:
    names = [text for text, _ in vocabulary]
    writer.add_tokenizer_model("gpt2" if expression else "llama")
    writer.add_token_list(names)
    writer.add_token_types([kind for _, kind in vocabulary])
    writer.add_eos_token_id(names.index(END))
    if expression:
        writer.add_tokenizer_pre(expression)
        writer.add_token_merges(["a b"])
        return
    writer.add_token_scores([-float(rank) for rank in range(len(vocabulary))])
    writer.add_bos_token_id(names.index(BEGIN))
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(value=True)
    writer.add_add_space_prefix(value=False)


def _weights(
    vocabulary: Sequence[tuple[str, TokenType]], favour: Mapping[str, float]
) -> Iterator[tuple[str, NDArray[numpy.float32]]]:
    chance = _Chance()
    vectors = chance(len(vocabulary), WIDTH) * WIDTH**0.5
    vectors[:, 0] = COMMON
    last = chance(len(vocabulary), WIDTH)
    last[:, 0] = [favour.get(text, 0) / COMMON * 2**0.5 for text, _ in vocabulary]
    yield "token_embd.weight", vectors
    yield "output.weight", last
    yield "output_norm.weight", numpy.ones(WIDTH, numpy.float32)
    for layer in range(LAYERS):
        for norm in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{norm}.weight", numpy.ones(WIDTH, numpy.float32)
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield f"blk.{layer}.{part}.weight", chance(WIDTH, WIDTH)
        yield f"blk.{layer}.ffn_gate.weight", chance(FEED, WIDTH)
        yield f"blk.{layer}.ffn_up.weight", chance(FEED, WIDTH)
        yield f"blk.{layer}.ffn_down.weight", chance(WIDTH, FEED)


def _embedder_weights(size: int) -> Iterator[tuple[str, NDArray[numpy.float32]]]:
    chance = _Chance()
    yield "token_embd.weight", chance(size, WIDTH)
    yield "token_types.weight", chance(2, WIDTH)
    yield "position_embd.weight", chance(64, WIDTH)
    for norm in ("token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm"):
        yield f"{norm}.weight", numpy.ones(WIDTH, numpy.float32)
        yield f"{norm}.bias", numpy.zeros(WIDTH, numpy.float32)
    for part, rows, columns in (
        *((f"attn_{kind}", WIDTH, WIDTH) for kind in ("q", "k", "v", "output")),
        ("ffn_up", FEED, WIDTH),
        ("ffn_down", WIDTH, FEED),
    ):
        yield f"blk.0.{part}.weight", chance(rows, columns)
        yield f"blk.0.{part}.bias", numpy.zeros(rows, numpy.float32)


class _Chance:
    """Random weights, the same in every run."""

    def __init__(self) -> None:
        self._numbers = numpy.random.default_rng(1)

    def __call__(self, rows: int, columns: int) -> NDArray[numpy.float32]:
        return (self._numbers.standard_normal((rows, columns)) * columns**-0.5).astype(numpy.float32)


def _write(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
