"""Commands for API keys: `portico keys create`, `list`, `revoke` and `generate`.

A key is printed once, alone on its line on standard output; everything else goes to standard error. Each command
imports what it needs itself.
"""

import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from portico.domain.access.limits import MILLIONTHS, AccessLimits, Rate, parse_rate
from portico.domain.access.principal import KEY_DEFAULT, Permission, Permissions, is_permission
from portico.domain.failures import Category
from portico.domain.ids import CHANNEL_PATTERN, ChannelName, KeyId, TenantId, UserId
from portico.entrypoints.cli.exit_codes import EXIT_CODES, failures_as_exits
from portico.entrypoints.cli.options import ConfigOption

if TYPE_CHECKING:
    from portico.entrypoints.cli.service_parts import Wiring

_NAME: Final = re.compile(r"[A-Za-z0-9._@|:-]{1,128}")
_CHANNEL: Final = re.compile(CHANNEL_PATTERN)
_KEY_ID: Final = re.compile(r"[A-Za-z0-9]{8}")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise typer.BadParameter("must be 1 to 128 of the characters A-Z a-z 0-9 . _ @ | : -")
    return text


def _channel(text: str | None) -> str | None:
    if text is not None and not _CHANNEL.fullmatch(text):
        raise typer.BadParameter("must be 1 to 32 of the characters a-z 0-9 -")
    return text


def _permission(name: str) -> str:
    if not is_permission(name):
        known = ", ".join(Permission)
        raise typer.BadParameter(f"must be one of {known}, tool:NAME, model:NAME, agent:NAME; a trailing * is a prefix")
    return name


def _rate(text: str) -> Rate:
    try:
        return parse_rate(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _cost_rate(text: str) -> Rate:
    try:
        return parse_rate(text, units=MILLIONTHS)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _key_id(text: str) -> str:
    if not _KEY_ID.fullmatch(text):
        raise typer.BadParameter("must be the 8 characters behind ptk_, never the whole key")
    return text


def create(  # noqa: PLR0913 - Typer reads one parameter per option
    context: typer.Context,
    *,
    tenant: Annotated[str, typer.Option(callback=_name, help="Tenant whose data the key gives access to.")],
    user: Annotated[str, typer.Option(callback=_name, help="User that the key acts for.")],
    permission: Annotated[
        list[str] | None,
        typer.Option(
            help="Permission; repeat for several. "
            "Default: all but can_read_metrics, can_view_tenant, can_act_for and those that begin with can_manage."
        ),
    ] = None,
    channel: Annotated[
        str | None, typer.Option(callback=_channel, help="Channel of all its requests, such as support-desk.")
    ] = None,
    requests: Annotated[Rate | None, typer.Option(parser=_rate, metavar="N/S", help="Executions per seconds.")] = None,
    tokens: Annotated[Rate | None, typer.Option(parser=_rate, metavar="N/S", help="Tokens per seconds.")] = None,
    cost: Annotated[Rate | None, typer.Option(parser=_cost_rate, metavar="N/S", help="Cost per seconds.")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Executions that run at the same time.")] = None,
    expires: Annotated[
        float | None, typer.Option(min=0.0, max=36_500.0, metavar="DAYS", help="Days until the key expires.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Create a key, and print it once on standard output. It cannot be shown again."""
    import anyio

    from portico.bootstrap.keys import KeyGrant
    from portico.entrypoints.cli.keys import create_key
    from portico.settings import load_settings

    names = Permissions.of(map(_permission, permission)) if permission else KEY_DEFAULT
    limits = AccessLimits(requests, tokens, cost, concurrency)
    own_channel = None if channel is None else ChannelName(channel)
    grant = KeyGrant(TenantId(tenant), UserId(user), names, limits, expires, channel=own_channel)
    wiring: Wiring = context.obj()
    with failures_as_exits():
        key = anyio.run(create_key, wiring.open_keys, load_settings(path=config), grant)
    sys.stdout.write(key + "\n")


def list_keys(
    context: typer.Context,
    *,
    tenant: Annotated[str | None, typer.Option(help="Only keys of this tenant.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    config: ConfigOption = None,
) -> None:
    """List the keys, oldest first; their secrets are stored nowhere."""
    import anyio

    from portico.entrypoints.cli.keys import stored_keys, write_keys
    from portico.settings import load_settings

    wiring: Wiring = context.obj()
    with failures_as_exits():
        found = anyio.run(stored_keys, wiring.open_keys, load_settings(path=config), tenant)
    write_keys(found, as_json=as_json)


def revoke(
    context: typer.Context,
    public_id: Annotated[str, typer.Argument(callback=_key_id, help="The 8 characters behind ptk_.")],
    *,
    cancel: Annotated[
        bool,
        typer.Option(
            "--cancel",
            help="Also stop the stored executions that run or wait under this key, and disable its webhooks.",
        ),
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Revoke a key; every server honours it within 5 seconds."""
    import anyio
    from rich.console import Console

    from portico.entrypoints.cli.keys import revoke_key
    from portico.settings import load_settings

    wiring: Wiring = context.obj()
    console = Console(stderr=True, highlight=False)
    with failures_as_exits():
        change = partial(revoke_key, wiring.open_keys, load_settings(path=config), KeyId(public_id), cancel=cancel)
        revoked = anyio.run(change)
    if revoked is None:
        console.print(f"There is no key {public_id}.")
        raise typer.Exit(EXIT_CODES[Category.ACCESS])
    key, count, webhooks = revoked
    stopped = f" {count} executions are being stopped." if cancel else ""
    console.print(f"The key {key.key_id} of {key.tenant}/{key.user} is revoked.{stopped}", soft_wrap=True)
    if webhooks:
        effect = "They are disabled." if cancel else "They still hear of the tenant; --cancel disables them."
        console.print(f"It made the webhooks {', '.join(webhooks)}. {effect}", soft_wrap=True)


def generate() -> None:
    """Print a new key without storing it, for auth.bootstrap_key_file."""
    from portico.bootstrap.keys import new_key

    sys.stdout.write(new_key().reveal() + "\n")
