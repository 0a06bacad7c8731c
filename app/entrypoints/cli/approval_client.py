"""Client of a server's open approvals: it lists calls that wait for a person, and sends decisions."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final, Literal, Self, TypeVar
from urllib.parse import quote

import httpx2
import orjson
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from app.domain.contract.response import SuspensionKind
from app.domain.failures import Code, ConfigurationFailure, Failure, failure
from app.settings import Secret

_PAGE_SIZE: Final = 1_000
_TIMEOUT_S: Final = 30.0
_FIRST_REFUSAL: Final = 300
CallKind = Literal[SuspensionKind.APPROVAL, SuspensionKind.UNKNOWN_OUTCOME]
M = TypeVar("M", bound=BaseModel)


class OpenCall(BaseModel):
    """A tool call that waits for a decision, with every other field that the server has sent."""

    model_config = ConfigDict(extra="allow")

    suspension_id: str
    request_id: str
    kind: SuspensionKind
    tool_id: str
    user: str
    asked_at: datetime | None = None
    value: JsonValue = None

    @property
    def name(self) -> str:
        """Return the id of the call among all: suspension ids are those within one execution."""
        return f"{self.request_id}/{self.suspension_id}"


class _OpenCallPage(BaseModel):
    data: list[OpenCall]
    next: str | None


class _Refusal(BaseModel):
    code: Code
    message: str


class ApprovalClient:
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

    def open_calls(self, kind: CallKind) -> list[OpenCall]:
        """Return all calls that wait for a decision of that kind, those of the oldest execution first."""
        found: list[OpenCall] = []
        after: dict[str, str] = {}
        while True:
            answer = self._send("GET", "/v1/suspensions", {"kind": kind, "limit": str(_PAGE_SIZE), **after})
            page = self._parsed(_OpenCallPage, answer)
            found += page.data
            if page.next is None:
                return found
            after = {"after": page.next}

    def answer(self, call: OpenCall, payload: JsonValue) -> None:
        """Send the decision on a call; the execution continues on the server."""
        path = f"/v1/executions/{quote(call.request_id, safe='')}/resume"
        answer = {"tool_id": call.tool_id, "suspension_id": call.suspension_id, "payload": payload}
        self._send("POST", path, {}, orjson.dumps(answer))

    def _send(self, method: str, path: str, query: dict[str, str], body: bytes | None = None) -> httpx2.Response:
        headers = {} if body is None else {"content-type": "application/json", "prefer": "respond-async"}
        try:
            answer = self._http.request(method, path, params=query, content=body, headers=headers)
        except httpx2.HTTPError as error:
            message = f"{self._http.base_url} cannot be reached: {type(error).__name__}"
            raise ConfigurationFailure(Code.CONFIG_INVALID, message) from None
        if answer.status_code >= _FIRST_REFUSAL:
            raise self._refusal(answer)
        return answer

    def _refusal(self, answer: httpx2.Response) -> Failure:
        """Return the failure that the server has sent, or one that says that it is no server of this service."""
        try:
            refusal = _Refusal.model_validate_json(answer.content)
        except ValidationError:
            message = f"{self._http.base_url} answered with status {answer.status_code}"
            return ConfigurationFailure(Code.CONFIG_INVALID, message)
        return failure(refusal.code, refusal.message)

    def _parsed(self, model: type[M], answer: httpx2.Response) -> M:
        try:
            return model.model_validate_json(answer.content)
        except ValidationError:
            message = f"{self._http.base_url} answered with something else than suspensions"
        raise ConfigurationFailure(Code.CONFIG_INVALID, message)
