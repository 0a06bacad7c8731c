"""Commands for webhooks: the endpoints of a server that hear of a tenant, and the deliveries to them.

These commands are clients of a server, so that its permissions hold: `can_manage_webhooks` with `can_view_tenant`. Each
command imports what it needs itself.
"""

from typing import Annotated, Literal

import typer

from portico.entrypoints.cli.exit_codes import failures_as_exits
from portico.entrypoints.cli.options import DEFAULT_SERVER, JsonLinesOption, KeyFileOption, UrlOption

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the endpoint.")]


def list_endpoints(
    *, url: UrlOption = DEFAULT_SERVER, key_file: KeyFileOption = None, as_json: JsonLinesOption = False
) -> None:
    """List the endpoints, those of the server's configuration included."""
    from portico.entrypoints.cli.clients.webhooks import WebhookClient

    with failures_as_exits(), WebhookClient.of(url, key_file) as client:
        client.write_endpoints(as_json=as_json)


def put(
    name: NameArgument,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="URL that deliveries are sent to, with https.")],
    *,
    event: Annotated[
        list[str] | None, typer.Option(help="Event that it hears of; repeat for several. Default: all.")
    ] = None,
    only_named: Annotated[
        bool, typer.Option("--only-named", help="Hear only of executions whose request or agent names it.")
    ] = False,
    content: Annotated[bool, typer.Option("--content", help="Send the answer, too.")] = False,
    url: UrlOption = DEFAULT_SERVER,
    key_file: KeyFileOption = None,
) -> None:
    """Make or change an endpoint; the secret of a new one is printed once."""
    from portico.entrypoints.cli.clients.webhooks import WebhookClient

    body = {"url": target, "always": not only_named, "content": content}
    with failures_as_exits(), WebhookClient.of(url, key_file) as client:
        client.put(name, {**body, "events": event} if event else body)


def delete(name: NameArgument, *, url: UrlOption = DEFAULT_SERVER, key_file: KeyFileOption = None) -> None:
    """Delete an endpoint with its deliveries."""
    from portico.entrypoints.cli.clients.webhooks import WebhookClient

    with failures_as_exits(), WebhookClient.of(url, key_file) as client:
        client.delete(name)


def rotate(name: NameArgument, *, url: UrlOption = DEFAULT_SERVER, key_file: KeyFileOption = None) -> None:
    """Print a new secret of an endpoint; for 24 hours the earlier one signs, too."""
    from portico.entrypoints.cli.clients.webhooks import WebhookClient

    with failures_as_exits(), WebhookClient.of(url, key_file) as client:
        client.rotate(name)


def send_test(name: NameArgument, *, url: UrlOption = DEFAULT_SERVER, key_file: KeyFileOption = None) -> None:
    """Send an endpoint a test, and print the id of the delivery."""
    from portico.entrypoints.cli.clients.webhooks import WebhookClient

    with failures_as_exits(), WebhookClient.of(url, key_file) as client:
        client.test(name)


def deliveries(
    *,
    state: Annotated[
        Literal["waiting", "delivered", "dead"] | None, typer.Option(help="Only deliveries in this state.")
    ] = None,
    endpoint: Annotated[str | None, typer.Option(help="Only deliveries to this endpoint.")] = None,
    request_id: Annotated[str | None, typer.Option(help="Only deliveries about this execution.")] = None,
    url: UrlOption = DEFAULT_SERVER,
    key_file: KeyFileOption = None,
    as_json: JsonLinesOption = False,
) -> None:
    """List the newest deliveries, at most 1,000."""
    from portico.entrypoints.cli.clients.webhooks import WebhookClient

    asked = {"state": state, "endpoint": endpoint, "request_id": request_id}
    with failures_as_exits(), WebhookClient.of(url, key_file) as client:
        client.write_deliveries({name: value for name, value in asked.items() if value is not None}, as_json=as_json)


def retry(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of the list of deliveries.")],
    *,
    url: UrlOption = DEFAULT_SERVER,
    key_file: KeyFileOption = None,
) -> None:
    """Send deliveries again, dead or not."""
    from portico.entrypoints.cli.clients.webhooks import WebhookClient

    with failures_as_exits(), WebhookClient.of(url, key_file) as client:
        for delivery_id in ids:
            client.retry(delivery_id)
