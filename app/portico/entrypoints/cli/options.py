"""Options that several commands have."""

from pathlib import Path
from typing import Annotated, Final

import typer

ConfigOption = Annotated[
    Path | None, typer.Option(help="Configuration file. Default: PORTICO_CONFIG, else portico.toml in this directory.")
]
DEFAULT_SERVER: Final = "http://127.0.0.1:8080"


def _url(text: str) -> str:
    import httpx2  # noqa: PLC0415 - the description of the option needs no client

    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL:
        raise typer.BadParameter("must be a URL such as https://portico.example.com") from None
    if url.scheme not in {"http", "https"} or not url.host or url.userinfo or url.query or url.fragment:
        raise typer.BadParameter("must be a URL such as https://portico.example.com, without user, query or fragment")
    return text


def _optional_url(text: str | None) -> str | None:
    return None if text is None else _url(text)


UrlOption = Annotated[str, typer.Option("--url", envvar="PORTICO_URL", callback=_url, help="URL of the server.")]
RemoteOption = Annotated[
    str | None, typer.Option("--url", callback=_optional_url, help="URL of a server that runs it, instead of here.")
]
KeyFileOption = Annotated[
    Path | None, typer.Option("--key-file", help="File of the key for the server. Default: the key of PORTICO_KEY.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Write nothing but failures to standard error.")]
JsonLinesOption = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
