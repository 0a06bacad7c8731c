"""Scenarios of access: the check of a key, and the same plain chat without and with keys and limits."""

import statistics
import tempfile
import time
from pathlib import Path

from bench.load import authorized, open_connections
from bench.processes import open_portico
from bench.scenarios import CHAT_REQUEST, CONNECTIONS, WARM_UP, BenchEnvironment, Numbers, Scenario, costs_in_turn
from bench.upstream import TEXT
from portico.adapters.access.api_keys import ApiKeys
from portico.adapters.access.authenticators import BearerAuthenticator
from portico.adapters.stores.access.api_keys import DatabaseKeys
from portico.adapters.stores.sqlite import open_sqlite
from portico.adapters.system import SystemClock, SystemEntropy
from portico.capabilities.key_administration import KeyAdministration, KeyGrant
from portico.domain.access.api_key import SECRET_BYTES, ApiKey
from portico.domain.access.limits import NO_LIMITS
from portico.domain.access.principal import KEY_DEFAULT
from portico.domain.ids import TenantId, UserId
from portico.entrypoints.http.context import bearer_credentials

PAIRS, REQUESTS_PER_PAIR = 16, 300
CHECKS = 50_000
_KEY = ApiKey.from_random(1, bytes(SECRET_BYTES))
_LIMITS = """
price = { input = 0.15, output = 0.6 }
[auth]
mode = "keys"
bootstrap_key_file = "%s"
[tenants.default]
requests = "100000000/60"
tokens = "1000000000000/60"
cost = "1000000/60"
concurrency = 1000
"""


async def limits(bench: BenchEnvironment) -> Numbers:
    """Measure plain chat with a key and all four limits, in turn with the same chat without; a median of pairs."""
    with tempfile.TemporaryDirectory(prefix="portico-bench-") as directory:
        file = Path(directory) / "key"
        file.write_text(_KEY.reveal(), encoding="ascii")
        async with (
            open_portico(bench.cores, bench.upstream.port) as free,
            open_portico(bench.cores, bench.upstream.port, configuration=_LIMITS % file) as limited,
            open_connections(free.port, CONNECTIONS) as to_free,
            open_connections(limited.port, CONNECTIONS) as to_limited,
        ):
            request = authorized(CHAT_REQUEST, _KEY.reveal())
            await to_free.run(CHAT_REQUEST, WARM_UP, expected=TEXT.encode())
            await to_limited.run(request, WARM_UP, expected=TEXT.encode())
            differences = []
            for pair in range(PAIRS):
                runs = [(free, to_free, CHAT_REQUEST), (limited, to_limited, request)]
                without, with_limits = await costs_in_turn(runs, REQUESTS_PER_PAIR, reverse=pair % 2 == 0)
                differences.append(with_limits - without)
    return {"limited_more_ms": statistics.median(differences) * 1000}


async def keys(_bench: BenchEnvironment) -> Numbers:
    """Measure the check of a key after the first time, from the headers of a request to its principal."""
    clock = SystemClock()
    with tempfile.TemporaryDirectory(prefix="portico-bench-") as directory:
        async with open_sqlite(Path(directory) / "portico.db") as database:
            store = DatabaseKeys(database)
            grant = KeyGrant(TenantId("acme"), UserId("ann"), KEY_DEFAULT, NO_LIMITS, None)
            _, key = await KeyAdministration(store, clock, SystemEntropy(clock)).create(grant)
            authenticator = BearerAuthenticator(clock, ApiKeys(store, clock))
            authorization = (b"authorization", b"Bearer " + key.reveal().encode())
            scope = {"headers": [(b"host", b"localhost"), authorization]}
            await authenticator.authenticate(bearer_credentials(scope))
            began = time.process_time()
            for _ in range(CHECKS):
                await authenticator.authenticate(bearer_credentials(scope))
            seconds = time.process_time() - began
    return {"key_check_us": seconds / CHECKS * 1e6}


ACCESS_SCENARIOS: tuple[Scenario, ...] = (limits, keys)
