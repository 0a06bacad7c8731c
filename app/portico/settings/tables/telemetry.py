"""Settings of logs, metrics, traces and costs."""

from importlib.util import find_spec
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from portico.settings.tables.connection import HeadersFromFile
from portico.settings.values import BaseUrl, Table

OtlpProtocol = Literal["http", "grpc"]


def _installed(protocol: OtlpProtocol) -> OtlpProtocol:
    if protocol == "grpc" and find_spec("opentelemetry.exporter.otlp.proto.grpc") is None:
        raise ValueError("install portico[otlp-grpc]")
    return protocol


class TelemetrySettings(Table):
    """Logs, metrics, traces and costs."""

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="`debug`, `info`, `warning` or `error`"
    )
    log_format: Literal["json", "console"] = Field(
        "json", description="`json` for programs, `console` for people: coloured text on a terminal"
    )
    currency: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")] = Field(
        "USD", description="Currency of prices and costs"
    )
    stream_tool_content: bool = Field(True, description="Show arguments and results of tool calls in event streams")
    otlp_endpoint: BaseUrl | None = Field(
        None, description="Base URL of an OpenTelemetry collector to which traces are sent; none are made without it"
    )
    otlp_protocol: Annotated[OtlpProtocol, AfterValidator(_installed)] = Field(
        "http",
        description="`http` (protobuf, at `/v1/traces` below the endpoint), or `grpc`, which needs the optional "
        "packages `portico[otlp-grpc]`",
    )
    otlp_headers_file: HeadersFromFile | None = Field(
        None,
        description="File of headers for the collector, one `Name: value` a line; it is read again when it changes",
    )
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = Field(
        0.05, description="Share of the traces that are recorded, unless the caller's `traceparent` decides"
    )
    sample_errors: bool = Field(
        True, description="Also record executions that fail, exceed their time or fail over to another provider"
    )
    propagate: bool = Field(
        True, description="Give providers the `traceparent` of each attempt; `tracestate` and baggage are never sent on"
    )
    capture_content: bool = Field(False, description="Show messages, and arguments and results of tool calls, in spans")
