"""Client of a server's open approvals: it lists calls that wait for a person, and sends decisions."""

from datetime import datetime
from typing import Final, Literal
from urllib.parse import quote

import orjson
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from portico.domain.contract.response import GivenApprovals, SuspensionKind
from portico.entrypoints.cli.clients.server_client import ServerClient

_PAGE_SIZE: Final = 1_000
CallKind = Literal[SuspensionKind.APPROVAL, SuspensionKind.UNKNOWN_OUTCOME]


class OpenCall(BaseModel):
    """A tool call that waits for a decision, with every other field that the server has sent."""

    model_config = ConfigDict(extra="allow")

    suspension_id: str
    request_id: str
    kind: SuspensionKind
    tool_id: str
    user: str
    agent: str | None = None
    asked_because: str | None = None
    asked_at: datetime | None = None
    value: JsonValue = None
    approvals: GivenApprovals | None = None

    @property
    def name(self) -> str:
        """Return the id of the call among all: suspension ids are those within one execution."""
        return f"{self.request_id}/{self.suspension_id}"


class _OpenCallPage(BaseModel):
    data: list[OpenCall]
    next: str | None


class OpenGrant(BaseModel):
    """A grant for later calls of a tool, with every other field that the server has sent."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    grant_id: str
    tool: str
    scope: str = Field(alias="for")
    request_id: str
    match: str
    user: str
    granted_by: str
    expires_at: datetime
    uses: int
    agent: str | None = None


class _GrantList(BaseModel):
    data: list[OpenGrant]


class ApprovalClient(ServerClient):
    """Client of the approvals of one server."""

    def open_calls(self, kind: CallKind) -> list[OpenCall]:
        """Return all calls that wait for a decision of that kind, those of the oldest execution first."""
        found: list[OpenCall] = []
        after: dict[str, str] = {}
        while True:
            answer = self.send("GET", "/v1/suspensions", {"kind": kind, "limit": str(_PAGE_SIZE), **after})
            page = self.parsed(_OpenCallPage, answer, "suspensions")
            found += page.data
            if page.next is None:
                return found
            after = {"after": page.next}

    def answer(self, call: OpenCall, payload: JsonValue) -> None:
        """Send the decision on a call; the execution continues on the server."""
        path = f"/v1/executions/{quote(call.request_id, safe='')}/resume"
        answer = {"tool_id": call.tool_id, "suspension_id": call.suspension_id, "payload": payload}
        self.send("POST", path, {}, orjson.dumps(answer))

    def grants(self) -> list[OpenGrant]:
        """Return the grants that cover calls yet, the oldest first."""
        return self.parsed(_GrantList, self.send("GET", "/v1/grants", {}), "grants").data

    def revoke(self, grant_id: str) -> None:
        """Let the grant cover no call any more."""
        self.send("DELETE", f"/v1/grants/{quote(grant_id, safe='')}", {})
