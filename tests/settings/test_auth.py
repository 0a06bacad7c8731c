"""Settings of authentication: the key file, and the issuer of tokens."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from portico.domain.access.api_key import ApiKey
from portico.domain.failures import ConfigurationFailure
from portico.settings import Settings, load_settings
from tests.support.another_user import as_ordinary_user

KEY = "ptk_abcd1234_" + "s" * 43
ISSUER = {
    "auth.mode": "jwt",
    "auth.issuer": "https://id.example.org/",
    "auth.audience": "portico",
    "auth.jwks_url": "https://id.example.org/keys",
}


def load(**changes: object) -> Settings:
    given = {name.replace("__", "."): value for name, value in changes.items()}
    return load_settings({}, overrides=given, local_model=lambda: None)


def refusal(**changes: object) -> str:
    with pytest.raises(ConfigurationFailure) as caught:
        load(**changes)
    return caught.value.message


def test_a_bootstrap_key_file_holds_one_key(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    assert load(auth__mode="keys", auth__bootstrap_key_file=str(file)).auth.bootstrap_key_file == str(file)


@pytest.mark.parametrize("text", ["", "secret", KEY[:-1], f"{KEY}s", f"{KEY}\n{KEY}", KEY.upper(), "ptk_\xff"])
def test_any_other_content_of_it_is_refused_without_a_quote(tmp_path: Path, text: str) -> None:
    file = tmp_path / "key"
    file.write_text(text, encoding="latin-1")
    message = refusal(auth__mode="keys", auth__bootstrap_key_file=str(file))
    assert message.startswith("auth.bootstrap_key_file: names a file that must contain one key")
    assert not text or text not in message


def test_a_key_file_that_is_missing_or_useless_is_refused(tmp_path: Path) -> None:
    assert "cannot be read" in refusal(auth__mode="keys", auth__bootstrap_key_file=str(tmp_path / "none"))
    file = tmp_path / "key"
    file.write_text(KEY)
    assert "has no meaning" in refusal(auth__bootstrap_key_file=str(file))


def test_a_key_file_that_may_not_be_read_is_named_with_user_owner_and_mode() -> None:
    owner = os.geteuid()
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = Path(folder) / "key"
        file.write_text(KEY)
        file.chmod(0o000)
        with as_ordinary_user() as user:
            message = refusal(auth__mode="keys", auth__bootstrap_key_file=str(file))
    expected = f"names a file that user {user} cannot read: it belongs to user {owner} and has mode 0000"
    assert message == f"auth.bootstrap_key_file: {expected}"


def test_a_bootstrap_key_comes_from_a_variable(tmp_path: Path) -> None:
    overrides = {"auth.mode": "keys", "auth.bootstrap_key_env": "PORTICO_KEY"}
    settings = load_settings({"PORTICO_KEY": f"{KEY}\n"}, overrides=overrides, local_model=lambda: None)
    assert settings.auth.bootstrap_key_env == ApiKey.parse(KEY)
    assert KEY not in settings.model_dump_json() + repr(settings)
    file = tmp_path / "key"
    file.write_text(KEY)
    with pytest.raises(ConfigurationFailure, match="bootstrap_key_env: excludes"):
        load_settings({"PORTICO_KEY": KEY}, overrides=overrides | {"auth.bootstrap_key_file": str(file)})
    with pytest.raises(ConfigurationFailure, match="bootstrap_key_env: has no meaning"):
        load_settings({"PORTICO_KEY": KEY}, overrides=overrides | {"auth.mode": "none"})


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, 'PORTICO_KEY is not set; make a key with "portico keys generate"'),
        ({"PORTICO_KEY": ""}, 'PORTICO_KEY is not set; make a key with "portico keys generate"'),
        ({"PORTICO_KEY": KEY[:-1]}, 'PORTICO_KEY must contain one key; make one with "portico keys generate"'),
    ],
)
def test_a_variable_without_a_key_is_named_with_the_way_out(environ: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigurationFailure) as caught:
        load_settings(environ, overrides={"auth.mode": "keys", "auth.bootstrap_key_env": "PORTICO_KEY"})
    assert caught.value.message == f"auth.bootstrap_key_env: {expected}"


def test_a_key_in_the_place_of_the_name_is_not_quoted() -> None:
    message = refusal(auth__mode="keys", auth__bootstrap_key_env=KEY)
    assert message == 'auth.bootstrap_key_env: the variable is not set; make a key with "portico keys generate"'


def test_tokens_need_issuer_audience_and_key_set() -> None:
    message = refusal(auth__mode="jwt")
    assert all(f"auth.{name}: must be set" in message for name in ("issuer", "audience", "jwks_url"))
    assert "auth.issuer: has no meaning" in refusal(auth__mode="keys", auth__issuer="https://id.example.org/")
    assert load(**ISSUER).auth.leeway == 60


@pytest.mark.parametrize(
    "url",
    [
        "http://id.example.org/keys",
        "http://10.0.0.1/keys",
        "ftp://id.example.org/keys",
        "file:///etc/keys",
        "https://user:secret@id.example.org/keys",
        "https:///keys",
        "keys",
    ],
)
def test_a_key_set_is_fetched_by_https_only(url: str) -> None:
    assert "auth.jwks_url: must be an https URL" in refusal(**{**ISSUER, "auth.jwks_url": url})


def test_a_key_set_on_loopback_may_be_fetched_without_tls() -> None:
    url = "http://127.0.0.1:9000/keys"
    assert load(**{**ISSUER, "auth.jwks_url": url}).auth.jwks_url == url


def test_symmetric_algorithms_cannot_be_configured() -> None:
    for name in ("HS256", "none", "RS512"):
        assert "auth.algorithms.0: must be" in refusal(**ISSUER, auth__algorithms=[name])
    assert load(**ISSUER, auth__algorithms=["ES256"]).auth.algorithms == ("ES256",)


def test_the_port_of_the_metrics_is_another_one() -> None:
    assert "server.metrics_port: must differ" in refusal(server__metrics_port=8080)
