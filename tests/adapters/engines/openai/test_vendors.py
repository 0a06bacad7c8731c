"""The table of vendors: a host finds its row, and no other host does."""

import pytest

from portico.adapters.engines.openai.vendors import VENDORS, vendor_of


@pytest.mark.parametrize(
    ("base_url", "vendor"),
    [
        (None, "openai"),
        ("https://api.openai.com/v1", "openai"),
        ("https://eu.api.openai.com/v1", "openai"),
        ("https://API.GROQ.COM/openai/v1", "groq"),
        ("https://mine.openai.azure.com/openai/v1", "azure"),
        ("https://openrouter.ai/api/v1", "openrouter"),
        ("https://api.together.xyz/v1", "together"),
        ("http://127.0.0.1:8000/v1", "generic"),
        ("https://notapi.openai.com.example/v1", "generic"),
        ("https://myopenrouter.ai/v1", "generic"),
    ],
)
def test_the_host_of_a_server_tells_its_vendor(base_url: str | None, vendor: str) -> None:
    assert vendor_of(base_url) == vendor


def test_every_host_belongs_to_one_vendor() -> None:
    hosts = [host for vendor in VENDORS.values() for host in vendor.hosts]
    assert len(hosts) == len(set(hosts))


def test_an_unknown_server_is_not_believed_to_take_more_than_all_servers_take() -> None:
    generic = VENDORS["generic"]
    assert (generic.documents, generic.audio, generic.prompt_cache_key) == (False, False, False)
