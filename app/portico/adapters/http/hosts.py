"""Hosts of URLs that others name: what such a URL must be, and which hosts a list of names is for."""

from collections.abc import Iterable, Sequence
from urllib.parse import SplitResult, urlsplit

from portico.domain.value import value
from portico.ports.media import NOTHING_FETCHED


def url_parts(url: str) -> SplitResult | str:
    """Return the parts of a URL with http or https, or what it must be instead."""
    try:
        parts = urlsplit(url)
        is_url = parts.port != 0
    except ValueError:
        is_url = False
    if not is_url:
        return "must be a URL"
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return "must begin with http:// or https:// and name a host"
    return "must not have a user or a password" if "@" in parts.netloc else parts


def is_among(host: str, names: Iterable[str]) -> bool:
    """Tell whether a list in lower case names the host, in which `*.NAME` is for all below a name and `*` for all."""
    name = host.lower().rstrip(".")
    return any(each in {"*", name} or (each.startswith("*.") and name.endswith(each[1:])) for each in names)


@value
class MediaHosts:
    """Hosts that may be asked, in lower case: names, `*.NAME` for all below one and `*` for all.

    Only `private` ones may be asked by http, and have an address in a private network. Without `public` ones nothing is
    fetched.
    """

    public: Sequence[str]
    private: Sequence[str]

    def refusal(self, url: str) -> str | None:
        """Return what the URL must be instead to be asked; None if it may be."""
        if not self.public:
            return NOTHING_FETCHED
        parts = url_parts(url)
        return parts if isinstance(parts, str) else self.refusal_of(parts)

    def refusal_of(self, parts: SplitResult) -> str | None:
        """Return what a URL of these parts must be instead; None if it may be asked."""
        host = parts.hostname or ""
        if self.is_private(host):
            return None
        if parts.scheme != "https":
            return "must begin with https://"
        return None if is_among(host, self.public) else "must be of a host that this service may ask"

    def is_private(self, host: str) -> bool:
        """Tell whether the host may be in a private network."""
        return is_among(host, self.private)
