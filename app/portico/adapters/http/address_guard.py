"""Guard of addresses: nothing reaches the service's own network through a name that a model, a tenant or a reply chose.

A host is resolved once for each hop, all of its addresses are checked, and the connection is made to a checked address,
so that a second resolution cannot give another one. `is_global` alone is not enough: it is true for an address inside
of which a translator finds a private one, and for the metadata services of two clouds.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from socket import SOCK_STREAM
from typing import Final

import anyio

from portico.ports.tool import ToolError

Address = IPv4Address | IPv6Address

_NEVER: Final = (
    IPv4Network("0.0.0.0/8"),
    IPv4Network("100.64.0.0/10"),
    IPv4Network("168.63.129.16/32"),
    IPv4Network("169.254.0.0/16"),
    IPv4Network("192.0.0.0/24"),
    IPv6Network("fd00:ec2::254/128"),
    IPv6Network("fe80::/10"),
    IPv6Network("fec0::/10"),
    IPv6Network("2001::/32"),
)
"""This network, shared address space, link-local and site-local addresses, Teredo, and other metadata services."""
_PRIVATE: Final = (
    IPv4Network("127.0.0.0/8"),
    IPv4Network("10.0.0.0/8"),
    IPv4Network("172.16.0.0/12"),
    IPv4Network("192.168.0.0/16"),
    IPv6Network("::1/128"),
    IPv6Network("fc00::/7"),
)
_TRANSLATED: Final = (
    (IPv6Network("::ffff:0:0/96"), 0),
    (IPv6Network("::ffff:0:0:0/96"), 0),
    (IPv6Network("::/96"), 0),
    (IPv6Network("64:ff9b::/96"), 0),
    (IPv6Network("64:ff9b:1::/48"), 0),
    (IPv6Network("2002::/16"), 80),
)
"""Networks whose addresses stand for an IPv4 address, and by how many bits that is shifted to the left."""


async def checked_addresses(host: str, port: int, *, allow_private: bool) -> Sequence[str]:
    """Return the addresses of a host. Raises: ToolError if it has none, or one that a tool must not reach."""
    try:
        found = await anyio.getaddrinfo(host, port, type=SOCK_STREAM)
    except (OSError, UnicodeError) as cause:
        raise ToolError("the host has no address") from cause
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    if any(is_refused(ip_address(each), allow_private=allow_private) for each in addresses):
        raise ToolError("the host has an address that tools must not reach")
    return addresses


def is_refused(address: Address, *, allow_private: bool) -> bool:
    """Return True for an address that a tool must not reach.

    With `allow_private` loopback and private networks may be reached, but not through an address that stands for one.
    """
    if isinstance(address, IPv6Address) and (inner := _embedded(address)) is not None:
        return is_refused(inner, allow_private=False)
    if address.is_multicast or _is_in(address, _NEVER):
        return True
    if _is_in(address, _PRIVATE):
        return not allow_private
    return not address.is_global


def _is_in(address: Address, networks: Sequence[IPv4Network | IPv6Network]) -> bool:
    return any(network.version == address.version and address in network for network in networks)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address stands for; None for the loopback address and any other."""
    if address == IPv6Address("::1"):
        return None
    for network, shift in _TRANSLATED:
        if address in network:
            return IPv4Address(int(address) >> shift & 0xFFFFFFFF)
    return None
