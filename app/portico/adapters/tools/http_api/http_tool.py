"""A configured HTTP API as a tool."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

import httpx2
import orjson

from portico.adapters.http.exchange import HttpExchange, StatusError, origin_of
from portico.adapters.tools.caller_values import HeaderTemplates
from portico.adapters.tools.external_tool import ExternalTool, ExternalToolFacts
from portico.adapters.tools.http_api.url_template import UrlTemplate, query_pairs
from portico.adapters.tools.plain_text import plain_text
from portico.capabilities.tools.definition import ToolArgumentError
from portico.domain.fingerprints import digest
from portico.domain.json_path import Matches, PathStep, children
from portico.domain.tools import Availability, Caller
from portico.domain.value import value
from portico.ports.tool import ToolContext, ToolError

_QUERY_METHODS: Final = frozenset({"GET", "DELETE"})
_UNAUTHORIZED: Final = 401
_ALWAYS: Final = Availability(available=True)
_CONTAINMENT: Final = (
    "Requests to public addresses only, also behind redirects.",
    "Requests to public addresses only, also behind redirects; the configured host may be in a private network.",
)


@value
class HttpToolConfig:
    """Configuration of one HTTP tool.

    `url` has places for arguments and for facts of the caller, `caller_headers` are headers with places for the latter,
    and `headers` reads those of the file. `select` is the part of a JSON reply
    that is the result. With `allow_private` the configured host may be in a private network. The `credential` of that
    name is sent to the configured origin.
    """

    facts: ExternalToolFacts
    method: str
    url: str
    max_bytes: int
    headers: Callable[[], Mapping[str, str]]
    select: tuple[PathStep, ...] | None = None
    allow_private: bool = False
    caller_headers: Mapping[str, str] = field(default_factory=dict)
    credential: str | None = None


class _Asked(NamedTuple):
    """Request of a call: its URL, and its body with the headers of that, if it has one."""

    url: str
    body: bytes | None = None
    body_headers: Mapping[str, str] | None = None


class HttpTool(ExternalTool):
    """An HTTP API as a tool: each call is one request, and the redirects of a GET. All tools may share a client.

    Raises: ValueError, from the constructor, for a URL whose places do not fit the parameters, and for a parameter that
    would repeat a pair of the configured query.
    """

    def __init__(self, config: HttpToolConfig, client: httpx2.AsyncClient) -> None:
        self._config = config
        self._template = UrlTemplate(config.url, config.facts.parameters)
        for name in self._repeated(config.facts.parameters.get("properties", {})):
            raise ValueError(f"sets {name} in its query, so {name} must be no property of the parameters")
        self._client, self._origin = client, origin_of(urlsplit(config.url))
        self._caller_headers = HeaderTemplates(config.caller_headers)
        passed = [sorted(config.caller_headers.items())] if config.caller_headers else []
        credentials = () if config.credential is None else (config.credential,)
        identity = digest(config.method, config.url, *passed, *credentials)
        containment = _CONTAINMENT[config.allow_private]
        super().__init__(config.facts, "http", identity=identity, containment=containment, credentials=credentials)

    def available(self) -> Availability:
        return _ALWAYS

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Send the request and return the text of the reply, or the selected part of it.

        Raises: ToolArgumentError for arguments that the URL cannot take; ToolOutcomeUnknown if the connection was lost
        after the request was sent; ToolError for an address that tools must not reach, a connection that was refused,
        a status other than 2xx and a reply that is too large.
        """
        url = self._template.fill(arguments, context.caller)
        repeated = self._repeated(arguments)
        if repeated:
            raise ToolArgumentError(tuple((f"arguments.{name}", "is set by the configuration") for name in repeated))
        rest = {name: value for name, value in arguments.items() if name not in self._template.names}
        if self._config.method in _QUERY_METHODS:
            pairs = httpx2.QueryParams(tuple(query_pairs(rest)))
            asked = _Asked(str(httpx2.URL(url).copy_merge_params(pairs)) if pairs else url)
        else:
            headers = {"content-type": "application/json", "idempotency-key": context.idempotency_key}
            asked = _Asked(url, orjson.dumps(rest), headers)
        if self._config.credential is None:
            return self._result((await self._exchange(context.caller).fetch(*asked)).content)
        return self._result(await self._fetch_authorized(asked, self._config.credential, context))

    async def _fetch_authorized(self, asked: "_Asked", name: str, context: ToolContext) -> bytes:
        """Return the reply to a request with the credential; after a 401, which has not acted, it is sent once more.

        Raises: CredentialNeeded, CredentialUnavailable; else as `HttpExchange.fetch`.
        """
        credentials = context.credentials_of(name)
        sent = await credentials.header(name)
        while True:
            try:
                return (await self._exchange(context.caller, sent).fetch(*asked)).content
            except StatusError as refusal:
                if refusal.status != _UNAUTHORIZED or origin_of(urlsplit(refusal.url)) != self._origin:
                    raise
            sent = await credentials.renew(name)

    def _exchange(self, caller: Caller | None, credential: tuple[str, str] | None = None) -> HttpExchange:
        """Return the exchange of a call, whose headers go to the configured origin only. Raises: ToolError."""
        config, own = self._config, self._caller_headers.fill(caller)

        def headers(parts: SplitResult) -> Mapping[str, str]:
            if origin_of(parts) != self._origin:
                return {}
            sent = {**config.headers(), **own}
            return sent if credential is None else {**_without(sent, credential[0]), credential[0]: credential[1]}

        return HttpExchange(
            self._client,
            config.method,
            config.max_bytes,
            headers=headers,
            allows_private=lambda host: config.allow_private and host == self._origin[1],
        )

    def _repeated(self, names: Iterable[str]) -> list[str]:
        """Return those names whose values would go into the query, where the configuration has a value for them."""
        if self._config.method not in _QUERY_METHODS:
            return []
        template = self._template
        return [name for name in names if name in template.query_names and name not in template.names]

    def _result(self, data: bytes) -> str:
        if self._config.select is None:
            return plain_text(data)
        try:
            matches: Matches = [((), orjson.loads(data))]
        except ValueError as cause:
            raise ToolError("the reply is no JSON, of which a part is selected") from cause
        for step in self._config.select:
            matches = children(matches, step)
        if None in self._config.select:
            return orjson.dumps([value for _, value in matches]).decode()
        if not matches:
            raise ToolError("the reply does not have the part that is selected")
        value = matches[0][1]
        return value if isinstance(value, str) else orjson.dumps(value).decode()


def _without(headers: Mapping[str, str], name: str) -> dict[str, str]:
    return {each: text for each, text in headers.items() if each.lower() != name.lower()}
