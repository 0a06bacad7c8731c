"""Single values of the configuration: credentials, model URLs, base URLs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, PlainSerializer, PlainValidator, ValidationInfo

NOT_IN_THIS_VERSION = "this version of Portico does not have it yet"


class Secret:
    """A credential that never shows itself. One from a file is read again when the file changes.

    While a changed file holds nothing usable, or is away, the last credential stays.
    """

    __slots__ = ("_path", "_seen", "_value")

    def __init__(self, value: str | None, path: Path | None = None) -> None:
        self._value = value
        self._path = path
        self._seen: tuple[int, int, int] | None = None

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Raises: OSError, ValueError when the file holds no credential now."""
        secret = cls(None, path)
        secret._refresh(path)
        return secret

    def read(self) -> str | None:
        """The credential as it is now."""
        if self._path is not None:
            try:
                self._refresh(self._path)
            except (OSError, ValueError):
                return self._value
        return self._value

    def _refresh(self, path: Path) -> None:
        status = path.stat()
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        if seen != self._seen:
            self._value = _credential(path.read_text())
            self._seen = seen

    def __repr__(self) -> str:
        return "Secret(...)"


def _is_visible(text: str) -> bool:
    return all("!" <= character <= "~" for character in text)


def _credential(text: str) -> str:
    """The text without the space around it, when it can stand in a header. Raises: ValueError."""
    found = text.strip()
    if not found or not _is_visible(found):
        raise ValueError("must hold one word of visible ASCII")
    return found


def _from_variable(given: object, info: ValidationInfo) -> Secret:
    if isinstance(given, Secret):
        return given
    environ: Mapping[str, str] = (info.context or {}).get("environ", {})
    value = environ.get(given) if isinstance(given, str) else None
    if not value:
        raise ValueError("must name a variable that is set")
    try:
        return Secret(_credential(value))
    except ValueError as error:
        raise ValueError(f"names a variable that {error}") from None


def _from_file(given: object) -> Secret:
    if isinstance(given, Secret):
        return given
    if not isinstance(given, str) or not given or "\0" in given:
        raise ValueError("must be the path of a file")
    try:
        return Secret.from_file(Path(given))
    except OSError as error:
        raise ValueError(f"names a file that cannot be read: {error.strerror}") from None
    except ValueError:
        raise ValueError("names a file that must hold one word of visible ASCII") from None


@dataclass(frozen=True, slots=True)
class ModelUrl:
    """Which dialect speaks to which model: `scheme://model`.

    The model of `scripted` is the path of its replies, that of `llamacpp` the path of its weights. Ollama's stands
    behind the `address` (host and port) of its server, empty for the usual one.
    """

    SCHEMES: ClassVar[tuple[str, ...]] = (
        *("openai", "anthropic", "gemini", "ollama", "llamacpp"),
        *("rehearsal", "scripted"),
    )
    FILES: ClassVar[frozenset[str]] = frozenset({"llamacpp", "scripted"})

    scheme: str
    model: str
    address: str = ""

    @property
    def is_offline(self) -> bool:
        """Whether the engine runs in this process, so that there is nothing to connect to."""
        return self.scheme in self.FILES or self.scheme == "rehearsal"

    @classmethod
    def parse(cls, given: object) -> Self:
        """A model's name is all that follows `://`, slashes and colons included. Raises: ValueError."""
        if isinstance(given, cls):
            return given
        if not isinstance(given, str) or "://" not in given:
            raise ValueError('must be a model URL such as "openai://gpt-4o-mini"')
        scheme, _, rest = given.partition("://")
        if scheme not in cls.SCHEMES:
            raise ValueError("must begin with one of " + ", ".join(f"{known}://" for known in cls.SCHEMES))
        if len(rest) > 256 or not _is_visible(rest):
            raise ValueError("must have at most 256 characters of visible ASCII after ://")
        if scheme in cls.FILES and not (rest.startswith("/") and rest.strip("/")):
            raise ValueError(f"must be {scheme}:// and the absolute path of a file, three slashes in all")
        if scheme == "ollama":
            address, _, model = rest.partition("/")
            if not model or not _is_address(address):
                raise ValueError("must be ollama://host:port/model; ollama:///model is the server on its usual port")
            return cls(scheme, model, address)
        if scheme != "rehearsal" and not rest:
            raise ValueError(f"must name a model after {scheme}://")
        return cls(scheme, rest or scheme)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.address}{'/' if self.scheme == 'ollama' else ''}{self.model}"


def _is_address(text: str) -> bool:
    try:
        return not text or _base_url(f"http://{text}") == f"http://{text}"
    except ValueError:
        return False


def _base_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or not _is_visible(text) or parts.query or parts.fragment:
        raise ValueError("must be an http or https URL of a host, with a path or without")
    if "@" in parts.netloc:
        raise ValueError("must not hold a user or a password: name the secret in api_key_env or api_key_file")
    return text.rstrip("/")


_AS_TEXT = PlainSerializer(str, return_type=str)
SecretFromVariable = Annotated[Secret, PlainValidator(_from_variable, json_schema_input_type=str), _AS_TEXT]
SecretFromFile = Annotated[Secret, PlainValidator(_from_file, json_schema_input_type=str), _AS_TEXT]
ModelUrlText = Annotated[ModelUrl, PlainValidator(ModelUrl.parse, json_schema_input_type=str), _AS_TEXT]
BaseUrl = Annotated[str, AfterValidator(_base_url)]
