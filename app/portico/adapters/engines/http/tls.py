"""Certificates that engines trust."""

import ssl
from functools import lru_cache


@lru_cache(maxsize=64)
def tls_context(ca_file: str | None = None) -> ssl.SSLContext:
    """Return a context that trusts the authorities of that file alone, or those of this machine.

    Those of this machine are OpenSSL's, so that `SSL_CERT_FILE` and `SSL_CERT_DIR` count. Reading them takes 20 ms.

    Raises: OSError, ssl.SSLError when the file cannot be read or has no certificates.
    """
    context = ssl.create_default_context(cafile=ca_file)
    context.set_alpn_protocols(["http/1.1"])
    return context
