"""The table `[media]` of the configuration: what the service fetches for messages that name URLs."""

from typing import Annotated

from pydantic import Field

from portico.settings.tables.tool_sources import Count, HostPatterns
from portico.settings.values import Table


class MediaSettings(Table):
    """Images, documents and audio that requests name by URL."""

    hosts: HostPatterns = Field(
        ("*",), description="Hosts that may be asked, by https; `*.NAME` is all below a name, `[]` none: it is off"
    )
    private_hosts: HostPatterns = Field(
        (), description="Hosts that may be asked by http, too, and may be in a private network"
    )
    max_parts: Count = Field(8, description="Parts with a `url` that a request may have")
    max_bytes: Count = Field(8_388_608, description="Bytes that all of a request may have together")
    timeout: Annotated[float, Field(gt=0, le=300)] = Field(
        10, description="Seconds that fetching all of a request may take"
    )
