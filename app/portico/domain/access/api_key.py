"""API keys: `ptk_`, 8 characters that may be shown, `_`, and 43 characters that are secret.

A key has 256 random bits, so a fast hash of it is safe; a password hash would cost a tenth of a second a request.
"""

import re
from base64 import urlsafe_b64encode
from dataclasses import field
from hashlib import sha256
from string import ascii_letters, digits
from typing import Final, Self

from portico.domain.ids import KeyId
from portico.domain.value import value

PREFIX: Final = "ptk_"
ID_LENGTH: Final = 8
SECRET_BYTES: Final = 32
_ALPHABET: Final = digits + ascii_letters
ID_COUNT: Final = len(_ALPHABET) ** ID_LENGTH
"""Number of different public ids."""
_KEY: Final = re.compile(r"ptk_([A-Za-z0-9]{8})_([A-Za-z0-9_-]{43})")


@value
class ApiKey:
    """Key of a client. `key_id` is public; `secret` is never stored, logged or shown again."""

    key_id: KeyId
    secret: str = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the key that the text is; None if it has another form."""
        match = _KEY.fullmatch(text)
        return None if match is None else cls(KeyId(match[1]), match[2])

    @classmethod
    def from_random(cls, number: int, secret: bytes) -> Self:
        """Return the key of a random number below `ID_COUNT` and `SECRET_BYTES` random bytes."""
        characters = []
        for _ in range(ID_LENGTH):
            number, position = divmod(number, len(_ALPHABET))
            characters.append(_ALPHABET[position])
        return cls(KeyId("".join(characters)), urlsafe_b64encode(secret).decode().rstrip("="))

    @property
    def secret_hash(self) -> str:
        """The SHA-256 of the secret characters, in hex: the part of the secret that is stored."""
        return sha256(self.secret.encode()).hexdigest()

    def reveal(self) -> str:
        """Return the whole key, as a client sends it."""
        return f"{PREFIX}{self.key_id}_{self.secret}"
