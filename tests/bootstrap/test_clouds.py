"""Engines on clouds, built from settings: where they ask, and with which credentials."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from portico.adapters.engines.http.aiohttp_transport import open_session
from portico.adapters.system import SystemClock
from portico.bootstrap.engine_builders.build import EngineResources
from portico.bootstrap.engine_urls import server_url
from portico.bootstrap.engines import build_engine, engine_profile
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import Engine, EngineError
from portico.settings import Settings
from tests.adapters.engines.engine_calls import HI_REPLY, call
from tests.support.emulators.aws_frames import text_stream
from tests.support.upstream import ReceivedRequest, ScriptedUpstream, event_stream, reply

FRAMES = "application/vnd.amazon.eventstream"

OPENAI_REPLY = reply(json.dumps(HI_REPLY).encode())
GEMINI_REPLY = reply(
    json.dumps({"candidates": [{"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}]}).encode()
)
ANTHROPIC_REPLY = reply(
    json.dumps({"content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn", "usage": {}}).encode()
)


class Silent:
    """Implements `Progress`."""

    def text(self, piece: str) -> None: ...
    def reasoning(self, piece: str) -> None: ...
    def usage(self, usage: Any) -> None: ...


def settings_of(engine: Mapping[str, Any]) -> Settings:
    return Settings.model_validate({"engines": {"a": engine}}, context={"environ": {"KEY": "sk-1", "TOKEN": "token-1"}})


@asynccontextmanager
async def built(engine: Mapping[str, Any]) -> AsyncIterator[Engine]:
    async with AsyncExitStack() as stack, open_session() as session:
        resources = EngineResources(SystemClock(), session, stack, lambda _name, _frames: None)
        yield build_engine("a", settings_of(engine), resources)


async def answered(engine: Mapping[str, Any], *scripts: Any) -> ReceivedRequest:
    """Return the request that the engine sends for a call, once its answer was read."""
    async with ScriptedUpstream(*scripts) as upstream, built({**engine, "base_url": upstream.url}) as asked:
        answer = await asked.attempt(call(), Silent(), stream=False)
    assert answer.text == "Hi"
    return upstream.requests[-1]


@pytest.mark.parametrize(
    ("model", "url"),
    [
        ("azure://acme/mine", "https://acme.openai.azure.com/openai/v1"),
        ("bedrock://eu-west-1/amazon.nova-pro-v1:0", "https://bedrock-runtime.eu-west-1.amazonaws.com"),
        ("vertex://p-1/us-east5/claude-opus-5", "https://us-east5-aiplatform.googleapis.com/v1"),
        ("vertex://p-1/global/gemini-3-flash", "https://aiplatform.googleapis.com/v1"),
        ("vertex://p-1/us/gemini-3-flash", "https://aiplatform.us.rep.googleapis.com/v1"),
        ("vertex://p-1/eu/gemini-3-flash", "https://aiplatform.eu.rep.googleapis.com/v1"),
        (
            "vertex://p-1/global/meta/llama-4-maverick",
            "https://aiplatform.googleapis.com/v1/projects/p-1/locations/global/endpoints/openapi",
        ),
    ],
)
def test_the_places_of_a_model_tell_its_server(model: str, url: str) -> None:
    assert server_url(settings_of({"model": model}).engines["a"]) == url


async def test_azure_is_sent_the_key_of_the_resource_and_the_name_of_the_deployment() -> None:
    asked = await answered({"model": "azure://acme/mine", "api_key_env": "KEY"}, OPENAI_REPLY)
    assert (asked.path, asked.headers["api-key"], asked.json()["model"]) == ("/chat/completions", "sk-1", "mine")
    assert "authorization" not in asked.headers


async def test_azure_is_asked_over_the_api_that_the_model_behind_a_name_speaks() -> None:
    async with ScriptedUpstream(reply(b"{}", status=500)) as upstream:
        engine = {"model": "azure://acme/mine", "known_as": "openai://gpt-5-codex", "base_url": upstream.url}
        async with built(engine) as asked:
            with pytest.raises(EngineError):
                await asked.attempt(call(), Silent(), stream=False)
    assert upstream.requests[-1].path == "/responses"


async def test_azure_takes_tokens_of_entra(monkeypatch: pytest.MonkeyPatch) -> None:
    token = {"access_token": "entra-1", "expires_on": "9999999999", "resource": "r", "token_type": "Bearer"}
    async with ScriptedUpstream(reply(json.dumps(token).encode())) as identity:
        monkeypatch.setenv("IDENTITY_ENDPOINT", identity.url)
        monkeypatch.setenv("IDENTITY_HEADER", "secret")
        asked = await answered({"model": "azure://acme/mine", "auth": "entra"}, OPENAI_REPLY)
    assert asked.headers["authorization"] == "Bearer entra-1"
    assert "api-key" not in asked.headers
    assert "resource=https://cognitiveservices.azure.com" in identity.requests[0].path


@pytest.fixture
def service_account(tmp_path: Path) -> dict[str, str]:
    key = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return {"type": "service_account", "client_email": "a@b.example", "private_key": key.decode()}


async def test_vertex_takes_tokens_of_what_google_auth_finds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, service_account: dict[str, str]
) -> None:
    file = tmp_path / "account.json"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    token = {"access_token": "google-1", "expires_in": 3600, "token_type": "Bearer"}
    async with ScriptedUpstream(reply(json.dumps(token).encode())) as issuer:
        file.write_text(json.dumps({**service_account, "token_uri": issuer.url}))
        claude = await answered({"model": "vertex://p-1/us-east5/claude-opus-5"}, ANTHROPIC_REPLY)
        llama = await answered({"model": "vertex://p-1/global/meta/llama-4-maverick"}, OPENAI_REPLY)
    assert claude.headers["authorization"] == "Bearer google-1"
    assert claude.path == "/projects/p-1/locations/us-east5/publishers/anthropic/models/claude-opus-5:rawPredict"
    assert claude.json()["anthropic_version"] == "vertex-2023-10-16"
    assert "model" not in claude.json()
    assert llama.path == "/projects/p-1/locations/global/endpoints/openapi/chat/completions"
    assert llama.json()["model"] == "meta/llama-4-maverick"


async def test_vertex_is_sent_a_configured_token_instead() -> None:
    asked = await answered({"model": "vertex://p-1/global/gemini-3-flash", "api_key_env": "TOKEN"}, GEMINI_REPLY)
    assert asked.headers["authorization"] == "Bearer token-1"


async def test_without_credentials_an_attempt_fails_for_them_and_sends_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    engine = {"model": "vertex://p-1/global/gemini-3-flash"}
    async with ScriptedUpstream(GEMINI_REPLY) as upstream, built({**engine, "base_url": upstream.url}) as asked:
        with pytest.raises(EngineError) as caught:
            await asked.attempt(call(), Silent(), stream=False)
    assert caught.value.reason is AttemptFailureReason.CREDENTIALS
    assert upstream.requests == []


CONVERSE_REPLY = reply(
    json.dumps({"output": {"message": {"content": [{"text": "Hi"}]}}, "stopReason": "end_turn"}).encode()
)
BEDROCK = {"model": "bedrock://eu-west-1/eu.anthropic.claude-sonnet-4-5-20250929-v1:0"}


def signature_of(asked: ReceivedRequest, secret: str) -> str:
    """The signature that botocore gives a request with these headers."""
    names = asked.headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    headers = {name: asked.headers[name] for name in names}
    request = AWSRequest(asked.method, f"http://{asked.headers['host']}{asked.path}", headers, asked.body)
    request.context["timestamp"] = asked.headers["x-amz-date"]
    signer = SigV4Auth(Credentials("AKIA1", secret), "bedrock", "eu-west-1")
    return str(signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request))


async def test_bedrock_is_sent_requests_that_botocore_would_sign_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-1")
    asked = await answered({**BEDROCK, "headers": {"X-Team": "a  b"}}, CONVERSE_REPLY)
    assert asked.path == "/model/eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse"
    signed = asked.headers["authorization"]
    assert signed.startswith("AWS4-HMAC-SHA256 Credential=AKIA1/")
    assert signed.endswith(f"Signature={signature_of(asked, 'secret-1')}")
    assert "SignedHeaders=content-type;host;x-amz-date;x-team" in signed
    assert signature_of(asked, "secret-1") != signature_of(asked, "secret-2")


async def test_bedrock_takes_an_api_key_instead() -> None:
    asked = await answered({**BEDROCK, "api_key_env": "TOKEN"}, CONVERSE_REPLY)
    assert asked.headers["authorization"] == "Bearer token-1"


async def test_credentials_that_aws_calls_expired_are_replaced_for_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=3600)).isoformat()
    found = [{"AccessKeyId": f"AKIA{n}", "SecretAccessKey": "s", "Token": f"t{n}", "Expiration": soon} for n in (1, 2)]
    whole = event_stream(text_stream("Hel", "lo"), content_type=FRAMES)
    expired = reply(b'{"message": "expired"}', status=403, headers={"x-amzn-errortype": "ExpiredTokenException"})
    async with ScriptedUpstream(*(reply(json.dumps(each).encode()) for each in found)) as metadata:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", metadata.url)
        async with (
            ScriptedUpstream(whole, expired, whole) as upstream,
            built({**BEDROCK, "base_url": upstream.url}) as asked,
        ):
            first = await asked.attempt(call(), Silent(), stream=True)
            with pytest.raises(EngineError) as caught:
                await asked.attempt(call(), Silent(), stream=True)
            last = await asked.attempt(call(), Silent(), stream=True)
    assert (first.text, first.usage.input_tokens, last.text) == ("Hello", 17, "Hello")
    assert caught.value.reason is AttemptFailureReason.CREDENTIALS
    tokens = [each.headers["x-amz-security-token"] for each in upstream.requests]
    assert tokens == ["t1", "t1", "t2"]


@pytest.mark.parametrize(
    ("model", "caches"),
    [
        ("eu.anthropic.claude-sonnet-4-5-20250929-v1:0", True),
        ("amazon.nova-pro-v1:0", True),
        ("meta.llama3-3-70b-instruct-v1:0", False),
        ("acme.unknown-v1:0", False),
    ],
)
def test_bedrock_is_asked_to_cache_only_for_models_whose_cached_input_is_known_to_cost_less(
    model: str, caches: bool
) -> None:
    profile = engine_profile("a", settings_of({"model": f"bedrock://eu-west-1/{model}"}))
    assert profile.caches_prompts is caches
    assert (profile.capabilities.schema, profile.capabilities.forced_calls) == (False, False)


@pytest.mark.parametrize(
    ("model", "schema", "forced_calls"),
    [
        ("vertex://p/global/gemini-3-flash", True, True),
        ("vertex://p/global/claude-opus-5", False, False),
        ("vertex://p/global/meta/llama-4-maverick", False, True),
    ],
)
def test_models_of_vertex_have_the_capabilities_of_their_api(model: str, schema: bool, forced_calls: bool) -> None:
    capabilities = engine_profile("a", settings_of({"model": model})).capabilities
    assert (capabilities.schema, capabilities.forced_calls) == (schema, forced_calls)


def test_a_model_of_azure_is_known_by_the_name_that_is_configured() -> None:
    plain = engine_profile("a", settings_of({"model": "azure://acme/gpt-4o-mini"}))
    known = engine_profile("a", settings_of({"model": "azure://acme/x", "known_as": "openai://gpt-4o-mini"}))
    assert (plain.price, plain.known) == (None, ())
    assert known.price is not None
    assert (known.price.input, known.known, known.caches_prompts) == (0.15, ("context_window", "price"), True)


def test_a_key_and_entra_exclude_each_other() -> None:
    with pytest.raises(ValueError, match=r"engines\.a\.auth: must not be set together with engines\.a\.api_key_env"):
        settings_of({"model": "azure://acme/mine", "auth": "entra", "api_key_env": "KEY"})


CLOUD_PACKAGES = """
import sys
from portico.settings import Settings
from portico.bootstrap.service import open_service
Settings.model_validate({"engines": {"a": %r}})
print(*sorted({"botocore", "azure.identity", "google.auth"} & sys.modules.keys()))
"""


@pytest.mark.parametrize(
    "engine",
    [
        {"model": "openai://gpt-4o-mini"},
        {"model": "azure://acme/mine", "auth": "entra"},
        {"model": "vertex://p/global/gemini-3-flash"},
        {"model": "bedrock://eu-west-1/amazon.nova-pro-v1:0"},
    ],
)
def test_packages_of_clouds_are_imported_for_no_other_engine_and_not_by_the_settings(engine: dict[str, str]) -> None:
    listed = subprocess.run([sys.executable, "-c", CLOUD_PACKAGES % engine], capture_output=True, text=True, check=True)
    assert listed.stdout.strip() == ""


BUILT_PACKAGES = """
import asyncio, sys
from contextlib import AsyncExitStack
from portico.adapters.engines.http.aiohttp_transport import open_session
from portico.adapters.system import SystemClock
from portico.bootstrap.engine_builders.build import EngineResources
from portico.bootstrap.engines import build_engine
from portico.settings import Settings
settings = Settings.model_validate({"engines": {"a": %r}}, context={"environ": {"TOKEN": "t"}})
async def main():
    async with AsyncExitStack() as stack, open_session() as session:
        build_engine("a", settings, EngineResources(SystemClock(), session, stack, print))
