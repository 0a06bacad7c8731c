"""The table `[secrets]` of the configuration: the keys that seal what is stored of secrets."""

import base64
import binascii
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from portico.settings.values import Table

_KEY_BYTES: Final = 32


def _key_file(path: str) -> str:
    try:
        keys = read_keys(Path(path))
    except OSError as error:
        raise ValueError(f"names a file that cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        keys = ()
    if not keys or not all(map(_is_key, keys)):
        raise ValueError("names a file that must have one key a line, as `portico secrets generate` prints it")
    return path


def read_keys(path: Path) -> tuple[str, ...]:
    """Return the keys of a file, one a line. Raises: OSError, UnicodeDecodeError."""
    return tuple(line.strip() for line in path.read_text(encoding="ascii").splitlines() if line.strip())


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, altchars=b"-_", validate=True)) == _KEY_BYTES
    except binascii.Error:
        return False


class SecretSettings(Table):
    """Secrets that are stored."""

    key_file: Annotated[str, AfterValidator(_key_file)] | None = Field(
        None,
        description="File of the keys that seal stored secrets, one a line, read at start: the first seals, all open. "
        "Without it SQLite makes `secrets.key` beside its file when it first needs one; PostgreSQL stores no secrets",
    )
