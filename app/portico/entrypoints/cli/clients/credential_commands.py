"""Commands for the credentials of a server: `portico credentials list`, `set` and `delete`.

Each command imports what it needs itself.
"""

import sys
from typing import Annotated

import typer

from portico.entrypoints.cli.exit_codes import failures_as_exits
from portico.entrypoints.cli.options import DEFAULT_SERVER, JsonLinesOption, KeyFileOption, UrlOption

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the credential.")]
TenantOption = Annotated[bool, typer.Option("--tenant", help="The value of the tenant instead of one's own.")]


def list_credentials(
    *, as_json: JsonLinesOption = False, url: UrlOption = DEFAULT_SERVER, key_file: KeyFileOption = None
) -> None:
    """List the credentials of one's tools, without values."""
    from portico.entrypoints.cli.clients.credentials import write_credentials

    with failures_as_exits():
        write_credentials(url, key_file, as_json=as_json)


def set_value(
    name: NameArgument,
    *,
    of_tenant: TenantOption = False,
    url: UrlOption = DEFAULT_SERVER,
    key_file: KeyFileOption = None,
) -> None:
    """Set the value of a credential, which is read from standard input without the line break at its end."""
    from getpass import getpass

    from portico.entrypoints.cli.clients.credentials import set_credential

    value = getpass("value: ") if sys.stdin.isatty() else sys.stdin.read().removesuffix("\n").removesuffix("\r")
    with failures_as_exits():
        set_credential(url, key_file, name, value, of_tenant=of_tenant)


def delete(
    name: NameArgument,
    *,
    of_tenant: TenantOption = False,
    url: UrlOption = DEFAULT_SERVER,
    key_file: KeyFileOption = None,
) -> None:
    """Delete the value of a credential."""
    from portico.entrypoints.cli.clients.credentials import delete_credential

    with failures_as_exits():
        delete_credential(url, key_file, name, of_tenant=of_tenant)
