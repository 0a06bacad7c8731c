"""The command `portico`, also as `python -m app`."""

from app.bootstrap import open_archive, open_service
from app.entrypoints import cli
from app.entrypoints.http.app import create_app
from app.entrypoints.http.limits import BoundedProtocol


def portico() -> None:
    """Runs the command that this process was started with."""
    cli.main(
        cli.Wiring(
            create_app=create_app, protocol=BoundedProtocol, open_service=open_service, open_archive=open_archive
        )
    )


if __name__ == "__main__":
    portico()
