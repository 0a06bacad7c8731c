"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[
    Path | None, typer.Option(help="Configuration file. Default: PORTICO_CONFIG, else portico.toml in this directory.")
]
