"""Tables of credentials: what each type has, and where a credential may go."""

from pathlib import Path

import pytest

from portico.domain.failures import ConfigurationFailure
from portico.settings import Settings, load_settings

SECRET = '[credentials.tracker]\ntype = "secret"\n'
CLIENT = '[credentials.c]\ntype = "client_credentials"\ntoken_url = "https://id.example/token"\nclient_id = "p"\n'
CLIENT += 'client_secret_env = "A_SECRET"\n'
HTTP = '[tools.http.t]\ndescription = "T"\nurl = "https://t.example/x"\ncredential = "tracker"\n'
MCP = '[tools.mcp.t]\nurl = "https://t.example/mcp"\ncredential = "tracker"\n'


def settings_of(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "portico.toml"
    path.write_text(text)
    return load_settings({"A_SECRET": "a-long-secret", "SHORT": "short"}, path, local_model=lambda: None)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('[credentials.x]\ntype = "password"\n', "credentials.x.type"),
        (SECRET + 'format = "Bearer"\n', "format"),
        (SECRET + 'header = "Host"\n', "header"),
        (SECRET + 'owners = ["service"]\n', "value_env or value_file"),
        (SECRET + 'owners = ["user"]\nvalue_env = "A_SECRET"\n', "owners must name service"),
        (SECRET + 'value_env = "SHORT"\n', "8 to 8192 characters"),
        (SECRET + 'request_header = "X-Token"\n', "request_header has no meaning"),
        ('[credentials.x]\ntype = "request"\n', "request_header"),
        *(
            (f'[credentials.x]\ntype = "request"\nrequest_header = "{header}"\n', "request_header")
            for header in ("Authorization", "cookie", "Host", "Idempotency-Key", "portico-user")
        ),
        (CLIENT.replace("https", "http"), "token_url"),
        (CLIENT.replace('client_id = "p"\n', ""), "client_id"),
        (CLIENT.replace('client_secret_env = "A_SECRET"\n', ""), "client_secret_env or client_secret_file"),
        (HTTP, "tools.http.t.credential"),
        (SECRET + HTTP.replace("https", "http"), "tools.http.t.url"),
        (SECRET + HTTP + 'headers = { authorization = "x" }\n', "tools.http.t.headers"),
        (SECRET + MCP, "tools.mcp.t.credential"),
        (CLIENT + MCP.replace("tracker", "c").replace("https", "http"), "tools.mcp.t.url"),
        (SECRET + '[storage]\nurl = "postgresql://db/portico"\n', "secrets.key_file"),
        (SECRET + '[tools.cli.t]\ndescription = "T"\ncommand = ["id"]\ncredentials = { T = "x" }\n', "credentials.T"),
        (SECRET + '[tools.mcp.t]\ncommand = ["id"]\ncredential = "tracker"\n', "credential has no meaning"),
    ],
)
def test_a_table_that_cannot_be_is_refused(tmp_path: Path, text: str, found: str) -> None:
    with pytest.raises(ConfigurationFailure) as refused:
        settings_of(tmp_path, text)
    assert refused.value.code == "CONFIG_INVALID"
    assert found in refused.value.message
    assert "a-long-secret" not in refused.value.message


def test_tables_have_their_defaults(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, SECRET + HTTP + CLIENT + MCP.replace("tracker", "c").replace("mcp.t", "mcp.m"))
    table = settings.credentials["tracker"]
    assert (table.header, table.format, table.owners) == (
        "Authorization",
        "Bearer {value}",
        ("user", "tenant", "service"),
    )
    own = '[credentials.s]\ntype = "secret"\nowners = ["service"]\nvalue_env = "A_SECRET"\n'
    postgres = settings_of(tmp_path, own + CLIENT + '[storage]\nurl = "postgresql://db/portico"\n')
    read = postgres.credentials["s"].service_value()
    assert read is not None
    assert read() == "a-long-secret"


def test_a_token_url_on_loopback_may_be_http(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, CLIENT.replace("https://id.example", "http://127.0.0.1:9"))
    assert settings.credentials["c"].token_url == "http://127.0.0.1:9/token"
