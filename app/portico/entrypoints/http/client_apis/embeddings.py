"""`POST /v1/embeddings`: texts in, vectors out, as lists of numbers or in base64."""

from array import array
from base64 import b64encode
from collections.abc import Mapping, Sequence
from sys import byteorder
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

MAX_TEXTS: Final = 256
_Text = Annotated[str, Field(min_length=1)]


class EmbeddingRequest(BaseModel):
    """Request for the vectors of texts. Fields that are not named here are ignored."""

    model_config = ConfigDict(extra="allow", frozen=True)

    model: str = Field(description="The engine that embeds, or an alias of it.")
    input: _Text | Annotated[list[_Text], Field(min_length=1, max_length=MAX_TEXTS)] = Field(
        description="A text, or a list of texts. Lists of tokens are refused."
    )
    encoding_format: Literal["float", "base64"] | None = Field(
        None, description="`float` for lists of numbers, `base64` for 32-bit floats, the least byte first."
    )
    dimensions: int | None = Field(
        None, ge=1, description="Size of the vectors; it can only repeat the configured one."
    )

    @property
    def texts(self) -> list[str]:
        """The texts in their order."""
        return [self.input] if isinstance(self.input, str) else self.input

    @property
    def ignored(self) -> list[str]:
        """The names of the fields that mean nothing here."""
        return [name for name, given in (self.model_extra or {}).items() if given is not None]


class EmbeddingVector(BaseModel):
    """The vector of one text."""

    object: Literal["embedding"] = Field(description="Always `embedding`.")
    index: int = Field(description="Number of the text, from 0.")
    embedding: list[float] | str = Field(description="The vector.")


class EmbeddingUsage(BaseModel):
    """Tokens of a request."""

    prompt_tokens: int = Field(description="Tokens of the texts.")
    total_tokens: int = Field(description="The same.")


class EmbeddingAnswer(BaseModel):
    """The vectors of all texts."""

    object: Literal["list"] = Field(description="Always `list`.")
    data: list[EmbeddingVector] = Field(description="The vectors in the order of the texts.")
    model: str = Field(description="The `model` of the request.")
    usage: EmbeddingUsage = Field(description="Tokens.")


def encode(vectors: Sequence[bytes], tokens: int, request: EmbeddingRequest) -> bytes:
    """Return the answer, an `EmbeddingAnswer` as JSON. The vectors are 32-bit floats."""
    shape = _base64 if request.encoding_format == "base64" else _numbers
    answer: Mapping[str, Any] = {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": shape(vector)} for index, vector in enumerate(vectors)
        ],
        "model": request.model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return orjson.dumps(answer)


def _numbers(vector: bytes) -> list[float]:
    return array("f", vector).tolist()


def _base64(vector: bytes) -> str:
    """Return the vector with the least byte of each number first, on a machine of either kind."""
    numbers = array("f", vector)
    if byteorder == "big":
        numbers.byteswap()
    return b64encode(numbers).decode()
