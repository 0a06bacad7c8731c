"""Port of the media behind URLs: images, documents and audio that messages name and the service fetches."""

from typing import Final, Protocol

from portico.domain.value import value

NOTHING_FETCHED: Final = "must be absent: this service fetches nothing; send the bytes as data"
"""What the URL of a part must be where nothing is fetched."""


class MediaError(Exception):
    """Media that cannot be had; its text says why, and never where."""


@value
class MediaLimits:
    """Limits of one request: its parts with a URL, and bytes and seconds of all of them together."""

    max_parts: int
    max_bytes: int
    timeout: float


@value
class FetchedMedia:
    """Bytes, and the media type that their server says they have."""

    content: bytes
    media_type: str | None


class MediaFetcher(Protocol):
    """Fetches what is behind URLs that clients name, which no one has vouched for."""

    @property
    def limits(self) -> MediaLimits:
        """Return the limits of a request."""
        ...

    def refusal(self, url: str) -> str | None:
        """Return what the URL must be instead to be fetched; None if it may be. Nothing is asked for that."""
        ...

    async def fetch(self, url: str, *, max_bytes: int, seconds: float) -> FetchedMedia:
        """Return what is behind a URL. Raises: MediaError, also if it has more bytes or takes longer."""
        ...
