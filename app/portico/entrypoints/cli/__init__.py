"""The command line."""

from portico.entrypoints.cli.commands import Wiring, main

__all__ = ["Wiring", "main"]
