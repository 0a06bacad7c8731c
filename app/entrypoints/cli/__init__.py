"""The command line."""

from app.entrypoints.cli.commands import Wiring, main

__all__ = ["Wiring", "main"]
