"""The settings of an engine's connection: proxies of the environment and of an engine, certificates, headers."""

import traceback
from pathlib import Path

import pytest

from portico.domain.failures import Code, ConfigurationFailure
from portico.settings import Settings, load_settings
from portico.settings.tables.connection import ProxyEnvironment

CANARY = "sk-canary-7d1f"
HTTPS = "https://api.openai.com/v1"
PROXY = "http://proxy.example.com:3128"


def load(path: Path, keys: str = "", model: str = "openai://x", **environ: str) -> Settings:
    file = path / "portico.toml"
    file.write_text(f'[engines.primary]\nmodel = "{model}"\n{keys}')
    return load_settings(environ, file, local_model=lambda: None)


def proxy(path: Path, keys: str = "", url: str = HTTPS, **environ: str) -> str | None:
    settings = load(path, keys, **environ)
    return settings.proxy_for(settings.engines["primary"], url)


def refusal(path: Path, keys: str, **environ: str) -> str:
    with pytest.raises(ConfigurationFailure) as caught:
        proxy(path, keys, **environ)
    assert caught.value.code is Code.CONFIG_INVALID
    assert CANARY not in "".join(traceback.format_exception(caught.value)) + repr(caught.value.details)
    return caught.value.message


def test_the_environment_names_the_proxy_by_the_scheme_of_the_address(tmp_path: Path):
    environ = {"HTTPS_PROXY": PROXY, "HTTP_PROXY": "plain.example.com:80"}
    assert proxy(tmp_path, **environ) == PROXY
    assert proxy(tmp_path, url="http://models.example.com", **environ) == "http://plain.example.com:80"
    assert proxy(tmp_path, HTTP_PROXY=PROXY) is None
    assert proxy(tmp_path, ALL_PROXY=PROXY) is None


def test_a_variable_in_lower_case_takes_precedence(tmp_path: Path):
    assert proxy(tmp_path, HTTPS_PROXY="http://upper:1", https_proxy=PROXY) == PROXY
    assert proxy(tmp_path, HTTPS_PROXY=PROXY, https_proxy="") == PROXY
    assert proxy(tmp_path, HTTPS_PROXY=PROXY, NO_PROXY="x", no_proxy="openai.com") is None


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "[::1]"])
def test_the_environment_never_proxies_loopback(tmp_path: Path, host: str):
    assert proxy(tmp_path, url=f"http://{host}:11434", HTTP_PROXY=PROXY) is None
    assert proxy(tmp_path, f'proxy = "{PROXY}"', url=f"http://{host}:11434") == PROXY


@pytest.mark.parametrize(
    ("excluded", "is_direct"),
    [
        ("api.openai.com", True),
        ("openai.com", True),
        (".openai.com", True),
        ("example.org, OPENAI.com ", True),
        ("api.openai.com:8443", True),
        ("*", True),
        ("penai.com", False),
        ("api.openai.com:443", False),
        ("openai.com.example.org", False),
        ("", False),
        (",", False),
    ],
)
def test_hosts_in_no_proxy_are_reached_directly(excluded: str, is_direct: bool):
    environment = ProxyEnvironment.of({"HTTPS_PROXY": PROXY, "NO_PROXY": excluded})
    assert environment.proxy_for("https://api.openai.com:8443/v1") == (None if is_direct else PROXY)


def test_the_setting_replaces_the_environment(tmp_path: Path):
    setting = 'proxy = "https://user:pass@other.example.com"'
    environ = {"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}
    assert proxy(tmp_path, setting, **environ) == "https://user:pass@other.example.com"


def test_nothing_is_proxied_without_a_variable_or_a_setting(tmp_path: Path):
    assert proxy(tmp_path) is None
    assert Settings().proxy_for(Settings().engines["rehearsal"], HTTPS) is None


@pytest.mark.parametrize("value", ["socks5://proxy:1080", "http://", "http://a:99999", "http://proxy/path", "http://é"])
def test_a_value_that_is_not_a_proxy_is_refused_by_name(tmp_path: Path, value: str):
    assert refusal(tmp_path, "", HTTPS_PROXY=value).startswith("HTTPS_PROXY: must be the http or https URL of a proxy")
    assert refusal(tmp_path, "", https_proxy=value).startswith("HTTPS_PROXY: must be")
    assert refusal(tmp_path, f'proxy = "{value}"').startswith("engines.primary.proxy: must be the http or https URL")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("proxy = 3128", "proxy: must be the http or https URL of a proxy"),
        (f'proxy = "ftp://user:{CANARY}@proxy"', "proxy: must be the http or https URL of a proxy"),
        ('ca_file = "missing.pem"', "ca_file: names a file that cannot be read: No such file or directory"),
        ('ca_file = "\\u0000"', "ca_file: names a file that cannot be read"),
        ("ca_file = true", "ca_file: must be a string"),
        ("headers = 3", "headers: must be a table"),
        (f'headers = {{ "X Y" = "{CANARY}" }}', "headers.X Y: must be the name of an HTTP header"),
        (f'headers = {{ "" = "{CANARY}" }}', "must be the name of an HTTP header"),
        (f'headers = {{ Host = "{CANARY}" }}', "headers.Host: is set by Portico itself"),
        (f'headers = {{ content-length = "{CANARY}" }}', "headers.content-length: is set by Portico itself"),
        (f'headers = {{ X-A = "{CANARY}", x-a = "b" }}', "headers: must not name a header twice"),
        (f'headers = {{ X-A = "{CANARY}\\r\\nX-B: 1" }}', "headers.X-A: must be visible ASCII"),
        (f'headers = {{ X-A = " {CANARY}" }}', "headers.X-A: must be visible ASCII"),
        ('headers = { X-A = "" }', "headers.X-A: must be visible ASCII"),
        ("headers = { X-A = 3 }", "headers.X-A: must be visible ASCII"),
    ],
)
def test_a_wrong_value_names_the_key_and_is_not_repeated(tmp_path: Path, keys: str, message: str):
    assert message in refusal(tmp_path, keys)


@pytest.mark.parametrize("keys", [f'proxy = "{PROXY}"', 'ca_file = "/dev/null"', 'headers = { X-A = "b" }'])
def test_an_engine_without_a_connection_takes_no_such_key(tmp_path: Path, keys: str):
    key, _, _ = keys.partition(" ")
    with pytest.raises(ConfigurationFailure, match=f"engines.primary.{key}: has no meaning for rehearsal://"):
        load(tmp_path, keys, model="rehearsal://")


def test_headers_and_proxies_are_never_shown(tmp_path: Path):
    keys = f'proxy = "http://user:{CANARY}@proxy"\nheaders = {{ X-Key = "{CANARY}" }}'
    settings = load(tmp_path, keys, HTTPS_PROXY=f"http://user:{CANARY}@proxy")
    engine = settings.engines["primary"]
    assert engine.headers["X-Key"].read() == CANARY
    for view in (settings, engine, settings.model_dump(), settings.model_dump_json(), settings._proxies):
        assert CANARY not in f"{view!r} {view!s}"


def test_a_variable_sets_headers_as_json(tmp_path: Path):
    settings = load(tmp_path, PORTICO__ENGINES__PRIMARY__HEADERS=f'{{"X-Key": "{CANARY}"}}')
    assert settings.engines["primary"].headers["X-Key"].read() == CANARY
