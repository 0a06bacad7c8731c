"""The tool `http_get`: a GET of a URL that a model chooses.

A URL that a model chooses carries data out. So without a list of hosts each call acts outside and waits for a person.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import SplitResult

import httpx2

from portico.adapters.http.exchange import HttpExchange
from portico.adapters.http.hosts import is_among, url_parts
from portico.adapters.tools.external_tool import ExternalTool, ExternalToolFacts
from portico.adapters.tools.plain_text import plain_text
from portico.capabilities.tools.definition import ToolArgumentError
from portico.domain.fingerprints import digest
from portico.domain.tools import Availability, SideEffects
from portico.ports.tool import ToolContext, ToolError

MAX_URL_CHARACTERS: Final = 8_192
_PARAMETERS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"url": {"type": "string", "maxLength": MAX_URL_CHARACTERS, "description": "URL with http or https"}},
    "required": ["url"],
    "additionalProperties": False,
}
_ALWAYS: Final = Availability(available=True)


class HttpGet(ExternalTool):
    """GET requests to the named hosts, in which `*.NAME` stands for all below a name and `*` for all; without any, to
    all, each with an approval. A reply has at most `max_bytes`; `timeout` is in seconds.
    """

    def __init__(self, hosts: Sequence[str], max_bytes: int, timeout: float, client: httpx2.AsyncClient) -> None:
        self._hosts = tuple(host.lower() for host in hosts)
        self._exchange = HttpExchange(client, "GET", max_bytes, check=self._check_host)
        facts = ExternalToolFacts(
            "http_get",
            "Fetch the text behind a URL with a GET request.",
            _PARAMETERS,
            SideEffects.READ if hosts else SideEffects.EXTERNAL,
            idempotent=bool(hosts),
            timeout=timeout,
        )
        places = ", ".join(hosts) or "any host"
        containment = f"Requests to public addresses only, also behind redirects; to {places}."
        super().__init__(facts, "http", identity=digest("http_get", self._hosts), containment=containment)

    def available(self) -> Availability:
        return _ALWAYS

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Return the text of the reply.

        Raises: ToolArgumentError for a URL that no request is made to; ToolError as `HttpExchange.fetch`.
        """
        url: str = arguments["url"]
        parts = url_parts(url)
        if isinstance(parts, str):
            raise _refused(parts)
        if not self._allows(parts.hostname or ""):
            raise _refused(f"must name one of these hosts: {', '.join(self._hosts)}")
        try:
            httpx2.URL(url)
        except httpx2.InvalidURL:
            raise _refused("must be a URL") from None
        return plain_text((await self._exchange.fetch(url)).content)

    def _check_host(self, parts: SplitResult) -> None:
        if not self._allows(parts.hostname or ""):
            raise ToolError("the service redirected to a host that is not among those that may be asked")

    def _allows(self, host: str) -> bool:
        return not self._hosts or is_among(host, self._hosts)


def _refused(message: str) -> ToolArgumentError:
    return ToolArgumentError((("arguments.url", message),))
