"""The table `[audit]` of the configuration: the log of who read, changed and deleted what."""

from typing import Annotated, Literal

from pydantic import Field

from portico.settings.values import Table


class AuditSettings(Table):
    """Audit log."""

    file: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="File of JSON lines, each with the digest of the line before; without it nothing is recorded"
    )
    reads: Literal["none", "others", "all"] = Field(
        "others", description="Reads that are recorded: `none`, those of the data of `others`, or `all`"
    )
