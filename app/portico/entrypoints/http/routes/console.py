"""`/console`: the files of the console, which are public and hold no data."""

from collections.abc import Mapping
from types import MappingProxyType

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from portico.entrypoints.http.console.assets import Asset, console_assets, console_file

CONSOLE = "/console"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "Content-Security-Policy": _POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Vary": "Accept-Encoding",
    }
)
_FOREVER = "public, max-age=31536000, immutable"


def console_routes() -> list[BaseRoute]:
    """Return the routes of the files. Links between the files are relative, for a gateway's path prefix.

    Files are read and compressed in a thread, since that takes time.
    """

    async def redirect(_request: Request) -> Response:
        return Response(status_code=308, headers={**_HEADERS, "Location": "console/"})

    def show_index(request: Request) -> Response:
        assets = console_assets()
        etag = f'"{assets.digest}"'
        headers = {"Cache-Control": "no-cache", "ETag": etag}
        known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
        if etag in known or "*" in known:
            return Response(status_code=304, headers={**_HEADERS, **headers})
        return _response(request, assets.index, headers)

    def show_file(request: Request) -> Response:
        assets, path = console_assets(), request.path_params["path"]
        if path not in assets.sources or request.path_params["digest"] != assets.digest:
            request.scope["route"] = entrance
            raise HTTPException(404)
        return _response(request, console_file(path), {"Cache-Control": _FOREVER})

    entrance = Route(CONSOLE, redirect)
    return [entrance, Route(f"{CONSOLE}/", show_index), Route(f"{CONSOLE}/{{digest}}/{{path:path}}", show_file)]


def _response(request: Request, asset: Asset, headers: Mapping[str, str]) -> Response:
    accepted = _accepts_gzip(request.headers.get("accept-encoding", ""))
    encoding = {"Content-Encoding": "gzip"} if accepted else {}
    body = asset.compressed if accepted else asset.plain
    return Response(body, media_type=asset.media_type, headers={**_HEADERS, **headers, **encoding})


def _accepts_gzip(header: str) -> bool:
    """Return True if the client accepts gzip; a weight of zero refuses it [RFC 9110]."""
    for part in header.lower().split(","):
        coding, _, weight = part.partition(";")
        if coding.strip() in {"gzip", "*"}:
            return weight.replace(" ", "").removeprefix("q=") not in {"0", "0.0", "0.00", "0.000"}
    return False
