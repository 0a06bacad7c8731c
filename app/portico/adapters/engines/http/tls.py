"""Certificates that engines trust."""

import ssl
from functools import lru_cache


@lru_cache(maxsize=64)
def tls_context(ca_file: str) -> ssl.SSLContext:
    """Return a context that trusts the authorities of that file alone.

    Raises: OSError, ssl.SSLError when the file cannot be read or has no certificates.
    """
    context = ssl.create_default_context(cafile=ca_file)
    context.set_alpn_protocols(["http/1.1"])
    return context
