"""The table `[webhooks]` of the configuration: the endpoints that hear of executions, and how deliveries are tried."""

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from portico.domain.contract.constrained_types import CallerName, WebhookName
from portico.domain.webhooks import RESERVED_NAMES, WEBHOOK_EVENTS, WebhookEvent
from portico.settings.tables.agents import AgentSettings
from portico.settings.values import Secret, SecretFromFile, Table, closest_name

_PREFIX: Final = "whsec_"
_MIN_BYTES: Final = 24
_MAX_BYTES: Final = 64


def _secret(secret: Secret) -> Secret:
    text = secret.read() or ""
    try:
        size = len(base64.b64decode(text.removeprefix(_PREFIX), validate=True))
    except (binascii.Error, ValueError):
        size = 0
    if not text.startswith(_PREFIX) or not _MIN_BYTES <= size <= _MAX_BYTES:
        raise ValueError("names a file that must contain whsec_ and the base64 of 24 to 64 bytes")
    return secret


def _url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or not all("!" <= character <= "~" for character in url) or parts.fragment:
        raise ValueError("must be an https URL of a host")
    if "@" in parts.netloc:
        raise ValueError("must not contain a user or a password")
    return url


EndpointUrl = Annotated[str, AfterValidator(_url)]
WebhookSecret = Annotated[SecretFromFile, AfterValidator(_secret)]
Wait = Annotated[float, Field(gt=0, le=604_800)]


class EndpointSettings(Table):
    """An endpoint: where deliveries go, and of which events it hears."""

    url: EndpointUrl = Field(description="URL that deliveries are sent to: https, or http with `allow_private`")
    secret_file: WebhookSecret = Field(
        description="File of the secret that signs: `whsec_` and base64, as Standard Webhooks writes it"
    )
    events: Annotated[tuple[WebhookEvent, ...], Field(min_length=1, strict=False)] = Field(
        WEBHOOK_EVENTS, description="Events that it hears of"
    )
    tenant: CallerName | None = Field(None, description="Tenant that it hears of; without it, all")
    always: bool = Field(True, description="If false, it hears only of executions whose request or agent names it")
    content: bool = Field(False, description="If true, the answer is sent, too, redacted as for a narrow key")
    allow_private: bool = Field(False, description="If true, it may be in a private network, and be http")


class WebhookSettings(Table):
    """Webhooks."""

    retry_seconds: Annotated[tuple[Wait, ...], Field(max_length=32, strict=False)] = Field(
        (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400),
        description="Seconds after each failed attempt until the next one, 10 % more or less; then a delivery is dead",
    )
    timeout: Annotated[float, Field(gt=0, le=120)] = Field(20, description="Seconds that an attempt may take")
    allow_private: bool = Field(
        False, description="If true, the endpoints of all tenants may be in a private network, and be http"
    )
    endpoints: Mapping[WebhookName, EndpointSettings] = Field(
        default_factory=dict, description="Endpoints by name: tables `[webhooks.endpoints.NAME]`"
    )


def webhook_errors(webhooks: WebhookSettings, agents: Mapping[str, AgentSettings]) -> Iterator[tuple[str, str]]:
    """Yield the errors of the endpoints and of the agents that name them, each with its key."""
    for name, endpoint in webhooks.endpoints.items():
        here = f"webhooks.endpoints.{name}"
        if name in RESERVED_NAMES:
            yield here, "must not have this name, which is a path of its own"
        if endpoint.url.startswith("http:") and not (endpoint.allow_private or webhooks.allow_private):
            yield f"{here}.url", f"must be https; set {here}.allow_private for one in a private network"
        if len(set(endpoint.events)) < len(endpoint.events):
            yield f"{here}.events", "must not name an event twice"
    for name, agent in agents.items():
        for index, named in enumerate(agent.webhooks):
            if named not in webhooks.endpoints:
                known = webhooks.endpoints
                hint = f"; did you mean {closest_name(named, known)}?" if known else "; there is none"
                yield f"agents.{name}.webhooks.{index}", f"must name an endpoint of [webhooks.endpoints]{hint}"
