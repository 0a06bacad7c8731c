"""Command for the keys that seal stored secrets: `portico secrets generate`."""

import sys


def generate() -> None:
    """Print a new key for a file that secrets.key_file names, one a line."""
    from portico.bootstrap.secrets import new_secrets_key

    sys.stdout.write(new_secrets_key() + "\n")
