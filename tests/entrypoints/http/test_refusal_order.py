"""The order in which refusals of `POST /v1/execute` win before the facade is asked."""

import orjson
import pytest

from portico.adapters.access.api_keys import ApiKeys
from portico.adapters.access.authenticators import BearerAuthenticator
from tests.support.fake_service import FakeRunning, fake_app
from tests.support.http_server import request_bytes, running_server
from tests.support.keys import MemoryKeys, api_key, stored
from tests.support.virtual_time import VirtualClock

MAX_BYTES = 1_000
STATUSES = {"host": 400, "credentials": 401, "media": 415, "size": 413, "syntax": 400, "schema": 422, "header": 422}
MESSAGES = {
    "host": "Host header",
    "credentials": "a key or a token",
    "media": "Content-Type",
    "size": "larger than 1000 bytes",
    "syntax": "not acceptable JSON",
    "schema": "surprise",
    "header": "Idempotency-Key",
}
FAULTS = tuple(STATUSES)


def faulty(faults: tuple[str, ...]) -> bytes:
    """Return a request with all of these faults."""
    headers = {"Content-Type": "text/plain" if "media" in faults else "application/json"}
    if "host" in faults:
        headers["Host"] = "elsewhere.example"
    if "credentials" not in faults:
        headers["Authorization"] = f"Bearer {api_key().reveal()}"
    if "header" in faults:
        headers["Idempotency-Key"] = "two words"
    fields = {"request_id": "r-1", "messages": [{"role": "user", "content": "Hello"}]}
    fields |= {"surprise": 1} if "schema" in faults else {}
    fields |= {"metadata": {"key": "x" * MAX_BYTES}} if "size" in faults else {}
    body = orjson.dumps(fields)
    return request_bytes("POST", "/v1/execute", headers, body[:-1] if "syntax" in faults else body)


@pytest.mark.parametrize("first", range(len(FAULTS)), ids=FAULTS)
async def test_the_first_fault_decides_and_later_ones_do_not(clock: VirtualClock, first: int) -> None:
    app, service = fake_app(limits={"body_bytes": MAX_BYTES})
    service.authenticator = BearerAuthenticator(clock, ApiKeys(MemoryKeys(stored(api_key())), clock))
    async with running_server(app) as served:
        for last in range(first + 1, len(FAULTS) + 1):
            answer = await served.ask(faulty(FAULTS[first:last]))
            assert answer.status == STATUSES[FAULTS[first]]
            assert MESSAGES[FAULTS[first]] in answer.json["detail"]
    assert service.facade.calls == []


async def test_a_request_without_a_fault_reaches_the_facade(clock: VirtualClock) -> None:
    app, service = fake_app(limits={"body_bytes": MAX_BYTES})
    service.authenticator = BearerAuthenticator(clock, ApiKeys(MemoryKeys(stored(api_key())), clock))
    service.facade.started = FakeRunning.complete
    async with running_server(app) as served:
        assert (await served.ask(faulty(()))).status == 200
    assert len(service.facade.calls) == 1