asyncio.run(main())
print(*sorted({"botocore", "azure.identity", "google.auth"} & sys.modules.keys()))
"""


@pytest.mark.parametrize(
    ("engine", "packages"),
    [
        ({"model": "openai://gpt-4o-mini"}, ""),
        ({"model": "azure://acme/mine"}, ""),
        ({"model": "azure://acme/mine", "auth": "entra"}, "azure.identity"),
        ({"model": "vertex://p/global/gemini-3-flash"}, "google.auth"),
        ({"model": "bedrock://eu-west-1/amazon.nova-pro-v1:0"}, "botocore"),
        ({"model": "vertex://p/global/gemini-3-flash", "api_key_env": "TOKEN"}, ""),
    ],
)
def test_an_engine_imports_the_packages_of_its_cloud_alone(engine: dict[str, str], packages: str) -> None:
    listed = subprocess.run(
        [sys.executable, "-c", BUILT_PACKAGES % engine],
        capture_output=True, text=True, check=True, env={"PYTHONPATH": ".:app"},
    )  # fmt: skip
    assert listed.stdout.strip() == packages


MISSING_PACKAGES = """
import sys
for name in ("azure", "azure.identity", "google.auth", "botocore"):
    sys.modules[name] = None
from portico.domain.failures import ConfigurationFailure
from portico.settings import load_settings
from pathlib import Path
try:
    load_settings({}, Path(sys.argv[1]), local_model=lambda: None)
except ConfigurationFailure as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ('model = "azure://acme/mine"\nauth = "entra"', "engines.a.auth: install portico[azure]"),
        ('model = "vertex://p/global/gemini-3-flash"', "engines.a.model: install portico[google]"),
        ('model = "bedrock://eu-west-1/amazon.nova-pro-v1:0"', "engines.a.model: install portico[aws]"),
        ('model = "azure://acme/mine"', ""),
    ],
)
def test_a_missing_extra_is_named(tmp_path: Path, engine: str, message: str) -> None:
    file = tmp_path / "portico.toml"
    file.write_text(f"[engines.a]\n{engine}\n")
    printed = subprocess.run(
        [sys.executable, "-c", MISSING_PACKAGES, str(file)], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip().removeprefix("CONFIG_INVALID: ") == message
