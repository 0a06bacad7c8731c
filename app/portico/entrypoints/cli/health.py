"""Command `portico health`: ask the server of this machine whether it lives, with the standard library alone.

A supervisor runs it every few seconds, so it costs little more than the start of Python: it reads the address from the
environment and the configuration file without the service's settings.
"""

import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

HEALTH_SECONDS: Final = 2.0
_SUCCESS: Final = 200
_EVERY_ADDRESS: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared, not bound


def run_health(arguments: Sequence[str]) -> int | None:
    """Run the command with the words after `portico`, and return its exit code.

    Return None for any other command, and for options that the command line explains.
    """
    match arguments:
        case ["health"]:
            return check_health(None)
        case ["health", "--url", url]:
            return check_health(url)
    return None


def check_health(url: str | None) -> int:
    """Return 0 if the server at this URL, or the configured one, answers within 2 s; else 1, after one line why."""
    try:
        url = url or _configured_url(os.environ)
        problem = liveness_problem(url)
    except (OSError, ValueError) as error:
        problem = str(error)
    if problem is not None:
        sys.stderr.write(f"{url or 'portico health'}: {problem}\n")
    return 0 if problem is None else 1


def liveness_problem(url: str) -> str | None:
    """Return why the server at this URL is not alive, None if it is. Raises: ValueError for what is no URL."""
    try:
        status, is_ours = _ask(url)
    except TimeoutError:
        return f"no answer within {HEALTH_SECONDS:g} s"
    except (OSError, HTTPException) as error:
        return f"no answer: {getattr(error, 'strerror', None) or type(error).__name__}"
    return None if status == _SUCCESS or is_ours else f"the answer is {status}"


def is_portico(host: str, port: int) -> bool:
    """Return whether what listens there is a server of ours."""
    try:
        return _ask(_url(host, port))[1]
    except (OSError, HTTPException):
        return False


def _ask(url: str) -> tuple[int, bool]:
    """Return the status of the answer about liveness, and whether it is that of a server of ours.

    A server of ours lives, though it may refuse the host; every answer of it has two headers. Raises: OSError,
    HTTPException; ValueError for what is no URL.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("must be an http or https URL")
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=HEALTH_SECONDS)
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}/livez", headers={"Connection": "close"})
        answer = connection.getresponse()
        return answer.status, "x-request-id" in answer.headers and "traceparent" in answer.headers
    finally:
        connection.close()


def _configured_url(environ: Mapping[str, str]) -> str:
    """Return the URL of the server that this environment and its file configure.

    Raises: OSError, ValueError for a file that cannot be read.
    """
    file = Path(environ.get("PORTICO_CONFIG") or "portico.toml")
    table: Mapping[str, Any] = {}
    if environ.get("PORTICO_CONFIG") or file.exists():
        table = tomllib.loads(file.read_text(encoding="utf-8")).get("server", {})
    port = environ.get("PORTICO__SERVER__PORT") or table.get("port", 8080)
    return _url(environ.get("PORTICO__SERVER__HOST") or table.get("host", ""), port)


def _url(host: str, port: int | str) -> str:
    host = "127.0.0.1" if host in _EVERY_ADDRESS else host
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
