"""Media in the composition root: the fetcher, whose HTTP client is loaded when something is fetched."""

from portico.adapters.http.hosts import MediaHosts
from portico.ports.media import FetchedMedia, MediaFetcher, MediaLimits
from portico.settings.tables.media import MediaSettings


class LazyMediaFetcher:
    """Implementation of the `MediaFetcher` port."""

    def __init__(self, settings: MediaSettings) -> None:
        self.limits = MediaLimits(settings.max_parts, settings.max_bytes, settings.timeout)
        public, private = ([name.lower() for name in names] for names in (settings.hosts, settings.private_hosts))
        self._hosts = MediaHosts(public, private)
        self._fetcher: MediaFetcher | None = None

    def refusal(self, url: str) -> str | None:
        return self._hosts.refusal(url)

    async def fetch(self, url: str, *, max_bytes: int, seconds: float) -> FetchedMedia:
        if self._fetcher is None:
            from portico.adapters.http.exchange import http_client  # noqa: PLC0415 - loads the HTTP client
            from portico.adapters.http.media_fetcher import HttpMediaFetcher  # noqa: PLC0415 - see above

            self._fetcher = HttpMediaFetcher(http_client(), self._hosts, self.limits)
        return await self._fetcher.fetch(url, max_bytes=max_bytes, seconds=seconds)
