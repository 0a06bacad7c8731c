"""Detection of an Ollama server on this machine."""

import json
from http.client import HTTPConnection, HTTPException

OLLAMA_PORT = 11434
_SECONDS = 1.0
_BYTES = 2**20


def find_ollama_model(port: int = OLLAMA_PORT) -> str | None:
    """Return the newest model of the Ollama server on this machine; None if there is no server or no model."""
    connection = HTTPConnection("127.0.0.1", port, timeout=_SECONDS)
    try:
        connection.request("GET", "/api/tags")
        found = json.loads(connection.getresponse().read(_BYTES))["models"][0]["name"]
    except (OSError, HTTPException, ValueError, LookupError, TypeError):
        return None
    finally:
        connection.close()
    return found if isinstance(found, str) else None
