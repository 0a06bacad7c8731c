"""Announcements of webhooks: the endpoints that hear of an event, and the messages to them.

A message says that something has happened, to whom, and where more of it can be read. It has nothing of a conversation
unless the endpoint asks for the answer, which is redacted as for a caller that may not view the full history.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from portico.domain.contract.response import SystemResponse
from portico.domain.fingerprints import digest
from portico.domain.ids import TenantId
from portico.domain.journal.events import (
    Event,
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionSuspended,
)
from portico.domain.journal.header import ExecutionHeader
from portico.domain.schedules import Schedule, ScheduleRun
from portico.domain.webhooks import SCHEDULE_FAILED, TEST_EVENT, EndpointState, WebhookEndpoint
from portico.orchestration.redaction import redacted_response
from portico.ports.outbox import Delivery

MAX_BODY: Final = 20_000
"""Bytes of a message without its response."""
MAX_RESPONSE: Final = 256 * 1024
_ANNOUNCED: Final = (ExecutionCompleted, ExecutionFailed, ExecutionCancelled, ExecutionSuspended)
_OPTIONS: Final = orjson.OPT_UTC_Z
_MAX_SUSPENSIONS: Final = 32
_ENABLED: Final = EndpointState()


class Announcements:
    """Implementation of the `OutboxSource` port: the endpoints as this replica knows them.

    `public_url` is where executions can be read; links begin with it.
    """

    def __init__(self, configured: Iterable[WebhookEndpoint], public_url: str | None) -> None:
        self.configured: Mapping[str, WebhookEndpoint] = {each.name: each for each in configured}
        """The endpoints of the file, by name."""
        self.endpoints: Mapping[str, WebhookEndpoint] = {}
        """All endpoints, by key."""
        self.states: Mapping[str, EndpointState] = {}
        self.hears_all = False
        self.tenants: frozenset[TenantId] = frozenset()
        self._public_url = public_url
        self.replace((), {})

    def replace(self, made: Iterable[WebhookEndpoint], states: Mapping[str, EndpointState]) -> None:
        """Know these endpoints that were made over the API, and these states; the file's hide those of their names."""
        own = [each for each in made if not self._hides(each)]
        self.endpoints = {each.key: each for each in (*self.configured.values(), *own)}
        self.states = states
        hearing = [each for each in self.endpoints.values() if each.always and self.state(each).disabled_at is None]
        self.hears_all = any(each.tenant is None for each in hearing)
        self.tenants = frozenset(each.tenant for each in hearing if each.tenant is not None)

    def set_state(self, endpoint: WebhookEndpoint, state: EndpointState) -> None:
        """Know that state of an endpoint."""
        made = [each for each in self.endpoints.values() if not each.is_from_file]
        self.replace(made, {**self.states, endpoint.key: state})

    def state(self, endpoint: WebhookEndpoint) -> EndpointState:
        """Return the state of an endpoint."""
        return self.states.get(endpoint.key, _ENABLED)

    def find(self, tenant: TenantId, name: str) -> WebhookEndpoint | None:
        """Return the endpoint of that name of which the tenant may know."""
        return next((each for each in self.of_tenant(tenant) if each.name == name), None)

    def of_tenant(self, tenant: TenantId) -> list[WebhookEndpoint]:
        """Return the endpoints that hear of the tenant, by name."""
        return sorted((each for each in self.endpoints.values() if each.tenant in {None, tenant}), key=_name)

    def deliveries_of(self, header: ExecutionHeader, number: int, at: float, event: Event) -> Sequence[Delivery]:
        if not isinstance(event, _ANNOUNCED):
            return ()
        named = header.request.webhooks if header.agent is None else [*header.request.webhooks, *header.agent.webhooks]
        hearing = [
            each
            for each in self.endpoints.values()
            if each.hears(header.tenant, event.type, named) and self.state(each).disabled_at is None
        ]
        if not hearing:
            return ()
        response = event.response
        plain = _message(event.type, at, self._facts(header, response))
        whole = _message_with(plain, response) if any(each.content for each in hearing) else plain
        return [
            Delivery(
                delivery_id(each, header.execution_id, number),
                header.tenant,
                each,
                event.type,
                at,
                whole if each.content else plain,
                header.execution_id,
                header.request_id,
            )
            for each in hearing
        ]

    def of_schedule(self, schedule: Schedule, runs: Sequence[ScheduleRun], at: float) -> Sequence[Delivery]:
        """Return the deliveries that announce the last of the times that have failed; none without such a time."""
        failed, tenant = [each for each in runs if each.outcome.is_failure], schedule.owner.tenant
        named = schedule.request.get("webhooks", ())
        hearing = [
            each
            for each in self.endpoints.values()
            if failed and each.hears(tenant, SCHEDULE_FAILED, named) and self.state(each).disabled_at is None
        ]
        if not hearing:
            return ()
        last = failed[-1]
        data = {
            "schedule": schedule.name,
            "tenant": tenant,
            "user": schedule.owner.user,
            "at": datetime.fromtimestamp(last.at, UTC),
            "outcome": last.outcome,
            "code": last.code,
            "times": len(failed),
        }
        body = _message(SCHEDULE_FAILED, at, data)
        return [
            Delivery(delivery_id(each, last.run_id, 0), tenant, each, SCHEDULE_FAILED, at, body) for each in hearing
        ]

    def test(self, endpoint: WebhookEndpoint, tenant: TenantId, token: str, at: float) -> Delivery:
        """Return a delivery that a person asks for."""
        body = _message(TEST_EVENT, at, {"tenant": tenant, "endpoint": endpoint.name})
        return Delivery(delivery_id(endpoint, token, 0), tenant, endpoint, TEST_EVENT, at, body)

    def _hides(self, made: WebhookEndpoint) -> bool:
        configured = self.configured.get(made.name)
        return configured is not None and configured.tenant in {None, made.tenant}

    def _facts(self, header: ExecutionHeader, response: SystemResponse) -> dict[str, Any]:
        """Return the facts for every endpoint; metadata that makes them too long is left out."""
        data: dict[str, Any] = {
            "request_id": header.request_id,
            "session_id": header.request.session_id,
            "tenant": header.tenant,
            "user": header.user,
            "agent": header.request.agent,
            "channel": header.channel,
            "mode": header.mode,
            "state": response.state,
            "code": None if response.error is None else response.error.code,
            "tokens": response.token_usage.total_tokens,
            "cost": None if response.cost is None else response.cost.model_dump(mode="json"),
            "suspensions": [
                {
                    "suspension_id": each.suspension_id,
                    "kind": each.kind,
                    "tool_id": each.tool_id,
                    "asked_at": each.asked_at,
                    "expires_at": each.expires_at,
                }
                for each in response.suspensions[:_MAX_SUSPENSIONS]
            ],
            "metadata": header.request.metadata,
            "url": None if self._public_url is None else f"{self._public_url}/v1/executions/{header.request_id}",
        }
        if header.request.metadata and len(orjson.dumps(data)) > MAX_BODY - 200:
            data["metadata"] = {}
        return data


def delivery_id(endpoint: WebhookEndpoint, subject: str, number: int) -> str:
    """Return the id of the message to an endpoint about event `number` of a subject, which is always the same."""
    return f"msg_{digest('webhook', endpoint.key, subject, number)}"


def _name(endpoint: WebhookEndpoint) -> str:
    return endpoint.name


def _message(event: str, at: float, data: Mapping[str, Any]) -> bytes:
    return orjson.dumps({"type": event, "timestamp": datetime.fromtimestamp(at, UTC), "data": data}, option=_OPTIONS)


def _message_with(plain: bytes, response: SystemResponse) -> bytes:
    """Return the message with the response, unless that is too long."""
    shown = redacted_response(response).model_dump_json(by_alias=True).encode()
    return plain if len(shown) > MAX_RESPONSE else b'%b,"response":%b}}' % (plain[:-2], shown)
