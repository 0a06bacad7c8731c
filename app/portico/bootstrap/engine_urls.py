"""URLs of the servers that engines ask."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from portico.ports.engine_schemes import SCHEMES
from portico.settings import EngineSettings, ModelUrl

_VERTEX_HOSTS: Final[Mapping[str, str]] = MappingProxyType(
    {"global": "aiplatform", "us": "aiplatform.us.rep", "eu": "aiplatform.eu.rep"}
)
"""The beginning of the host of each location that has another one than `LOCATION-aiplatform`."""


def server_url(engine: EngineSettings) -> str:
    """Return the URL of the server that the engine asks; an empty one if it asks none."""
    scheme, address = SCHEMES[engine.model.scheme], engine.model.address
    if scheme.places:
        return (engine.base_url or _cloud_url(engine.model)) + _vertex_path(engine.model)
    return engine.base_url or (f"http://{address}" if address else scheme.base_url)


def _cloud_url(url: ModelUrl) -> str:
    """Return the URL of the server of a model of a cloud."""
    base = SCHEMES[url.scheme].base_url
    for name, place in zip(SCHEMES[url.scheme].places, url.places, strict=True):
        base = base.replace(name, place)
    if url.scheme != "vertex":
        return base
    _project, location = url.places
    return base.replace(f"{location}-aiplatform", _VERTEX_HOSTS.get(location, f"{location}-aiplatform"))


def _vertex_path(url: ModelUrl) -> str:
    """Return what Vertex AI has between the server's URL and the paths of a dialect of its own."""
    if url.scheme != "vertex" or url.model.startswith(("gemini-", "claude-")):
        return ""
    project, location = url.places
    return f"/projects/{project}/locations/{location}/endpoints/openapi"
