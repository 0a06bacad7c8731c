"""Types of single settings: names, numbers, credentials, model URLs and base URLs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Final, Self
from urllib.parse import parse_qs, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    ValidationInfo,
)

from portico.domain.value import value
from portico.ports.engine_schemes import SCHEMES

Name = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
Positive = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]
Wait = Annotated[float, Field(ge=0)]


def closest_name(name: str, known: Iterable[str]) -> str:
    """Return the most similar of the known names."""
    return get_close_matches(name, list(known), n=1, cutoff=0)[0]


class Table(BaseModel):
    """Table of the configuration file. Unknown keys are refused, and values are neither converted nor shown."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True)


class Secret:
    """Credential that is never shown. One from a file is read again when the file changes.

    While a changed file is missing or contains no valid credential, the previous one is used.
    """

    __slots__ = ("_path", "_seen", "_value")

    def __init__(self, value: str | None, path: Path | None = None) -> None:
        self._value = value
        self._path = path
        self._seen: tuple[int, int, int] | None = None

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Return the credential in a file. Raises: OSError; ValueError if the file contains no valid credential."""
        secret = cls(None, path)
        secret._refresh(path)
        return secret

    @property
    def path(self) -> Path | None:
        """Return the file that has the credential; None if it came from elsewhere."""
        return self._path

    def read(self) -> str | None:
        """Return the current credential."""
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
    """Return the text without surrounding whitespace. Raises: ValueError if it cannot be sent in a header."""
    found = text.strip()
    if not found or not _is_visible(found):
        raise ValueError("must contain one word of visible ASCII")
    return found


VARIABLE_NAME: Final = re.compile(r"(?=.{1,64}\Z)[A-Z]+(_[A-Z0-9]+)*")
"""A name that may be shown: it does not look like a credential that stands in its place."""


def _from_variable(given: object, info: ValidationInfo) -> Secret:
    if isinstance(given, Secret):
        return given
    environ: Mapping[str, str] = (info.context or {}).get("environ", {})
    if not isinstance(given, str):
        raise ValueError("must be the name of a variable")  # noqa: TRY004 - pydantic reports ValueError
    name = given if VARIABLE_NAME.fullmatch(given) else "of that name"
    value = environ.get(given)
    if not value:
        raise ValueError(f"the variable {name} is not set")
    try:
        return Secret(_credential(value))
    except ValueError as error:
        raise ValueError(f"the variable {name} {error}") from None


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
        raise ValueError("names a file that must contain one word of visible ASCII") from None


PLACE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")
"""A place of a cloud, which becomes a part of a host or of a path."""


@value
class ModelUrl:
    """Scheme of an engine and the model it uses: `scheme://model`.

    The model of `scripted` is the path of its replies, that of `llamacpp` the path of its weights. For `ollama` the
    model follows the `address` (host and port) of the server, which is empty for the default one. For a cloud it
    follows the places, such as the region, which are the `address`.
    """

    scheme: str
    model: str
    address: str = ""

    @property
    def is_offline(self) -> bool:
        """Return True if the engine runs in this process and has no connection."""
        return SCHEMES[self.scheme].is_offline

    @property
    def places(self) -> Sequence[str]:
        """Return the places of a cloud, in the order of its scheme."""
        return self.address.split("/")

    @classmethod
    def parse(cls, given: object) -> Self:
        """Return the parsed URL; the model is everything after `://`, slashes and colons included.

        Raises: ValueError.
        """
        if isinstance(given, cls):
            return given
        if not isinstance(given, str) or "://" not in given:
            raise ValueError('must be a model URL such as "openai://gpt-4o-mini"')
        scheme, _, rest = given.partition("://")
        if scheme not in SCHEMES:
            raise ValueError("must begin with one of " + ", ".join(f"{known}://" for known in SCHEMES))
        if len(rest) > 256 or not _is_visible(rest):
            raise ValueError("must have at most 256 characters of visible ASCII after ://")
        if SCHEMES[scheme].names_file and not (rest.startswith("/") and rest.strip("/")):
            raise ValueError(f"must be {scheme}:// and the absolute path of a file, three slashes in all")
        if SCHEMES[scheme].places:
            return cls(scheme, *_model_and_places(scheme, rest))
        if SCHEMES[scheme].names_server:
            address, _, model = rest.partition("/")
            if not model or not _is_address(address):
                raise ValueError(
                    f"must be {scheme}://host:port/model; {scheme}:///model is the server on its default port"
                )
            return cls(scheme, model, address)
        if not rest and not SCHEMES[scheme].names_nothing:
            raise ValueError(f"must name a model after {scheme}://")
        return cls(scheme, rest or scheme)

    @property
    def _separator(self) -> str:
        return "/" if SCHEMES[self.scheme].names_server or SCHEMES[self.scheme].places else ""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.address}{self._separator}{self.model}"


def _model_and_places(scheme: str, rest: str) -> tuple[str, str]:
    """Return the model and the places before it. Raises: ValueError."""
    names = SCHEMES[scheme].places
    *places, model = rest.split("/", len(names))
    if len(places) < len(names) or not model or not all(map(PLACE.fullmatch, places)):
        raise ValueError(f"must be {scheme}://{'/'.join(names)}/MODEL")
    return model, "/".join(places)


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
        raise ValueError("must be an http or https URL of a host, with or without a path")
    if "@" in parts.netloc:
        raise ValueError("must not contain a user or a password: name the secret in api_key_env or api_key_file")
    return text.rstrip("/")


def has_password(url: str) -> bool:
    """Return True if the URL of a database contains a password."""
    try:
        parts = urlsplit(url)
        return parts.password is not None or "password" in parse_qs(parts.query, keep_blank_values=True)
    except ValueError:
        return False


_AS_TEXT = PlainSerializer(str, return_type=str)
SecretFromVariable = Annotated[Secret, PlainValidator(_from_variable, json_schema_input_type=str), _AS_TEXT]
SecretFromFile = Annotated[Secret, PlainValidator(_from_file, json_schema_input_type=str), _AS_TEXT]
ModelUrlText = Annotated[ModelUrl, PlainValidator(ModelUrl.parse, json_schema_input_type=str), _AS_TEXT]
BaseUrl = Annotated[str, AfterValidator(_base_url)]
