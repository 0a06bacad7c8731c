"""Files of the console: read at the first request, and named by one digest, so that a browser never mixes versions."""

import gzip
import re
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Final

from portico.domain.value import value

_MEDIA_TYPES: Final = MappingProxyType(
    {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
)
_VENDORED: Final = "vendor/"
_COMMENT: Final = re.compile(r"/\*\*?\s.*?\*/|^// @ts-check$", re.DOTALL | re.MULTILINE)
_SPACE_OF_STYLES: Final = re.compile(r"\s*([{};,])\s*")
_INDENTATION: Final = re.compile(r"^[ \t]+", re.MULTILINE)
_INDEX: Final = "index.html"
_FIRST: Final = ("app.js", "pages/executions.js")
"""Modules of the first page; the browser fetches what they import at once instead of one after the other."""


@value
class Asset:
    """One file as it is sent: plain, and compressed with gzip."""

    media_type: str
    plain: bytes
    compressed: bytes


@value
class Assets:
    """All files of the console as they are installed, by their paths. The index names the digest of the others."""

    digest: str
    index: Asset
    sources: Mapping[str, bytes]


@cache
def console_assets() -> Assets:
    """Return all files, which are read at the first call."""
    found = dict(sorted(_read(files(__package__) / "static", "")))
    digest = sha256()
    for path, content in found.items():
        digest.update(b"%b\0%d\0%b" % (path.encode(), len(content), content))
    name = digest.hexdigest()[:32]
    index = _index(found.pop(_INDEX).decode(), name, found)
    served = {path: content for path, content in found.items() if path.rpartition(".")[2] in _MEDIA_TYPES}
    return Assets(name, _asset("text/html; charset=utf-8", index), MappingProxyType(served))


@cache
def console_file(path: str) -> Asset:
    """Return a file below the digest. Raises: KeyError."""
    content = console_assets().sources[path]
    return _asset(_MEDIA_TYPES[path.rpartition(".")[2]], _compact(path, content))


def first_modules(found: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return the paths of all modules that the first page imports, in the order in which they are met."""
    met: dict[str, None] = {}
    waiting = list(_FIRST)
    while waiting:
        path = waiting.pop(0)
        if path not in met:
            met[path] = None
            waiting += _imports(path, found[path].decode())
    return tuple(met)


def _imports(path: str, text: str) -> Iterator[str]:
    """Yield the paths that the module imports when it is loaded."""
    for line in text.splitlines():
        if line.startswith(("import ", "export ", "} from ")) and ' from "' in line:
            parts = path.split("/")[:-1]
            for step in line.rpartition(' from "')[2].rstrip('";').split("/"):
                if step == "..":
                    parts.pop()
                elif step != ".":
                    parts.append(step)
            yield "/".join(parts)


def _index(template: str, digest: str, found: Mapping[str, bytes]) -> bytes:
    links = "".join(f'<link rel="modulepreload" href="{digest}/{path}">\n' for path in first_modules(found))
    return template.replace("{digest}", digest).replace("{preload}", links).encode()


def _compact(path: str, content: bytes) -> bytes:
    """Return a file of our own without its types for the checker, its comments and needless space."""
    if path.startswith(_VENDORED):
        return content
    text = _INDENTATION.sub("", _COMMENT.sub("", content.decode()))
    if path.endswith(".css"):
        return _SPACE_OF_STYLES.sub(r"\1", text).encode()
    return re.sub(r"\n+", "\n", text).encode()


def _asset(media_type: str, content: bytes) -> Asset:
    return Asset(media_type, content, gzip.compress(content, mtime=0))


def _read(directory: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in directory.iterdir():
        if entry.is_dir():
            yield from _read(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry.read_bytes()
