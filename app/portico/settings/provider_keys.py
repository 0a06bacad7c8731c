"""Keys of providers in the environment, by the schemes of their engines."""

import os
from collections.abc import Sequence

from portico.ports.engine_schemes import SCHEMES


def schemes_with_keys() -> Sequence[str]:
    """Return the schemes of engines whose key is in the environment, in the order of preference."""
    return [name for name, scheme in SCHEMES.items() if scheme.api_key_env and os.environ.get(scheme.api_key_env)]
