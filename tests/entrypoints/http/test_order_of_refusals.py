"""The order in which refusals win over HTTP: of two faults of a request, the one that stands first in `REFUSALS`."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import orjson

from portico.adapters.stores.access.api_keys import DatabaseKeys
from portico.adapters.stores.factory import open_beside
from portico.adapters.system import SystemEntropy
from portico.bootstrap.service import Service
from portico.capabilities.key_administration import KeyAdministration, KeyGrant
from portico.domain.access.limits import NO_LIMITS, AccessLimits
from portico.domain.access.principal import KEY_DEFAULT, Permissions
from portico.domain.failures import Code, RequestFailure
from portico.domain.ids import TenantId, UserId
from portico.domain.lifecycle import Mode
from portico.entrypoints.http.app import create_app
from portico.ports.runtime import Clock
from portico.settings import Settings
from tests.entrypoints.http.refusals import (
    ENDED,
    ONE_REQUEST,
    REFUSALS,
    RUNNING,
    TABLES,
    Conflict,
    Provocation,
    neighbours,
)
from tests.support.http_server import RunningServer, request_bytes, running_server
from tests.support.portico import RESPOND_ASYNC, chat
from tests.support.server_state import wait_for_running

CONNECTIONS = 8
DETAILS = ("field", "permission", "guard", "tools", "violated_policies")


@dataclass
class Answer:
    """A refusal as a client sees it."""

    code: str
    details: dict[str, Any]

    @property
    def fields(self) -> list[str | None]:
        """The fields at fault, or else the first thing that the details name."""
        errors = self.details.get("errors")
        if errors is not None:
            return [each["field"] for each in errors]
        named = next((self.details[key] for key in DETAILS if key in self.details), None)
        return [named[0]] if isinstance(named, list) else [named]


@dataclass
class FullService:
    """The service of `TABLES`, with a full queue, and keys of its callers."""

    served: RunningServer
    service: Service
    administration: KeyAdministration
    keys: dict[tuple[str, frozenset[str], AccessLimits], str] = field(default_factory=dict)

    async def key(
        self, user: str = "ann", lacks: frozenset[str] = frozenset(), limits: AccessLimits = NO_LIMITS
    ) -> dict[str, str]:
        """Return the header of the key of such a caller, who has one key only."""
        known = self.keys.get((user, lacks, limits))
        if known is None:
            rights = Permissions.of(set(KEY_DEFAULT.names) - lacks)
            grant = KeyGrant(TenantId("acme"), UserId(user), rights, limits, None)
            known = self.keys[user, lacks, limits] = (await self.administration.create(grant))[1].reveal()
        return {"Authorization": f"Bearer {known}"}

    async def send(self, provocation: Provocation) -> Answer:
        """Return the refusal of such a request."""
        body = orjson.dumps(provocation.sent_body()) + provocation.suffix
        key = await self.key(lacks=provocation.lacks, limits=provocation.limits)
        headers = {"Content-Type": "application/json", **key, **provocation.headers}
        async with AsyncExitStack() as others:
            for _ in range(CONNECTIONS if provocation.is_surplus else 0):
                await others.enter_async_context(self.served.connect())
            if provocation.is_full:
                self._fill(others)
            answer = await self.served.ask(request_bytes("POST", "/v1/execute", headers, body))
        problem = answer.json
        assert answer.headers["content-type"] == "application/problem+json", problem
        return Answer(problem["code"], problem.get("details", {}))

    def _fill(self, until: AsyncExitStack) -> None:
        """Take all places of the service for that time."""
        with suppress(RequestFailure):
            while True:
                until.callback(self.service.runner.reserve().release)


@asynccontextmanager
async def full_service(clock: Clock, folder: Path) -> AsyncIterator[FullService]:
    """Run the service of `TABLES`, in which executions have ended, one runs, and one waits."""
    storage, entropy = {"url": f"sqlite:///{folder}/portico.db"}, SystemEntropy(clock)
    (folder / "tone.md").write_text("---\ndescription: How to sound\n---\nBe polite.")
    app = create_app(Settings.model_validate({**TABLES, "storage": storage, "skills": {"directory": str(folder)}}))
    async with (
        running_server(app, limit_concurrency=CONNECTIONS) as served,
        open_beside(storage["url"], clock, entropy) as database,
    ):
        service = app.state.service
        here = FullService(served, service, KeyAdministration(DatabaseKeys(database), clock, entropy))
        ann = await here.key()
        await ended(served, await here.key("bob"), session_id="foreign")
        await ended(served, await here.key(limits=ONE_REQUEST))
        await ended(served, ann, request_id=ENDED)
        used = {**ann, **RESPOND_ASYNC, "Idempotency-Key": "used"}
        assert (await served.post(chat("[[slow:80000]] Hello", **RUNNING), used)).status == 202
        await wait_for_running(service, 1)
        waits = await served.post(chat("Hello", request_id="waits"), {**ann, **RESPOND_ASYNC})
        assert waits.status == 202
        try:
            yield here
        finally:
            await served.ask(request_bytes("POST", "/v1/executions/running/cancel", ann))


async def ended(served: RunningServer, key: dict[str, str], **fields: Any) -> None:
    """Let an execution run to its end."""
    answer = await served.post(chat("Hello", **fields), key)
    assert answer.status == 200, answer.json


async def test_each_refusal_is_provoked_alone(clock: Clock, tmp_path: Path) -> None:
    async with full_service(clock, tmp_path) as here:
        found = {each.name: await here.send(each.provocation) for each in REFUSALS}
    assert {name: (answer.code, answer.fields) for name, answer in found.items()} == {
        each.name: (each.code, [each.field]) for each in REFUSALS
    }


async def test_of_two_neighbours_the_earlier_refusal_wins(clock: Clock, tmp_path: Path) -> None:
    expected, found = {}, {}
    async with full_service(clock, tmp_path) as here:
        for one, other in neighbours(REFUSALS):
            shown = [one, other] if one.collected and other.collected else [one]
            expected[one.name, other.name] = one.code, [each.field for each in shown]
            answer = await here.send(one.provocation.with_other(other.provocation))
            found[one.name, other.name] = answer.code, answer.fields
    assert found == expected


async def test_the_errors_of_all_fields_are_listed_in_order(clock: Clock, tmp_path: Path) -> None:
    request, listed = Provocation(modes=[Mode.PLAN]), []
    for each in REFUSALS:
        if each.collected:
            with suppress(Conflict):
                request = request.with_other(each.provocation)
                listed.append(each.field)
    async with full_service(clock, tmp_path) as here:
        answer = await here.send(request)
    assert answer.fields == listed


async def test_a_server_that_stops_says_so_only_where_it_would_look_at_its_capacity(
    clock: Clock, tmp_path: Path
) -> None:
    looking = ("full queue", "capacity", "busy session", "capacity of an execution in memory")
    stopping = dict.fromkeys(looking, Code.REQUEST_SHUTTING_DOWN)
    async with full_service(clock, tmp_path) as here, anyio.create_task_group() as group:
        group.start_soon(here.service.drain)
        await anyio.wait_all_tasks_blocked()
        assert not here.service.readiness().ready
        found = {each.name: (await here.send(each.provocation)).code for each in REFUSALS}
        group.cancel_scope.cancel()
    assert found == {each.name: each.code for each in REFUSALS} | stopping
