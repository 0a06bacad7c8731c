"""Client of a server at the command line: it sends requests with the key of the caller, and reads the answers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final, Self, TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from portico.domain.failures import Code, ConfigurationFailure, Failure, failure
from portico.settings import Secret

_TIMEOUT_S: Final = 30.0
_FIRST_REFUSAL: Final = 300
_JSON: Final[Mapping[str, str]] = MappingProxyType({"content-type": "application/json"})
M = TypeVar("M", bound=BaseModel)


class _Refusal(BaseModel):
    code: Code
    message: str


class ServerClient:
    """Client of one server. Raises: Failure, as the server refused, in every method.

    A server that does not answer, or that is none of this service, is a ConfigurationFailure (CONFIG_INVALID). Nothing
    of the key is in a message.
    """

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http

    @classmethod
    @contextmanager
    def open(cls, url: str, key: Secret | None) -> Iterator[Self]:
        """Yield the client of the server at that URL; without redirects and proxies, which would see the key."""
        headers = {"accept": "application/json"}
        if key is not None:
            headers["authorization"] = f"Bearer {key.read()}"
        with httpx2.Client(base_url=url, headers=headers, timeout=_TIMEOUT_S, trust_env=False) as http:
            yield cls(http)

    def send(self, method: str, path: str, query: dict[str, str], body: bytes | None = None) -> httpx2.Response:
        """Send a request and return the answer, which is no refusal."""
        headers = {} if body is None else {"content-type": "application/json", "prefer": "respond-async"}
        try:
            answer = self._http.request(method, path, params=query, content=body, headers=headers)
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None
        if answer.status_code >= _FIRST_REFUSAL:
            raise self._refusal(answer)
        return answer

    @contextmanager
    def stream(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Iterator[httpx2.Response]:
        """Send a request for events, and yield the answer, which is no refusal and whose body is not read yet.

        Raises: httpx2.TransportError if the connection ends before the body does.
        """
        named = {"accept": "text/event-stream", **headers, **({} if body is None else _JSON)}
        request = self._http.build_request(method, path, headers=named, content=body)
        try:
            answer = self._http.send(request, stream=True)
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None
        try:
            if answer.status_code >= _FIRST_REFUSAL:
                answer.read()
                raise self._refusal(answer)
            yield answer
        finally:
            answer.close()

    def parsed(self, model: type[M], answer: httpx2.Response, expected: str) -> M:
        """Return the answer as that model; `expected` names it for a person."""
        try:
            return model.model_validate_json(answer.content)
        except ValidationError:
            message = f"{self._http.base_url} answered with something else than {expected}"
        raise ConfigurationFailure(Code.CONFIG_INVALID, message)

    def _unreachable(self, error: httpx2.HTTPError) -> Failure:
        message = f"{self._http.base_url} cannot be reached: {type(error).__name__}"
        return ConfigurationFailure(Code.CONFIG_INVALID, message)

    def _refusal(self, answer: httpx2.Response) -> Failure:
        """Return the failure that the server has sent, or one that says that it is no server of this service."""
        try:
            refusal = _Refusal.model_validate_json(answer.content)
        except ValidationError:
            message = f"{self._http.base_url} answered with status {answer.status_code}"
            return ConfigurationFailure(Code.CONFIG_INVALID, message)
        return failure(refusal.code, refusal.message)
