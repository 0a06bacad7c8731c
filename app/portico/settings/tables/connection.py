"""Settings of an engine's connection: its proxy, the certificates that it trusts, and its own request headers."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, PlainSerializer, PlainValidator

from portico.domain.value import value
from portico.settings.values import Secret

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_HEADER_TEXT: Final = re.compile(r"[!-~]([ \t!-~]{0,8190}[!-~])?")
_RESERVED_HEADERS: Final = frozenset(
    {
        *("accept-encoding", "connection", "content-length", "content-type", "expect", "host", "keep-alive"),
        *("proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)


@value
class ProxyEnvironment:
    """The proxies that the environment's conventional variables name; those in lower case take precedence."""

    https: str = field(default="", repr=False)
    http: str = field(default="", repr=False)
    excluded: str = ""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self:
        """Read `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`."""
        names = ("https_proxy", "http_proxy", "no_proxy")
        return cls(*(environ.get(name) or environ.get(name.upper(), "") for name in names))

    def proxy_for(self, url: str) -> str | None:
        """Return the proxy for an address, None for a direct connection.

        This machine's own addresses and the hosts in `NO_PROXY` are reached directly.

        Raises: ValueError naming the variable when its value is not a proxy.
        """
        parts = urlsplit(url)
        name, proxy = ("HTTPS_PROXY", self.https) if parts.scheme == "https" else ("HTTP_PROXY", self.http)
        if not proxy or is_loopback(parts.hostname or "") or self._is_excluded(parts):
            return None
        try:
            return proxy_url(proxy if "://" in proxy else f"http://{proxy}")
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None

    def _is_excluded(self, url: SplitResult) -> bool:
        """Tell whether `NO_PROXY` names the host, a domain above it, the host with its port, or `*` for all hosts."""
        host = url.hostname or ""
        for entry in self.excluded.lower().split(","):
            name = entry.strip().lstrip(".")
            if name and (name in {"*", host, f"{host}:{url.port}"} or host.endswith(f".{name}")):
                return True
        return False


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine. Any other name than `localhost` may be resolved to any machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def proxy_url(text: str) -> str:
    """Return the URL of a proxy, which may hold a user and a password. Raises: ValueError."""
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or not all("!" <= character <= "~" for character in text):
        raise ValueError("must be the http or https URL of a proxy")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError("must be the http or https URL of a proxy, without a path")
    return text


def _proxy(given: object) -> Secret:
    if isinstance(given, Secret):
        return given
    if not isinstance(given, str):
        raise ValueError("must be the http or https URL of a proxy")  # noqa: TRY004 - pydantic reports ValueError
    return Secret(proxy_url(given))


def _header_name(name: str) -> str:
    if not _TOKEN.fullmatch(name):
        raise ValueError("must be the name of an HTTP header")
    if name.lower() in _RESERVED_HEADERS:
        raise ValueError("is set by Portico itself")
    return name


def _header_value(given: object) -> Secret:
    if isinstance(given, Secret):
        return given
    if not isinstance(given, str) or not _HEADER_TEXT.fullmatch(given):
        raise ValueError("must be visible ASCII, with spaces only between words")
    return Secret(given)


def _header_names_differ(headers: Mapping[str, Secret]) -> Mapping[str, Secret]:
    if len({name.lower() for name in headers}) < len(headers):
        raise ValueError("must not name a header twice")
    return headers


def _file(path: str) -> str:
    try:
        with Path(path).open("rb"):
            return path
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it has no such name"
        raise ValueError(f"names a file that cannot be read: {reason}") from None


class HeadersFile:
    """Request headers in a file, one `Name: value` a line; empty lines and those that begin with `#` are skipped.

    They are read again when the file changes. While a changed file cannot be used, the previous headers are.
    """

    __slots__ = ("_headers", "_path", "_seen")

    def __init__(self, path: Path) -> None:
        """Read the file. Raises: OSError; ValueError for a line that is no header."""
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._headers: Mapping[str, str] = {}
        self._refresh()

    @property
    def path(self) -> Path:
        """Return the file."""
        return self._path

    def read(self) -> Mapping[str, str]:
        """Return the current headers."""
        try:
            self._refresh()
        except (OSError, ValueError):
            return self._headers
        return self._headers

    def _refresh(self) -> None:
        status = self._path.stat()
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        if seen != self._seen:
            self._headers = dict(_header_lines(self._path.read_text(encoding="utf-8")))
            self._seen = seen

    def __repr__(self) -> str:
        return "HeadersFile(...)"


def _header_lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, value = line.partition(":")
            if not _HEADER_TEXT.fullmatch(value.strip()):
                raise ValueError("must have one `Name: value` a line")
            yield _header_name(name).lower(), value.strip()


def _headers_file(given: object) -> HeadersFile:
    if isinstance(given, HeadersFile):
        return given
    if not isinstance(given, str) or not given or "\0" in given:
        raise ValueError("must be the path of a file")
    try:
        return HeadersFile(Path(given))
    except OSError as error:
        raise ValueError(f"names a file that cannot be read: {error.strerror}") from None
    except ValueError:
        raise ValueError("names a file that must have one `Name: value` a line") from None


_AS_TEXT = PlainSerializer(str, return_type=str)
HeadersFromFile = Annotated[HeadersFile, PlainValidator(_headers_file, json_schema_input_type=str), _AS_TEXT]
_SecretHeader = Annotated[Secret, PlainValidator(_header_value, json_schema_input_type=str), _AS_TEXT]
ProxySetting = Annotated[Secret, PlainValidator(_proxy, json_schema_input_type=str), _AS_TEXT]
HeaderSettings = Annotated[
    Mapping[Annotated[str, AfterValidator(_header_name)], _SecretHeader], AfterValidator(_header_names_differ)
]
ReadableFile = Annotated[str, AfterValidator(_file)]
