"""Command for a new directory: `portico init`."""

from pathlib import Path
from typing import Annotated

import typer


def init(
    directory: Annotated[Path, typer.Argument(help="Directory, which is made if it is not there.")] = Path(),
) -> None:
    """Write portico.toml, tools.py and .gitignore into a directory.

    The configuration has an engine for each key of a provider in the environment, by the variable's name; without one
    the built-in rehearsal engine answers. Nothing is written if one of the files exists.
    """
    from portico.entrypoints.cli.project import existing_file, write_project
    from portico.settings import schemes_with_keys

    found = existing_file(directory)
    if found is not None:
        raise typer.BadParameter(f"{found} is there already, and is not replaced", param_hint="DIRECTORY")
    try:
        for path in write_project(directory, schemes_with_keys()):
            typer.echo(str(path))
    except OSError as error:
        raise typer.BadParameter(f"cannot be written: {error.strerror}", param_hint="DIRECTORY") from None
