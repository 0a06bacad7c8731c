"""Addresses that a tool must not reach, in all their forms."""

from ipaddress import ip_address

import pytest

from portico.adapters.http.address_guard import checked_addresses, is_refused
from portico.ports.tool import ToolError

PRIVATE = ["127.0.0.1", "127.8.8.8", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "::1", "fd12::1"]
NEVER = [
    *("169.254.169.254", "169.254.0.1", "100.64.0.1", "100.100.100.200", "168.63.129.16", "0.1.2.3"),
    *("224.0.0.1", "255.255.255.255", "240.0.0.1", "198.18.0.1", "192.0.2.1", "192.0.0.192"),
    *("fe80::1", "fe80::a9fe:a9fe", "ff02::1", "fd00:ec2::254", "::", "2001:db8::1", "2001::1", "fec0::1", "100::1"),
]
TRANSLATED = [
    *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "::127.0.0.1", "::ffff:0:10.0.0.1"),
    *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "2002:7f00:1::", "2002:a9fe:a9fe::1"),
]
PUBLIC = [
    "1.1.1.1",
    "93.184.215.14",
    "172.32.0.1",
    "168.63.129.17",
    "2606:4700::1111",
    "::ffff:1.1.1.1",
    "64:ff9b::808:808",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_is_reached_only_if_that_is_allowed(address: str) -> None:
    assert is_refused(ip_address(address), allow_private=False)
    assert not is_refused(ip_address(address), allow_private=True)


@pytest.mark.parametrize("address", [*NEVER, *TRANSLATED])
def test_other_addresses_and_translations_of_private_ones_are_never_reached(address: str) -> None:
    assert is_refused(ip_address(address), allow_private=False)
    assert is_refused(ip_address(address), allow_private=True)


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_reached(address: str) -> None:
    assert not is_refused(ip_address(address), allow_private=False)


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "127.1", "localhost", "[::1]", "0177.0.0.1"])
async def test_another_spelling_of_loopback_is_refused(host: str) -> None:
    with pytest.raises(ToolError, match=r"^the host has (an address that tools must not reach|no address)$"):
        await checked_addresses(host, 80, allow_private=False)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 300, "xn--\u00fc.invalid", ""])
async def test_a_host_without_an_address_is_an_error(host: str) -> None:
    with pytest.raises(ToolError):
        await checked_addresses(host, 80, allow_private=False)
